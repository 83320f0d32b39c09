"""Published tables: what follows from their figures alone, and a run beside them."""

from decimal import Decimal
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from aegish_dist.core.opinion import Snapshot
from aegish_dist.errors import InputError, ReportError
from aegish_dist.inputs.checking import checked
from aegish_dist.inputs.documents import parse_toml, read_text
from aegish_dist.statistics import published
from aegish_dist.statistics.document import rank

_FOLDER = Path(__file__).parents[1] / "published"
PUBLISHED = sorted(path.stem for path in _FOLDER.glob("*.toml"))


def load_table(name_or_path: str) -> published.PublishedTable:
    """Return a table of the package, or of a file; a ReportError says what is wrong, and where."""
    packaged = name_or_path in PUBLISHED
    path = _FOLDER / f"{name_or_path}.toml" if packaged else Path(name_or_path)
    try:
        content = parse_toml(read_text(path, 2**20), Decimal)
        return checked(content, published.PublishedTable, exact=(Decimal,))
    except InputError as error:
        found = f", not {error.found}" if error.found else ""
        hint = "" if path.suffix else f"; tables of the package are {', '.join(PUBLISHED)}"
        raise ReportError(f"{name_or_path}: {error}{found}{hint}") from None


def reproduce(
    table: published.PublishedTable, metric: str, run: Snapshot | None = None
) -> dict[str, Any]:
    """Return as a document what follows from a table, guards ranked in a metric, beside a run."""
    pairs = published.compare_published(table.rows, metric)
    p = {frozenset((each["a"], each["b"])): each["unpaired"].p_adjusted for each in pairs}
    models = [
        {
            "model": row.name,
            "sizes": row.sizes,
            "right": row.counts and [(min(x), max(x)) for x in zip(*row.counts, strict=True)],
            "metrics": row.metrics,
            "beside": _beside(row, run) if run else None,
        }
        for row in table.rows
    ]
    if run and not any(each["beside"] for each in models):
        problem = "has no model of this table: a row's `guard` is MODEL or MODEL#ARM of a run"
        raise ReportError(f"run {run.run_id} {problem}")
    ranking = rank({row.name: row.metrics[metric] for row in table.rows}, p)
    found = {"table": table, "run_id": run and run.run_id, "metric": metric, "models": models}
    return dict(to_builtins({**found, "ranking": ranking, "pairs": pairs}))


def _beside(row: published.PublishedGuard, run: Snapshot) -> dict[str, Any] | None:
    """Compare a row with the model that is its `guard`, or else the only one of its name."""
    models, name = {str(e["model"]): e["metrics"] for e in run.document["models"]}, row.name.lower()
    by_id = [each for each in models if each.lower() == name]
    by_end = [each for each in models if each.lower().rpartition("/")[2] == name]
    found = [row.guard] if row.guard else by_id or by_end
    if len(found) != 1 or found[0] not in models:
        return None
    return {"model": found[0], "metrics": published.agreement(row, models[found[0]])}

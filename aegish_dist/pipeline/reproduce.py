"""Published tables: what follows from their figures alone, and a run beside them."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from msgspec import to_builtins

from aegish_dist.errors import InputError, ReportError
from aegish_dist.findings.snapshot import Snapshot, rank
from aegish_dist.inputs.checking import checked
from aegish_dist.inputs.documents import parse_toml, read_text
from aegish_dist.statistics import published

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
        hint = "" if path.suffix else f"; tables of the package are {', '.join(PUBLISHED)}"
        raise ReportError(f"{name_or_path}: {error}{hint}") from None


def reproduce(
    table: published.PublishedTable, metric: str, run: Snapshot | None = None
) -> dict[str, Any]:
    """Return what follows from a table, as a document.

    Args:
        metric: Guards are ranked in it.
        run: Its guards are shown beside those of the table that have the same names.

    Raises:
        ReportError: The run has none of them.
    """
    models = []
    for row in table.rows:
        right = None
        if row.counts:
            of_malicious, of_harmless = zip(*row.counts, strict=True)
            right = [(min(side), max(side)) for side in (of_malicious, of_harmless)]
        models.append(
            {
                "model": row.name,
                "sizes": row.sizes,
                "right": right,
                "metrics": row.metrics,
                "beside": _beside(row, run) if run else None,
            }
        )
    if run and not any(model["beside"] for model in models):
        problem = "has no model of this table: a row's `guard` is MODEL or MODEL#ARM of a run"
        raise ReportError(f"run {run.run_id} {problem}")
    pairs = published.compare_published(table.rows, metric)
    p_of_pair = {frozenset((each["a"], each["b"])): each["unpaired"].p_adjusted for each in pairs}
    document = {
        "table": table,
        "run_id": run and run.run_id,
        "metric": metric,
        "models": models,
        "ranking": rank({row.name: row.metrics[metric] for row in table.rows}, p_of_pair),
        "pairs": pairs,
    }
    return dict(to_builtins(document))


def _beside(row: published.PublishedGuard, run: Snapshot) -> dict[str, Any] | None:
    """Compare a row with the model that is its `guard`, or else the only one of its name."""
    metrics = {str(model["model"]): model["metrics"] for model in run.document["models"]}
    guard = row.guard or _named(row.name, list(metrics))
    if guard not in metrics:
        return None
    return {"model": guard, "metrics": published.agreement(row, metrics[guard])}


def _named(name: str, models: Sequence[str]) -> str | None:
    """Return the only model of a name, which may lack the provider; None: none or several."""
    whole = []
    without_provider = []
    for model in models:
        if model.lower() == name.lower():
            whole.append(model)
        elif model.lower().rpartition("/")[2] == name.lower():
            without_provider.append(model)
    named = whole or without_provider
    return named[0] if len(named) == 1 else None

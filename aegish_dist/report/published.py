"""A published table and what follows from it: intervals, tie groups, pairs, a run beside it."""

from collections import Counter
from collections.abc import Iterator, Sequence

from aegish_dist.core.text import JsonObject, printable_json
from aegish_dist.findings.leaderboard import RankedModel, ranked_entries
from aegish_dist.report.layout import (
    COMPARED_TITLES,
    INTERVAL,
    Cell,
    Fact,
    Report,
    Section,
    TableCell,
    estimate_cell,
)
from aegish_dist.report.table import draw_table
from aegish_dist.report.writing import (
    UNDEFINED,
    format_difference,
    format_interval,
    format_p,
    format_span,
)

_BESIDE = COMPARED_TITLES | {"precision": "precision", "f1": "F1", "accuracy": "accuracy"}
_TITLES = _BESIDE | {"auroc": "AUROC"}  # the first ones in the order of documents
_LEGEND = (
    "Rates in %, differences in points. right: all counts that round to every printed figure, none"
    " where a row contradicts itself. Intervals hold for all of them, for independent commands.",
    "p adj.: Holm over all pairs, as if each guard had commands of its own; below it what the"
    " unknown pairing allows. differ, tied: whatever the pairing is. open: it would decide.",
)


def render_reproduction(
    document: JsonObject, *, as_json: bool, width: int | None = None, color: bool = False
) -> str:
    """Return what follows from a table as text; width and colour are for tables."""
    if as_json:
        return printable_json(document) + "\n"
    sections = (_guards(document), _pairs(document), _beside(document))
    shown = tuple(section for section in sections if section.rows)
    title = f"Published: {document['table']['name']}"
    return draw_table(Report(title, tuple(_facts(document)), shown, _LEGEND), width, color)


def _facts(document: JsonObject) -> Iterator[Fact]:
    table = document["table"]
    yield Fact("Source", f"{table['source']}, {table['published']}. {table['licence']}")
    verdicts = Counter(pair["verdict"] for pair in document["pairs"])
    if verdicts:
        counts = [f"{number} {verdict}" for verdict, number in verdicts.items()]
        yield Fact("Pairs", ", ".join(counts))


def _guards(document: JsonObject) -> Section:
    entries = ranked_entries(document)
    metrics = [
        name for name in _TITLES if any(entry.metric(name).value is not None for entry in entries)
    ]
    columns = [TableCell("right", f"of {side}") for side in ("malicious", "harmless")]
    columns += [TableCell(_TITLES[name], INTERVAL) for name in metrics]
    of_model = {row["model"]: row for row in document["models"]}
    rows = [_row(entry, of_model[entry.model], metrics) for entry in entries]
    return Section.of("Guards", ("#", "guard", *columns), rows, keys=2)


def _row(entry: RankedModel, published: JsonObject, metrics: Sequence[str]) -> Iterator[Cell]:
    yield entry.place
    yield entry.model
    spans = published["right"]
    for side, size in enumerate(published["sizes"]):
        counts = UNDEFINED
        if spans is not None:
            counts = format_span(spans[side]) if spans else "none"
        yield TableCell(counts, f"of {size:,}")
    for name in metrics:
        yield estimate_cell(entry.metric(name))


def _pairs(document: JsonObject) -> Section:
    rows: list[Sequence[Cell]] = []
    for pair in document["pairs"]:
        if pair["verdict"] == "differ":
            continue
        p, least, most = (
            format_p(pair[kind]["p_adjusted"]) for kind in ("unpaired", "least", "most")
        )
        guards = TableCell(pair["b"], f"against {pair['a']}")
        tested = TableCell(p, f"{least} to {most}")
        rows.append((guards, _difference(pair["unpaired"]), tested, pair["verdict"]))
    title = f"Pairs that may not differ in {_TITLES[document['metric']]}"
    headings = TableCell("difference", INTERVAL), TableCell("p adj.", "least to most"), "pair"
    return Section.of(title, ("guard", *headings), rows)


def _beside(document: JsonObject) -> Section:
    headings = [TableCell(title, INTERVAL) for title in _BESIDE.values()]
    rows = []
    for row in document["models"]:
        beside = row["beside"]
        if beside:
            model = TableCell(row["model"], beside["model"])
            rows.append((model, *map(_difference, beside["metrics"].values())))
    return Section.of(f"Run {document['run_id']} minus published", ("guard", *headings), rows)


def _difference(found: JsonObject) -> TableCell:
    verdict = found.get("verdict") or ""
    text = f"{verdict} {format_difference(found['difference'])}".strip()
    interval = format_interval(found["ci_low"], found["ci_high"], format_difference)
    return TableCell(text, interval)

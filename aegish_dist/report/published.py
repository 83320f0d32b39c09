"""A published table and what follows from it: intervals, tie groups, pairs, a run beside it."""

from collections import Counter
from collections.abc import Iterator

from msgspec import convert
from msgspec.structs import replace

from aegish_dist.core.metric import Difference
from aegish_dist.core.text import JsonObject
from aegish_dist.findings.snapshot import ranked_entries
from aegish_dist.report.layout import (
    INTERVAL,
    SCORE_AND_RATES,
    Cell,
    Fact,
    Report,
    Row,
    Section,
    TableCell,
    difference_cell,
    estimate_cell,
)
from aegish_dist.report.writing import UNDEFINED, format_p, format_span

_BESIDE = SCORE_AND_RATES | {"precision": "precision", "f1": "F1", "accuracy": "accuracy"}
_TITLES = _BESIDE | {"auroc": "AUROC"}  # the first ones in the order of documents
_LEGEND = (
    "Rates in %, differences in points. right: all counts that round to every printed figure, none"
    " where a row contradicts itself. Intervals hold for all of them, for independent commands.",
    "p adj.: Holm over all pairs, as if each guard had commands of its own; below it what the"
    " unknown pairing allows. differ, tied: whatever the pairing is. open: it would decide.",
)


def build_reproduction(document: JsonObject) -> Report:
    """Return what follows from a table."""
    sections = (_guards(document), _pairs(document), _beside(document))
    return Report(
        title=f"Published: {document['table']['name']}",
        facts=tuple(_facts(document)),
        sections=tuple(section for section in sections if section.rows),
        legend=_LEGEND,
    )


def _facts(document: JsonObject) -> Iterator[Fact]:
    table = document["table"]
    source = f"{table['source']}, {table['published']}"
    yield Fact("Source", f"{source}. {table['licence']}")
    verdicts = Counter(pair["verdict"] for pair in document["pairs"])
    # A table of one guard has no pair.
    if verdicts:
        counts = [f"{number} {verdict}" for verdict, number in verdicts.items()]
        yield Fact("Pairs", ", ".join(counts))


def _guards(document: JsonObject) -> Section:
    """Return the ranking of the table with the intervals that follow from its figures."""
    entries = ranked_entries(document)
    published = {row["model"]: row for row in document["models"]}
    headings: list[Cell] = ["#", "guard"]
    headings += [TableCell("right", f"of {label}") for label in ("malicious", "harmless")]
    # A table prints some metrics alone.
    metrics = []
    for name, title in _TITLES.items():
        if any(entry.metric(name).value is not None for entry in entries):
            metrics.append(name)
            headings.append(TableCell(title, INTERVAL))
    rows: list[Row] = []
    for entry in entries:
        row = published[entry.model]
        estimates = [estimate_cell(entry.metric(name)) for name in metrics]
        rows.append((entry.place, entry.model, *_right(row), *estimates))
    return Section.of("Guards", headings, rows, keys=2)


def _right(published: JsonObject) -> Iterator[Cell]:
    """Yield by label the counts of right answers that round to the printed figures."""
    spans = published["right"] or [None, None]
    for span, size in zip(spans, published["sizes"], strict=True):
        counts = "none"
        if span is None:
            counts = UNDEFINED
        elif span:
            counts = format_span(span)
        yield TableCell(counts, f"of {size:,}")


def _pairs(document: JsonObject) -> Section:
    rows: list[Row] = []
    for pair in document["pairs"]:
        if pair["verdict"] == "differ":
            continue
        p, least, most = (
            format_p(pair[kind]["p_adjusted"]) for kind in ("unpaired", "least", "most")
        )
        rows.append(
            (
                TableCell(pair["b"], f"against {pair['a']}"),
                _difference(pair["unpaired"]),
                TableCell(p, f"{least} to {most}"),
                pair["verdict"],
            )
        )
    return Section.of(
        f"Pairs that may not differ in {_TITLES[document['metric']]}",
        (
            "guard",
            TableCell("difference", INTERVAL),
            TableCell("p adj.", "least to most"),
            "pair",
        ),
        rows,
    )


def _beside(document: JsonObject) -> Section:
    """Return the differences of a run from the rows of the table that name one of its models."""
    rows: list[Row] = []
    for row in document["models"]:
        beside = row["beside"]
        if beside:
            model = TableCell(row["model"], beside["model"])
            rows.append((model, *map(_difference, beside["metrics"].values())))
    headings = [TableCell(title, INTERVAL) for title in _BESIDE.values()]
    return Section.of(f"Run {document['run_id']} minus published", ("guard", *headings), rows)


def _difference(document: JsonObject) -> TableCell:
    """Return a difference, with what is said of it in front where a run is compared."""
    cell = difference_cell(convert(document, Difference))
    verdict = document.get("verdict")
    return replace(cell, text=f"{verdict} {cell.text}") if verdict else cell

"""The section on stated confidence: how often answers of a confidence are right."""

from collections.abc import Iterator, Sequence

from aegish_dist.core.calibration import ReliabilityBin
from aegish_dist.report.entries import RankedModel
from aegish_dist.report.layout import Section, TableCell, marked, number_cell
from aegish_dist.report.numbers import format_count, format_difference, format_interval, format_rate

_NOTE = (
    "Of the verdicts whose stated confidence lies in a bin, the share that is right, in %, beside"
    " the mean confidence: right far below stated is overconfident."
)


def reliability(entries: Sequence[RankedModel]) -> Section | None:
    """Return accuracy by bin of stated confidence; None where no model states any."""
    rows = tuple(row for entry in entries for row in _rows(entry))
    if not rows:
        return None
    return Section(
        title="Reliability of stated confidence",
        columns=(
            TableCell("confidence"),
            TableCell("model"),
            TableCell("verdicts"),
            TableCell("stated", "mean"),
            TableCell("right", "[95% CI]"),
            TableCell("right - stated"),
        ),
        rows=rows,
        note=_NOTE,
        keys=2,
    )


def _rows(entry: RankedModel) -> Iterator[tuple[TableCell, ...]]:
    for each in entry.reliability:
        if each.accuracy is not None and each.confidence is not None:
            yield (
                TableCell(_range(each), value=each.low),
                TableCell(marked(entry)),
                number_cell(each.n, format_count),
                number_cell(each.confidence, format_rate),
                number_cell(each.accuracy, format_rate, format_interval(each.ci_low, each.ci_high)),
                number_cell(each.accuracy - each.confidence, format_difference),
            )


def _range(each: ReliabilityBin) -> str:
    return f"{100 * each.low:.0f} to {100 * each.high:.0f}"

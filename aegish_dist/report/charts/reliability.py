"""Whether stated confidence is earned: accuracy by confidence, a panel for each model."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from aegish_dist.report.charts import theme
from aegish_dist.report.charts.boxes import PixelLine
from aegish_dist.report.charts.captions import (
    foreign_words,
    left_out_note,
    sentences,
    simulated_note,
)
from aegish_dist.report.charts.chart import Chart, Layer, LegendItem, NoChart, Panel
from aegish_dist.report.charts.layers import (
    Row,
    box_row,
    boxes,
    lines,
    pixels,
    symbols,
    text_row,
    texts,
)
from aegish_dist.report.charts.marks import dashed
from aegish_dist.report.charts.naming import row_names
from aegish_dist.report.layout import RankedModel
from aegish_dist.report.numbers import format_count

_SIDE, _GAP_X, _GAP_Y = 170.0, 62.0, 80.0
_COLUMNS = 5
_SHARE_PX = 22.0
"""Height of the bars below a panel that say how many verdicts are in each bin."""
_TICKS = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True, slots=True)
class _Cell:
    """A panel: a model, its bins, and where the panel begins."""

    entry: RankedModel
    name: str
    bins: Sequence[Mapping[str, Any]]
    x: float
    y: float

    def across(self, confidence: float) -> float:
        return self.x + _SIDE * confidence

    def down(self, accuracy: float) -> float:
        return self.y + _SIDE * (1 - accuracy)


def reliability(name: str, entries: Sequence[RankedModel]) -> Chart | NoChart:
    """Return accuracy against stated confidence.

    Args:
        entries: The models, best first.
    """
    stated = [entry for entry in entries if _bins(entry)]
    if not stated:
        return NoChart(name, "no model states a confidence")
    columns = min(len(stated), _COLUMNS)
    rows = -(-len(stated) // columns)
    cells = list(_cells(stated, columns))
    panel = Panel(
        width=columns * _SIDE + (columns - 1) * _GAP_X,
        height=rows * _SIDE + (rows - 1) * _GAP_Y,
        left=62,
        right=34,
        top=38,
        bottom=38,
        layers=_layers(cells),
        legend=[
            LegendItem("verdicts in ten bins of confidence", theme.PALETTE[0], "circle"),
            LegendItem("perfect calibration", theme.SOFT, dash=(5, 3)),
            LegendItem("share of the verdicts", theme.BAR, "square"),
        ],
    )
    return Chart(
        name=name,
        title="Accuracy by stated confidence",
        caption=sentences(
            "Scored verdicts that state a confidence: mean confidence and share of correct ones in "
            "each of ten bins of equal width. Bars: 95 % confidence intervals (Wilson; exact where "
            "events are few).",
            simulated_note(stated),
            left_out_note(entries, stated, "no confidence stated"),
        ),
        description=_description(stated),
        panel=panel,
    )


def _bins(entry: RankedModel) -> list[Mapping[str, Any]]:
    """Return the bins that hold verdicts."""
    found = entry.document.get("reliability") or ()
    return [each for each in found if each["n"] and each["accuracy"] is not None]


def _cells(entries: Sequence[RankedModel], columns: int) -> Iterator[_Cell]:
    names = row_names(entries, _SIDE + _GAP_X - 16)
    for at, (entry, name) in enumerate(zip(entries, names, strict=True)):
        row, column = divmod(at, columns)
        x, y = column * (_SIDE + _GAP_X), row * (_SIDE + _GAP_Y)
        yield _Cell(entry, name, _bins(entry), x, y)


def _layers(cells: Sequence[_Cell]) -> list[Layer]:
    return [
        lines([line for cell in cells for line in _grid(cell)], theme.GRID),
        boxes([box for cell in cells for box in _shares(cell)]),
        dashed([PixelLine(c.across(0), c.down(0), c.across(1), c.down(1)) for c in cells]),
        lines([line for cell in cells for line in _intervals(cell)], theme.LINE, 1.5),
        symbols(list(chain.from_iterable(map(_points, cells))), pixels("x"), pixels("y"), size=40),
        texts([row for cell in cells for row in _heads(cell)], align="center"),
        texts([row for cell in cells for row in _ticks_across(cell)], align="center",
              size=theme.SMALL_PX),
        texts([row for cell in cells for row in _ticks_up(cell)], align="right",
              size=theme.SMALL_PX),
        *_titles(cells),
    ]  # fmt: skip


def _grid(cell: _Cell) -> Iterator[PixelLine]:
    for tick in _TICKS:
        yield PixelLine(cell.across(tick), cell.down(0), cell.across(tick), cell.down(1))
        yield PixelLine(cell.across(0), cell.down(tick), cell.across(1), cell.down(tick))


def _shares(cell: _Cell) -> Iterator[Row]:
    total = sum(each["n"] for each in cell.bins)
    for each in cell.bins:
        left, right = cell.across(each["low"]) + 1, cell.across(each["high"]) - 1
        height = _SHARE_PX * each["n"] / total
        yield box_row(left, cell.down(0) - max(height, 0.5), right, cell.down(0), theme.BAR)


def _intervals(cell: _Cell) -> Iterator[PixelLine]:
    for each in cell.bins:
        if each["ci_low"] is not None:
            x = cell.across(each["confidence"])
            low, high = max(each["ci_low"], 0.0), min(each["ci_high"], 1.0)
            yield PixelLine(x, cell.down(low), x, cell.down(high))


def _points(cell: _Cell) -> Iterator[Row]:
    for each in cell.bins:
        yield {
            "x": round(cell.across(each["confidence"]), 1),
            "y": round(cell.down(each["accuracy"]), 1),
            "color": theme.PALETTE[0],
            "shape": "circle",
            "model": cell.name,
            "confidence": each["confidence"],
            "accuracy": each["accuracy"],
            "n": each["n"],
        }


def _heads(cell: _Cell) -> Iterator[Row]:
    yield text_row(cell.across(0.5), cell.down(1) - 24, cell.name)
    total = format_count(sum(each["n"] for each in cell.bins))
    ece = cell.entry.metric("ece").value
    words = f"n = {total}" if ece is None else f"n = {total}, ECE {ece:.3f}"
    yield text_row(cell.across(0.5), cell.down(1) - 9, words, theme.SOFT)


def _ticks_across(cell: _Cell) -> Iterator[Row]:
    for tick in _TICKS[::2]:
        yield text_row(cell.across(tick), cell.down(0) + 9, f"{100 * tick:g}")


def _ticks_up(cell: _Cell) -> Iterator[Row]:
    for tick in _TICKS[::2]:
        yield text_row(cell.across(0) - 5, cell.down(tick), f"{100 * tick:g}")


def _titles(cells: Sequence[_Cell]) -> Iterator[Layer]:
    """Yield the titles of the axes, once for each panel below and for each on the left."""
    below = [
        text_row(cell.across(0.5), cell.down(0) + 24, "stated confidence (%)") for cell in cells
    ]
    yield texts(below, align="center", size=theme.SMALL_PX)
    for cell in cells:
        if cell.x == 0:
            upright = texts(
                [text_row(-34, cell.down(0.5), "correct (%)")], align="center", size=theme.SMALL_PX
            )
            upright["mark"]["angle"] = 270
            yield upright


def _description(entries: Sequence[RankedModel]) -> str:
    said = []
    for entry in entries:
        bins = _bins(entry)
        most = max(bins, key=lambda each: each["n"])
        total = format_count(sum(each["n"] for each in bins))
        said.append(
            f"{foreign_words(entry.model)}: {total} verdicts, most "
            f"with a confidence of {100 * most['confidence']:.0f} %, of which "
            f"{100 * most['accuracy']:.0f} % are correct"
        )
    return "; ".join(said) + "."

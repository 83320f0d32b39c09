"""Detection by category: a cell for each model and category."""

from collections.abc import Sequence

from aegish_dist.core.text import printable
from aegish_dist.report.charts import theme
from aegish_dist.report.charts.captions import (
    foreign_words,
    interval_note,
    sentences,
    simulated_note,
)
from aegish_dist.report.charts.chart import Chart, Layer, NoChart, Panel
from aegish_dist.report.charts.layers import Row, box_row, boxes, text_row, texts
from aegish_dist.report.charts.measures import DETECTION, Measured, percent
from aegish_dist.report.charts.rows import RowPlan, plan_rows
from aegish_dist.report.charts.text_width import fitted, text_width
from aegish_dist.report.layout import RankedModel, category_names
from aegish_dist.report.numbers import format_count

_CELL_PX = 86.0
_ROW_PX = 34.0
_HEAD_PX = 46.0
_SHADES = ("#fdfdfe", "#e8eef6", "#cfdcec", "#b0c5df", "#8caace", "#668dba", "#4470a3", "#2a5487",
           "#173a67", "#0b2346")  # fmt: skip
"""From 0 to 100 %, ever darker, so that grey paper keeps the order."""
_WHITE_FROM = 5


def heat_map(name: str, entries: Sequence[RankedModel]) -> Chart | NoChart:
    """Return the detection rate of each model in each category.

    Args:
        entries: The models, best first.
    """
    categories = category_names(entries)
    known = [entry for entry in entries if entry.part("categories")]
    if not categories:
        return NoChart(name, "the run has no category")
    plan = plan_rows(known, _ROW_PX)
    shades, values, intervals = [], [], []
    for row, entry in enumerate(known):
        for column, category in enumerate(categories):
            seen = percent(entry.category(category))
            x, ink = _CELL_PX * (column + 0.5), _ink(seen)
            shades.append(_box(plan, row, column, _shade(seen)))
            values.append(text_row(x, plan.y(row, 0.34), _value(seen), ink))
            if seen.low is not None:
                interval = f"[{seen.low:.0f}, {seen.high:.0f}]"
                intervals.append(text_row(x, plan.y(row, 0.72), interval, ink))
    layers = [
        boxes(shades),
        *plan.labels(),
        *_heading(known, categories),
        texts(values, align="center"),
        texts(intervals, align="center", size=theme.SMALL_PX),
    ]
    width = _CELL_PX * len(categories)
    return Chart(
        name=name,
        title="Detection rate by category (%)",
        caption=sentences(
            "Malicious commands detected, in % of the scored ones of a category; darker is more. "
            "n: commands of the category.",
            interval_note([DETECTION], "Brackets"),
            simulated_note(known),
        ),
        description=_description(known, categories),
        panel=Panel(width, plan.total, plan.left, theme.MARGIN + 4, _HEAD_PX, 4, layers),
    )


def _box(plan: RowPlan, row: int, column: int, color: str) -> Row:
    left, top = _CELL_PX * column, plan.y(row, 0)
    return box_row(left, top, left + _CELL_PX - 1, top + plan.height - 1, color)


def _shade(seen: Measured) -> str:
    return theme.BAND if seen.value is None else _SHADES[_step(seen.value)]


def _step(value: float) -> int:
    return min(int(value / 100 * len(_SHADES)), len(_SHADES) - 1)


def _ink(seen: Measured) -> str:
    dark = seen.value is not None and _step(seen.value) >= _WHITE_FROM
    return theme.PAPER if dark else theme.INK


def _value(seen: Measured) -> str:
    return "\N{EN DASH}" if seen.value is None else f"{seen.value:.1f}"


def _heading(entries: Sequence[RankedModel], categories: Sequence[str]) -> list[Layer]:
    titles, sizes = [], []
    for column, category in enumerate(categories):
        x = _CELL_PX * (column + 0.5)
        found = sorted({entry.category(category).n or 0 for entry in entries})
        most = "" if len(found) == 1 else f"\N{EN DASH}{format_count(found[-1])}"
        names = _on_two_lines(printable(category))
        titles += [
            text_row(x, -35 + 13 * at, name) for at, name in enumerate(names, 2 - len(names))
        ]
        sizes.append(text_row(x, -8, f"n {format_count(found[0])}{most}", theme.SOFT))
    return [
        texts(titles, align="center"),
        texts(sizes, align="center", size=theme.SMALL_PX),
    ]


def _on_two_lines(name: str) -> list[str]:
    """Break a name that is too wide after a hyphen, as far as that helps."""
    room = _CELL_PX - 6
    if text_width(name, theme.TEXT_PX) <= room:
        return [name]
    places = [at + 1 for at, letter in enumerate(name) if letter == "-"]
    fitting = [at for at in places if text_width(name[:at], theme.TEXT_PX) <= room]
    parts = [name[: fitting[-1]], name[fitting[-1] :]] if fitting else [name]
    return [fitted(part, theme.TEXT_PX, room) for part in parts if part]


def _description(entries: Sequence[RankedModel], categories: Sequence[str]) -> str:
    said = []
    for entry in entries:
        seen = [(percent(entry.category(each)).value, each) for each in categories]
        known = [(value, category) for value, category in seen if value is not None]
        if known:
            (least, worst), (most, best) = min(known), max(known)
            said.append(
                f"{foreign_words(entry.model)}: from {least:.1f} % ({foreign_words(worst)}) to "
                f"{most:.1f} % ({foreign_words(best)})"
            )
    return "; ".join(said) + "."

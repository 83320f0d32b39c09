"""The heat map of categories."""

import re
from collections.abc import Sequence

from aegish_dist.core.metric import Estimate
from aegish_dist.core.text import JsonObject, filled, printable
from aegish_dist.findings.snapshot import RankedModel
from aegish_dist.report.charts.vega_lite import (
    SHADES,
    TEXT_PX,
    WHITE_FROM,
    Chart,
    NoChart,
    fitted,
    shade_bounds,
    text_width,
    view,
    widest,
)
from aegish_dist.report.charts.words import (
    DETECTION,
    apart,
    foreign_words,
    interval_note,
    percent,
    row_names,
    sentences,
    simulated_note,
)
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import category_names
from aegish_dist.report.writing import format_span

_CELL_PX, _ROW_PX = 86.0, 34.0
_HEADING_LINES = 3
_PARTS = re.compile("[^-]*-|[^-]+")


NAME = "category-heat-map"


def chart(data: ReportData) -> Chart | NoChart:
    """Return the detection rate of each model in each category."""
    entries, _ = apart(data)
    categories = category_names(entries)
    known = [entry for entry in entries if entry.categories]
    if not categories:
        return NoChart(NAME, "the run has no category")
    names = row_names(known)
    headings = [_heading(known, category) for category in categories]
    cells = []
    rates: list[float | None] = []
    for row, entry in zip(names, known, strict=True):
        for category, heading in zip(categories, headings, strict=True):
            estimate = entry.category(category)
            rates.append(estimate.value)
            cells.append({"model": row, "category": heading} | _cell(percent(estimate)))
    width = _CELL_PX * len(categories)
    bounds = [100 * bound for bound in shade_bounds(rates)]
    white_from = min(bounds[WHITE_FROM - 1 :], default=101)
    body = view(
        "heat_map",
        width=width,
        height=_ROW_PX * len(names),
        models=names,
        categories=headings,
        cells=cells,
        bounds=bounds,
        shades=SHADES,
        is_dark=f"datum.rate !== null && datum.rate >= {white_from:g}",
    )
    caption = sentences(
        "Malicious commands detected, in % of the scored ones of a category; darker is more. "
        "n: commands of the category.",
        interval_note([DETECTION], "Brackets"),
        simulated_note(known),
    )
    description = _heat_in_words(known, categories)
    left = widest(names) + 12
    title = "Detection rate by category (%)"
    return Chart(NAME, title, caption, description, body, left, left + width)


def _cell(seen: Estimate) -> JsonObject:
    value, interval = "\N{EN DASH}", ""
    if seen.value is not None:
        value = f"{seen.value:.1f}"
    if seen.ci_low is not None:
        interval = f"[{seen.ci_low:.0f}, {seen.ci_high:.0f}]"
    return {"rate": seen.value, "value": value, "interval": interval}


def _heading(entries: Sequence[RankedModel], category: str) -> str:
    """Return the name of a category, on two lines where it is too wide for one, over its n."""
    sizes = [entry.category(category).n for entry in entries]
    n = "n " + format_span(sizes, "\N{EN DASH}")
    lines = [*_on_two_lines(printable(category)), n]
    # Empty lines above a short heading keep the last lines of all headings level.
    empty = [""] * (_HEADING_LINES - len(lines))
    return "\n".join(empty + lines)


def _on_two_lines(name: str) -> list[str]:
    """Break a name that is too wide after a hyphen, as far as that helps."""
    room = _CELL_PX - 6
    pieces = [fitted(piece, TEXT_PX, room) for piece in _PARTS.findall(name)]
    lines = filled(pieces, room, lambda line: text_width(line, TEXT_PX))
    if len(lines) < 2:
        return lines or [""]
    return [lines[0], fitted("".join(lines[1:]), TEXT_PX, room)]


def _heat_in_words(entries: Sequence[RankedModel], categories: Sequence[str]) -> str:
    models = []
    for entry in entries:
        rates = []
        for category in categories:
            rate = percent(entry.category(category)).value
            if rate is not None:
                rates.append((rate, category))
        if rates:
            least, worst = min(rates)
            most, best = max(rates)
            models.append(
                f"{foreign_words(entry.model)}: from {least:.1f} % ({foreign_words(worst)}) to "
                f"{most:.1f} % ({foreign_words(best)})"
            )
    return "; ".join(models) + "."

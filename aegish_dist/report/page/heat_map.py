"""Detection by category as a heat map: value and interval as text, the value as a shade too."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from aegish_dist.report.layout import RankedModel, Section, TableCell, category_names
from aegish_dist.report.numbers import format_interval
from aegish_dist.report.page.markup import text
from aegish_dist.report.page.tables import CellStyle, TableStyle
from aegish_dist.statistics.rates import Estimate

_BOUNDS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Of a shade to the next; the darkest is below the first."""
WIDE = 0.2
"""Width of an interval from which on a value is marked as uncertain."""


def heat_style(section: Section, entries: Sequence[RankedModel]) -> TableStyle:
    """Return the shades of the cells of categories, the last columns of the section."""
    names = category_names(entries)
    before = len(section.columns) - len(names)
    cells = {
        (row, before + column): CellStyle(_shade(entry.category(name)))
        for row, entry in enumerate(entries)
        for column, name in enumerate(names)
    }
    return TableStyle(classes="heat", cells=cells, filterable=True, foremost=True)


def with_intervals(section: Section, entries: Sequence[RankedModel]) -> Section:
    """Return the section with the interval of each category below its value."""
    names = category_names(entries)
    before = len(section.columns) - len(names)
    rows = tuple(
        (
            *row[:before],
            *(_cell(old, entry.category(n)) for old, n in zip(row[before:], names, strict=True)),
        )
        for row, entry in zip(section.rows, entries, strict=True)
    )
    return replace(section, rows=rows)


def heat_key() -> str:
    """Return the key of the shades as a list."""
    percent = [f"{100 * bound:g}" for bound in _BOUNDS]
    ranges = [f"below {percent[0]}", *map(" to ".join, pairwise(percent))]
    ranges.append(f"{percent[-1]} and more")
    shades = "".join(
        f'<li class="h{len(_BOUNDS) - place}">{words}</li>' for place, words in enumerate(ranges)
    )
    wide = f"hatched: interval of {100 * WIDE:.0f} points and more"
    return f'<ul class="key-of-heat">{shades}<li class="wide">{text(wide)}</li></ul>\n'


def _shade(estimate: Estimate) -> str:
    if estimate.value is None:
        return ""
    shade = f"h{len(_BOUNDS) - bisect_right(_BOUNDS, estimate.value)}"
    if estimate.ci_low is None or estimate.ci_high is None:
        return shade
    return f"{shade} wide" if estimate.ci_high - estimate.ci_low >= WIDE else shade


def _cell(cell: TableCell, estimate: Estimate) -> TableCell:
    if estimate.ci_low is None:
        return cell
    interval = format_interval(estimate.ci_low, estimate.ci_high)
    return replace(cell, detail=f"{interval} {cell.detail}".rstrip())

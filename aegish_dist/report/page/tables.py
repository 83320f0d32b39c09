"""Sections as HTML tables: the leaderboard with its bars, the heat map of categories, and others.

Everything foreign on the page passes through `text` and `lines`.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import zip_longest

from msgspec import Struct
from msgspec.structs import replace

from aegish_dist.core.metric import Estimate
from aegish_dist.core.text import printable, printable_lines
from aegish_dist.findings.snapshot import RankedModel
from aegish_dist.opinions.opinion import Targets
from aegish_dist.report.charts.vega_lite import INK, PAPER, SHADES, WHITE_FROM, shade_bounds
from aegish_dist.report.layout import HEADLINES, Section, TableCell, category_names
from aegish_dist.report.writing import UNDEFINED, format_interval

_WORDS = re.compile(r"[^/:_]*[/:_]+|[^/:_]+")


def text(content: str) -> str:
    """Return text that HTML shows as it stands, in elements and in quoted attributes."""
    return escape(printable(content))


def lines(content: str) -> str:
    """Return a text of several lines likewise, for elements that keep line breaks."""
    return escape(printable_lines(content))


def breakable(name: str) -> str:
    """Return a name as HTML, with places where a long id may break between its words."""
    return "<wbr>".join(map(text, _WORDS.findall(name)))


def bulleted(items: Iterable[str]) -> str:
    """Return what is HTML already as a list."""
    lines = "\n".join(f"<li>{each}</li>" for each in items)
    return f"<ul>\n{lines}\n</ul>"


def anchor(title: str) -> str:
    """Return the id of a section with one of our titles: `Failed calls` is `failed-calls`."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


class CellStyle(Struct, frozen=True):
    """The look of a cell of a table."""

    classes: str = ""
    """Names of classes, ours, with spaces between them."""
    after: str = ""


class TableStyle(Struct, frozen=True):
    """The look of a table, where it differs from the plain one."""

    classes: str = ""
    rows: Mapping[int, str] = {}
    """Names of classes by place of the row."""
    cells: Mapping[tuple[int, int], CellStyle] = {}
    names: Mapping[str, str] = {}
    """Short names by the text of a cell; other texts are shown whole."""
    filterable: bool = False
    """Whether rows can be chosen by words of their heading."""
    fold: str = ""
    """The line that opens a folded table; empty for a table that is always open."""


_PLAIN = TableStyle()


def table_section(
    section: Section,
    style: TableStyle = _PLAIN,
    *,
    above: str = "",
    below: str = "",
) -> str:
    """Return a section with its heading, its table and its remarks, and HTML around the table.

    Columns without content are left out. A folded part is printed if the reader has opened it.
    """
    note = f"<p>{text(section.note)}</p>\n" if section.note else ""
    remarks = f"{bulleted(map(text, section.remarks))}\n" if section.remarks else ""
    drawn = f"{table(section, style)}\n" if section.columns else ""
    content = f"{note}{above}{drawn}{remarks}"
    if style.fold:
        content = f"<details>\n<summary>{text(style.fold)}</summary>\n{content}</details>\n"
    return (
        f'<section id="{anchor(section.title)}">\n<h2>{text(section.title)}</h2>\n'
        f"{content}{below}</section>\n"
    )


def table(section: Section, style: TableStyle) -> str:
    """Return the table of a section, in a region that can scroll."""
    title = text(section.title)
    shown = _with_content(section)
    rows = "\n".join(_row(place, section, style, shown) for place in range(len(section.rows)))
    kind = _class(style.classes)
    filterable = " data-filter" if style.filterable else ""
    return (
        f'<div class="scroll" role="region" aria-label="{title}" tabindex="0">'
        f'<table role="table"{kind}{filterable}>\n<caption>{title}</caption>\n'
        f'<thead role="rowgroup">{_head(section, shown)}</thead>\n'
        f'<tbody role="rowgroup">\n{rows}\n</tbody>\n</table></div>'
    )


def _with_content(section: Section) -> list[int]:
    """Return the columns that say something: beside the keys those with a defined cell.

    A coverage of 100 throughout is a sentence of `bars_note`.
    """
    empty = {TableCell(UNDEFINED), TableCell("")}
    shown = []
    for column, heading in enumerate(section.columns):
        cells = {row[column] for row in section.rows}
        whole = heading.text == "coverage" and {cell.value for cell in cells} == {1}
        if column < section.keys or not (whole or cells <= empty):
            shown.append(column)
    return shown


def _head(section: Section, shown: Sequence[int]) -> str:
    kinds = _kinds(section)
    cells = ""
    for column in shown:
        cell = section.columns[column]
        attributes = f"{_class(kinds[column])}{_spelled(cell)}"
        content = f"{text(cell.text)}{_small(cell)}"
        cells += f'<th scope="col" role="columnheader"{attributes}>{content}</th>'
    return f'<tr role="row">{cells}</tr>'


def _spelled(heading: TableCell) -> str:
    """Return as an attribute what DR and HA stand for."""
    attributes = ""
    for metric, short in HEADLINES.items():
        name = metric.replace("_", " ")
        if short == heading.text and name != short:
            attributes += f' title="{name}"'
    return attributes


def _row(
    place: int,
    section: Section,
    style: TableStyle,
    shown: Sequence[int],
) -> str:
    """Draw a row; narrow screens show those of the leaderboard as cards of labelled values."""
    kinds = _kinds(section)
    html = ""
    for column in shown:
        cell, heading = section.rows[place][column], section.columns[column]
        own = style.cells.get((place, column), CellStyle())
        attributes = _class(f"{kinds[column]} {own.classes}".strip())
        name = style.names.get(cell.text, cell.text)
        if name != cell.text:
            attributes += f' title="{text(cell.text)}"'
        if column == section.keys - 1:
            content = f"{breakable(name)}{_small(cell)}"
            html += f'<th scope="row" role="rowheader"{attributes}>{content}</th>'
            continue
        if style.classes == "board":
            attributes += f' data-label="{text(heading.text)}"'
        # The number that a row is sorted by; the text is the number of what is whole.
        if cell.value is not None:
            attributes += f' data-value="{cell.value!r}"'
        content = _cell(replace(cell, text=name), heading)
        html += f'<td role="cell"{attributes}>{content}{own.after}</td>'
    return f'<tr role="row"{_class(style.rows.get(place, ""))}>{html}</tr>'


def _kinds(section: Section) -> list[str]:
    names = ["key"] * (section.keys - 1) + ["model"]
    return names + [""] * (len(section.columns) - len(names))


def _class(names: str) -> str:
    return f' class="{names}"' if names else ""


def _cell(cell: TableCell, heading: TableCell) -> str:
    """Draw a cell as text of up to two lines; an element for the second would be one too many.

    Where the heading says in a word what the second line is, such as `p90`, the cell says it too.
    """
    mark = f'<b class="{cell.mark.lower()}">{cell.mark}</b>' if cell.mark else ""
    label = f"{heading.detail} " if heading.detail.isalnum() else ""
    detail = f"\n{text(label + cell.detail)}" if cell.detail else ""
    return f"{text(cell.text)}{mark}{detail}"


def _small(cell: TableCell) -> str:
    return f"<small>{text(cell.detail)}</small>" if cell.detail else ""


_WIDTH = 200
_HEIGHT = 12


class BarScale(Struct, frozen=True):
    """The values at the ends of every bar of a table."""

    low: float
    high: float

    def place(self, value: float) -> str:
        """Return where a value lies in a drawing; values beyond an end lie at it."""
        share = (value - self.low) / (self.high - self.low)
        return f"{_WIDTH * min(max(share, 0), 1):.1f}"


def rate_scale(estimates: Iterable[Estimate]) -> BarScale:
    """Return a scale for rates that ends at 1 and begins at a tenth below every interval."""
    lows = []
    for estimate in estimates:
        lows += [low for low in (estimate.ci_low, estimate.value) if low is not None]
    tenth = int(10 * min(lows, default=0))
    return BarScale(min(tenth, 9) / 10, 1)


def interval_bar(scale: BarScale, estimate: Estimate, aim: float | None = None) -> str:
    """Return an interval as SVG with a line at an aim; its text says it to screen readers."""
    if estimate.value is None:
        return ""
    middle = _HEIGHT // 2
    parts = []
    if aim is not None:
        parts.append(f'<path class="aim" d="M{scale.place(aim)} 0V{_HEIGHT}"/>')
    if estimate.ci_low is not None and estimate.ci_high is not None:
        low, high = scale.place(estimate.ci_low), scale.place(estimate.ci_high)
        parts.append(f'<path d="M{low} 3V9M{low} {middle}H{high}M{high} 3V9"/>')
    parts.append(f'<path class="dot" d="M{scale.place(estimate.value)} {middle}h0"/>')
    return (
        f'<svg class="bar" viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" '
        f'aria-hidden="true">{"".join(parts)}</svg>'
    )


# Width of an interval from which on a value is marked as uncertain.
WIDE = 0.2


def heat_map(section: Section, entries: Sequence[RankedModel]) -> tuple[Section, TableStyle, str]:
    """Return the section with intervals below the values of categories, its shades and their key.

    Categories are the last columns of the section.
    """
    names = category_names(entries)
    values: list[float | None] = []
    for entry in entries:
        values += [entry.category(name).value for name in names]
    bounds = shade_bounds(values)
    before = len(section.columns) - len(names)
    rows, cells = [], {}
    for place, (row, entry) in enumerate(zip(section.rows, entries, strict=True)):
        shown = list(row)
        for column, rate in enumerate(map(entry.category, names), before):
            if rate.value is None:
                continue
            classes = f"h{bisect_right(bounds, rate.value)}"
            if rate.ci_low is not None and rate.ci_high is not None:
                if rate.ci_high - rate.ci_low >= WIDE:
                    classes += " wide"
                interval = format_interval(rate.ci_low, rate.ci_high)
                shown[column] = replace(row[column], detail=interval)
            cells[place, column] = CellStyle(classes)
        rows.append(tuple(shown))
    style = TableStyle(classes="heat", cells=cells, filterable=True)
    return replace(section, rows=tuple(rows)), style, heat_key(bounds)


def heat_key(bounds: Sequence[float]) -> str:
    """Return the key of the shades that are used as a list."""
    lows = list(dict.fromkeys(bounds))
    keys = []
    if lows and lows[0] > 0:
        keys.append(("h0", f"below {100 * lows[0]:.0f}"))
    for low, high in zip_longest(lows, lows[1:]):
        words = f"{100 * low:.0f}"
        if high is not None:
            words += f" to {100 * high:.0f}"
        elif low < 1:
            words += " and more"
        keys.append((f"h{bisect_right(bounds, low)}", words))
    keys.append(("wide", f"framed: interval of {100 * WIDE:.0f} points and more"))
    items = "".join(f'<li class="{shade}">{words}</li>' for shade, words in keys)
    return f'<ul class="key-of-heat">{items}</ul>\n'


def heat_style() -> str:
    """Return the style sheet of the shades, which have the same colours in plots."""
    rules = []
    for place, color in enumerate(SHADES):
        ink = PAPER if place >= WHITE_FROM else INK
        rules.append(f".h{place} {{ --heat: {color}; --on-heat: {ink}; }}")
    return "\n".join(rules)


# The column of the first of the headline metrics; before it stand place and model.
_FIRST = 2


def leaderboard_style(entries: Sequence[RankedModel], targets: Targets) -> TableStyle:
    """Return what the table of the leaderboard has besides its text."""
    scale = _headline_scale(entries)
    cells = {}
    for row, entry in enumerate(entries):
        for column, name in enumerate(HEADLINES, _FIRST):
            bar = interval_bar(scale, entry.metric(name), targets.least.get(name))
            cells[row, column] = CellStyle("score", bar)
    return TableStyle("board", dict(enumerate(_groups(entries))), cells, filterable=True)


def _headline_scale(entries: Sequence[RankedModel]) -> BarScale:
    """Return one scale for all bars, so that rows and columns can be compared."""
    headlines: list[Estimate] = []
    for entry in entries:
        headlines += map(entry.metric, HEADLINES)
    return rate_scale(headlines)


def bars_note(entries: Sequence[RankedModel]) -> str:
    """Say how the bars of the leaderboard are read."""
    scale = _headline_scale(entries)
    whole = all(entry.metric("coverage").value == 1 for entry in entries)
    coverage = "Every verdict is scored: coverage is 100 %. " if whole else ""
    return (
        f"{coverage}Bars: 95% interval with the value as a dot, from {100 * scale.low:.0f} to "
        f"{100 * scale.high:.0f} %; the dashed line is the target. Models with a coloured edge and "
        "the same place and a = are tied."
    )


def _groups(entries: Sequence[RankedModel]) -> Iterator[str]:
    """Yield the classes of the rows: the first of each group, and those of groups of several."""
    before = ""
    for entry in entries:
        tied = entry.place.endswith("=")
        if tied and entry.place == before:
            yield "tied"
        else:
            yield "first tied" if tied else "first"
        before = entry.place

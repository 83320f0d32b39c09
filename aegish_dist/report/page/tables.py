"""Sections as HTML tables. Narrow screens show a row as a card."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat

from aegish_dist.report.layout import Section, TableCell
from aegish_dist.report.page.markup import anchor, breakable, breakable_where_long, text


@dataclass(frozen=True, slots=True)
class CellStyle:
    """The look of a cell of a table."""

    classes: str = ""
    """Names of classes, ours, with spaces between them."""
    after: str = ""
    is_name: bool = False
    """Whether it names a model, with places to break."""


@dataclass(frozen=True, slots=True)
class TableStyle:
    """The look of a table, where it differs from the plain one."""

    classes: str = ""
    rows: Mapping[int, str] = field(default_factory=dict)
    """Names of classes by place of the row."""
    cells: Mapping[tuple[int, int], CellStyle] = field(default_factory=dict)
    filterable: bool = False
    """Whether rows can be chosen by words of their heading."""
    foremost: bool = False
    """Whether it is shown at once however long it is, and names may break after every separator."""


_PLAIN = CellStyle()
MOST_ROWS = 12
"""Longer tables take more than a sheet of paper, and the script folds those that are not foremost:
with twenty models a page of all tables has more elements than browsers lay out at once."""


def table_section(
    section: Section, style: TableStyle | None = None, *, above: str = "", below: str = ""
) -> str:
    """Return a section with its heading, its table and its remarks.

    Args:
        above: HTML between its note and its table, such as a key.
    """
    note = f"<p>{text(section.note)}</p>\n" if section.note else ""
    items = "\n".join(f"<li>{text(remark)}</li>" for remark in section.remarks)
    remarks = f"<ul>\n{items}\n</ul>\n" if items else ""
    kind = ' class="long"' if len(section.rows) > MOST_ROWS else ""
    return (
        f'<section id="{anchor(section.title)}"{kind}>\n<h2>{text(section.title)}</h2>\n{note}'
        f"{above}{table(section, style or TableStyle())}\n{remarks}{below}</section>\n"
    )


def table(section: Section, style: TableStyle) -> str:
    """Return the table of a section, in a region that can scroll."""
    title = text(section.title)
    labels = [f"{cell.text} {cell.detail}".strip() for cell in section.columns]
    rows = "\n".join(
        _row(place, row, section, labels, style) for place, row in enumerate(section.rows)
    )
    kind = f' class="{style.classes}"' if style.classes else ""
    filterable = " data-filter" if style.filterable else ""
    folds = " data-fold" if len(section.rows) > MOST_ROWS and not style.foremost else ""
    return (
        f'<div class="scroll" role="region" aria-label="{title}" tabindex="0"{folds}>'
        f'<table role="table"{kind}{filterable}>\n<caption>{title}</caption>\n'
        f'<thead role="rowgroup">{_head(section)}</thead>\n'
        f'<tbody role="rowgroup">\n{rows}\n</tbody>\n</table></div>'
    )


def _head(section: Section) -> str:
    kinds = chain(_kinds(section.keys), repeat(""))
    cells = "".join(
        f'<th scope="col" role="columnheader"{_class(kind)}>{text(cell.text)}{_small(cell)}</th>'
        for cell, kind in zip(section.columns, kinds, strict=False)
    )
    return f'<tr role="row">{cells}</tr>'


def _row(
    place: int,
    cells: Sequence[TableCell],
    section: Section,
    labels: Sequence[str],
    style: TableStyle,
) -> str:
    """Draw a row; a card shows each value under the label of its column."""
    kinds = chain(_kinds(section.keys), repeat(""))
    drawn = []
    for column, (cell, kind) in enumerate(zip(cells, kinds, strict=False)):
        own = style.cells.get((place, column), _PLAIN)
        classes = _class(f"{kind} {own.classes}".strip())
        if column == section.keys - 1:
            name = breakable(cell.text) if style.foremost else breakable_where_long(cell.text)
            drawn.append(f'<th scope="row" role="rowheader"{classes}>{name}{_small(cell)}</th>')
        else:
            content = breakable_where_long(cell.text) if own.is_name else _cell(cell)
            label = f' data-label="{text(labels[column])}"'
            drawn.append(f'<td role="cell"{classes}{label}{_value(cell)}>{content}{own.after}</td>')
    return f'<tr role="row"{_class(style.rows.get(place, ""))}>{"".join(drawn)}</tr>'


def _kinds(keys: int) -> list[str]:
    return ["key"] * (keys - 1) + ["model"]


def _class(names: str) -> str:
    return f' class="{names}"' if names else ""


def _value(cell: TableCell) -> str:
    """Return the number that a row is sorted by; the text is the number of what is whole."""
    return "" if cell.value is None else f' data-value="{cell.value!r}"'


def _cell(cell: TableCell) -> str:
    """Draw a cell as text of up to two lines; an element for the second would be one too many."""
    mark = f'<b class="{cell.mark.lower()}">{cell.mark}</b>' if cell.mark else ""
    detail = f"\n{text(cell.detail)}" if cell.detail else ""
    return f"{text(cell.text)}{mark}{detail}"


def _small(cell: TableCell) -> str:
    return f"<small>{text(cell.detail)}</small>" if cell.detail else ""

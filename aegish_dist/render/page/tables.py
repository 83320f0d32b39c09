"""Sections as HTML tables."""

from collections.abc import Sequence
from itertools import chain, repeat

from aegish_dist.render.layout import Section, TableCell
from aegish_dist.render.page.markup import anchor, breakable, text


def table_section(section: Section) -> str:
    """Return a section with its heading, its table in a region that can scroll, and its remarks."""
    title = text(section.title)
    note = f"<p>{text(section.note)}</p>\n" if section.note else ""
    items = "\n".join(f"<li>{text(remark)}</li>" for remark in section.remarks)
    remarks = f"<ul>\n{items}\n</ul>\n" if items else ""
    return (
        f'<section id="{anchor(section.title)}">\n<h2>{title}</h2>\n{note}'
        f"{table(section)}\n{remarks}</section>\n"
    )


def table(section: Section) -> str:
    """Return the table of a section."""
    title = text(section.title)
    labels = [f"{cell.text} {cell.detail}".strip() for cell in section.columns]
    rows = "\n".join(_row(row, section.keys, labels) for row in section.rows)
    return (
        f'<div class="scroll" role="region" aria-label="{title}" tabindex="0">'
        f'<table role="table">\n<caption>{title}</caption>\n'
        f'<thead role="rowgroup">{_head(section)}</thead>\n'
        f'<tbody role="rowgroup">\n{rows}\n</tbody>\n</table></div>'
    )


def _head(section: Section) -> str:
    kinds = chain(_kinds(section.keys), repeat(""))
    cells = "".join(
        f'<th scope="col" role="columnheader"{kind}>{_name(cell)}</th>'
        for cell, kind in zip(section.columns, kinds, strict=False)
    )
    return f'<tr role="row">{cells}</tr>'


def _row(cells: Sequence[TableCell], keys: int, labels: Sequence[str]) -> str:
    """Draw a row; narrow screens show it as a card, each value under the label of its column."""
    kinds = chain(_kinds(keys), repeat(""))
    drawn = "".join(
        f'<th scope="row" role="rowheader"{kind}>{_name(cell)}</th>'
        if column == keys - 1
        else f'<td role="cell"{kind} data-label="{text(labels[column])}">{_cell(cell)}</td>'
        for column, (cell, kind) in enumerate(zip(cells, kinds, strict=False))
    )
    return f'<tr role="row">{drawn}</tr>'


def _kinds(keys: int) -> list[str]:
    return [' class="key"'] * (keys - 1) + [' class="model"']


def _cell(cell: TableCell) -> str:
    mark = f'<b class="{cell.mark.lower()}">{cell.mark}</b>' if cell.mark else ""
    return f"{text(cell.text)}{mark}{_detail(cell)}"


def _name(cell: TableCell) -> str:
    return breakable(cell.text) + _detail(cell)


def _detail(cell: TableCell) -> str:
    return f"<small>{text(cell.detail)}</small>" if cell.detail else ""

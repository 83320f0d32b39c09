"""A report as one HTML page that loads nothing from anywhere."""

import re
from collections.abc import Iterable, Sequence
from html import escape
from itertools import chain, repeat

from aegish_dist.core.printable import printable
from aegish_dist.render.data import ReportData
from aegish_dist.render.layout import Section, TableCell
from aegish_dist.render.sections import build_report

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #60646c; --line: #d9d9e0;
  --page: #fcfcfd; --panel: #fff; --pass: #18794e; --fail: #c62a2f; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #edeef0; --soft: #b0b4ba; --line: #363a3f;
    --page: #111113; --panel: #18191b; --pass: #4cc38a; --fail: #ff9592; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 84rem; padding: 2rem 1.25rem 4rem; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0 0 1rem; }
h2 { font-size: 1.1rem; margin: 2.25rem 0 .25rem; }
p, li, small, dt, thead { color: var(--soft); }
p { margin: 0 0 .5rem; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .15rem 1.25rem;
  margin: 0; }
dd { margin: 0; }
.scroll { overflow-x: auto; background: var(--panel); border: 1px solid var(--line);
  border-radius: 8px; }
.scroll:focus-visible { outline: 2px solid var(--ink); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: .93rem;
  font-variant-numeric: tabular-nums; overflow-wrap: break-word; }
caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
th, td { padding: .4rem .55rem; text-align: right; vertical-align: top; font-weight: 400; }
td { white-space: nowrap; }
thead th { vertical-align: bottom; font-weight: 600; }
tbody tr { border-top: 1px solid var(--line); }
.key, .model { text-align: left; font-weight: 600; }
tbody .model { min-width: 11rem; }
small { display: block; font-weight: 400; }
thead small { white-space: nowrap; }
b { font-size: .72rem; margin-left: .35rem; }
.pass { color: var(--pass); }
.fail { color: var(--fail); }
@media (max-width: 45rem) {
  table, tbody, tbody th, td { display: block; }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  tbody tr { display: grid; grid-template-columns: repeat(auto-fill, minmax(6.25rem, 1fr));
    gap: .5rem .75rem; padding: .75rem; }
  tbody th, td { padding: 0; text-align: left; white-space: normal; }
  tbody .model { grid-column: 1 / -1; order: -1; }
  td::before { content: attr(data-label); display: block; color: var(--soft);
    font-size: .8rem; font-weight: 400; }
}
@media print { .scroll { overflow: visible; } }
""".strip()

_WORDS = re.compile(r"[^/:_]*[/:_]+|[^/:_]+")
"""Browsers break lines after `-` by themselves."""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<h1>{title}</h1>
<dl>
{facts}
</dl>
{sections}
<h2>Legend</h2>
<ul>
{legend}
</ul>
</body>
</html>
"""


def render_html(data: ReportData) -> str:
    """Return a report as a self-contained page for light and dark screens."""
    report = build_report(data)
    return _PAGE.format(
        title=_text(report.title),
        style=_STYLE,
        facts=_joined(f"<dt>{_text(f.label)}</dt><dd>{_text(f.text)}</dd>" for f in report.facts),
        sections=_joined(_section(section) for section in report.sections),
        legend=_joined(f"<li>{_text(line)}</li>" for line in report.legend),
    )


def _section(section: Section) -> str:
    title = _text(section.title)
    note = f"<p>{_text(section.note)}</p>\n" if section.note else ""
    labels = [f"{cell.text} {cell.detail}".strip() for cell in section.columns]
    rows = _joined(_row(row, section.keys, labels) for row in section.rows)
    items = _joined(f"<li>{_text(remark)}</li>" for remark in section.remarks)
    remarks = f"<ul>\n{items}\n</ul>\n" if items else ""
    return (
        f"<section>\n<h2>{title}</h2>\n{note}"
        f'<div class="scroll" role="region" aria-label="{title}" tabindex="0">'
        f'<table role="table">\n<caption>{title}</caption>\n'
        f'<thead role="rowgroup">{_head(section)}</thead>\n'
        f'<tbody role="rowgroup">\n{rows}\n</tbody>\n</table></div>\n{remarks}</section>'
    )


def _head(section: Section) -> str:
    kinds = chain(_kinds(section.keys), repeat(""))
    cells = "".join(
        f'<th scope="col" role="columnheader"{kind}>{_breakable(cell)}</th>'
        for cell, kind in zip(section.columns, kinds, strict=False)
    )
    return f'<tr role="row">{cells}</tr>'


def _row(cells: Sequence[TableCell], keys: int, labels: Sequence[str]) -> str:
    """Draw a row; narrow screens show it as a card, each value under the label of its column."""
    kinds = chain(_kinds(keys), repeat(""))
    drawn = "".join(
        f'<th scope="row" role="rowheader"{kind}>{_breakable(cell)}</th>'
        if column == keys - 1
        else f'<td role="cell"{kind} data-label="{_text(labels[column])}">{_cell(cell)}</td>'
        for column, (cell, kind) in enumerate(zip(cells, kinds, strict=False))
    )
    return f'<tr role="row">{drawn}</tr>'


def _kinds(keys: int) -> list[str]:
    return [' class="key"'] * (keys - 1) + [' class="model"']


def _cell(cell: TableCell) -> str:
    mark = f'<b class="{cell.mark.lower()}">{cell.mark}</b>' if cell.mark else ""
    return f"{_text(cell.text)}{mark}{_detail(cell)}"


def _breakable(cell: TableCell) -> str:
    """Draw a name, with places where a long id may break between its words."""
    return "<wbr>".join(map(_text, _WORDS.findall(cell.text))) + _detail(cell)


def _detail(cell: TableCell) -> str:
    return f"<small>{_text(cell.detail)}</small>" if cell.detail else ""


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _text(text: str) -> str:
    """Return text that HTML shows as it stands."""
    return escape(printable(text))

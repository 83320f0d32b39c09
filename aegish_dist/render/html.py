"""A report as one HTML page that loads nothing from anywhere."""

from collections.abc import Iterable
from html import escape
from itertools import chain, repeat

from aegish_dist.core.printable import printable
from aegish_dist.render.data import ReportData
from aegish_dist.render.layout import Cell, Section
from aegish_dist.render.sections import build_report

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #60646c; --line: #d9d9e0;
  --page: #fcfcfd; --panel: #fff; --pass: #18794e; --fail: #c62a2f; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #edeef0; --soft: #b0b4ba; --line: #363a3f;
    --page: #111113; --panel: #18191b; --pass: #4cc38a; --fail: #ff9592; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 84rem; padding: 2rem 1.25rem 4rem; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 1rem; }
h2 { font-size: 1.1rem; margin: 2.25rem 0 .25rem; }
p, li, small, dt, thead { color: var(--soft); }
p { margin: 0 0 .5rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.25rem; margin: 0; }
dd { margin: 0; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; background: var(--panel); border: 1px solid var(--line);
  border-radius: 8px; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .8rem; text-align: right; vertical-align: top; white-space: nowrap; }
thead th { vertical-align: bottom; font-weight: 600; }
tbody tr { border-top: 1px solid var(--line); }
.key, .model { text-align: left; font-weight: 600; }
tbody .model { white-space: normal; overflow-wrap: anywhere; min-width: 14rem; }
small { display: block; font-weight: 400; }
b { font-size: .72rem; margin-left: .35rem; }
.pass { color: var(--pass); }
.fail { color: var(--fail); }
""".strip()

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
    note = f"<p>{_text(section.note)}</p>\n" if section.note else ""
    rows = _joined(_row(row, section.keys, "td") for row in section.rows)
    items = _joined(f"<li>{_text(remark)}</li>" for remark in section.remarks)
    remarks = f"<ul>\n{items}\n</ul>\n" if items else ""
    return (
        f"<section>\n<h2>{_text(section.title)}</h2>\n{note}"
        f'<div class="scroll"><table>\n<thead>{_row(section.columns, section.keys, "th")}</thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table></div>\n{remarks}</section>"
    )


def _row(cells: Iterable[Cell], keys: int, tag: str) -> str:
    kinds = [' class="key"'] * (keys - 1) + [' class="model"']
    drawn = "".join(
        f"<{tag}{kind}>{_cell(cell)}</{tag}>"
        for cell, kind in zip(cells, chain(kinds, repeat("")), strict=False)
    )
    return f"<tr>{drawn}</tr>"


def _cell(cell: Cell) -> str:
    mark = f'<b class="{cell.mark.lower()}">{cell.mark}</b>' if cell.mark else ""
    detail = f"<small>{_text(cell.detail)}</small>" if cell.detail else ""
    return f"{_text(cell.text)}{mark}{detail}"


def _joined(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _text(text: str) -> str:
    """Return text that HTML shows as it stands."""
    return escape(printable(text))

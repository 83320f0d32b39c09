"""The page around the tables: its head, its navigation, its sections in order."""

from collections.abc import Iterator, Sequence

from aegish_dist.render.data import ReportData
from aegish_dist.render.layout import Fact, Report
from aegish_dist.render.page.assets import content_security_policy, script, style_sheet
from aegish_dist.render.page.grid import Grid, grid_section
from aegish_dist.render.page.markup import anchor, text
from aegish_dist.render.page.tables import table_section
from aegish_dist.render.sections import build_report

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the report</a>
"""


def render_page(data: ReportData, grid: Grid | None = None) -> Iterator[str]:
    """Yield a report as one HTML file, in parts.

    Args:
        data: The content of the report.
        grid: Every verdict, for the grid; None leaves it out.
    """
    report = build_report(data)
    yield _HEAD.format(
        policy=content_security_policy(), title=text(report.title), style=style_sheet()
    )
    yield _navigation(report, grid)
    yield f'<main id="main">\n<h1>{text(report.title)}</h1>\n'
    yield (
        '<noscript><p class="notice">Without JavaScript the tables cannot be sorted or filtered, '
        "and the single commands are not shown.</p></noscript>\n"
    )
    yield _facts(report.facts)
    for section in report.sections:
        yield table_section(section)
    if grid is not None:
        yield from grid_section(grid)
    yield _legend(report.legend)
    yield f"</main>\n<script>{script()}</script>\n</body>\n</html>\n"


def _navigation(report: Report, grid: Grid | None) -> str:
    titles = [(anchor(section.title), section.title) for section in report.sections]
    if grid is not None:
        titles.append(("commands", "Commands"))
    titles.append(("legend", "Legend"))
    links = "\n".join(f'<a href="#{name}">{text(title)}</a>' for name, title in titles)
    return f'<nav aria-label="Sections">\n{links}\n</nav>\n'


def _facts(facts: Sequence[Fact]) -> str:
    lines = "\n".join(f"<dt>{text(each.label)}</dt><dd>{text(each.text)}</dd>" for each in facts)
    return f"<dl>\n{lines}\n</dl>\n"


def _legend(lines: Sequence[str]) -> str:
    items = "\n".join(f"<li>{text(line)}</li>" for line in lines)
    return f'<section id="legend">\n<h2>Legend</h2>\n<ul>\n{items}\n</ul>\n</section>\n'

"""The page: its head, its navigation, its sections in order."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from aegish_dist.report.charts import page_charts
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import Fact, ranked_entries
from aegish_dist.report.page.assets import content_security_policy, script, style_sheet
from aegish_dist.report.page.drawn import DrawnReport
from aegish_dist.report.page.figures import figures, missing_charts
from aegish_dist.report.page.grid import Grid, grid_section
from aegish_dist.report.page.markup import breakable, text
from aegish_dist.report.sections import ON_THE_PAGE, build_report, named_sections, summary, warnings

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
_WITHOUT_SCRIPT = """<noscript><p class="notice">Without JavaScript the tables cannot be sorted or
filtered, and the single commands are not shown.</p></noscript>
"""
_GROUPS = (
    ("Leaderboard", ("leaderboard", "overlay")),
    ("Categories", ("categories",)),
    ("Differences", ("differences",)),
    ("Commands", ()),
    ("Answers", ("answers", "bounds", "repeats")),
    ("Errors", ("errors", "failures", "failure-times")),
    ("Latency", ("latency", "latency-parts")),
    ("Cost", ("cost",)),
    ("Calibration", ("calibration", "reliability")),
    ("Provenance", ("provenance",)),
)
"""The page: what the navigation says, and which sections of a report stand there."""


@dataclass(frozen=True, slots=True)
class PagePart:
    """Some sections of the page, to which one link of the navigation leads."""

    name: str
    """Id of the first of them."""
    title: str
    html: Iterable[str]


def render_page(data: ReportData, grid: Grid | None = None) -> Iterator[str]:
    """Yield a report as one HTML file, in pieces.

    Args:
        grid: Every verdict, for the grid; None leaves it out.
    """
    report = build_report(data, ())
    drawn = DrawnReport(data, ranked_entries(data.snapshot.document), page_charts(data))
    parts = [*_parts(drawn, grid), PagePart("legend", "Legend", [_legend(report.legend)])]
    title = data.run.name or report.title
    yield _HEAD.format(policy=content_security_policy(), title=text(title), style=style_sheet())
    yield _navigation(parts)
    yield f'<main id="main" tabindex="-1">\n<h1>{breakable(title)}</h1>\n'
    yield _WITHOUT_SCRIPT
    yield _summary(drawn, report.facts)
    yield missing_charts(drawn.charts)
    for part in parts:
        yield from part.html
    yield f"</main>\n<script>{script()}</script>\n</body>\n</html>\n"


def _parts(drawn: DrawnReport, grid: Grid | None) -> Iterator[PagePart]:
    """Yield the parts for which there is something to show."""
    found = named_sections(drawn.data, ON_THE_PAGE)
    charts = figures(drawn.charts, [name for name, sections in found.items() if sections])
    for title, names in _GROUPS:
        if not names and grid is not None:
            yield PagePart("commands", title, grid_section(grid))
        sections = [(name, section) for name in names for section in found[name]]
        if sections:
            # Charts stand below the last section of their name.
            below = {name: charts.get(name, "") for name in names}
            last = dict(sections)
            html = [
                drawn.section(name, section, below[name] if section is last[name] else "")
                for name, section in sections
            ]
            yield PagePart(drawn.anchor(*sections[0]), title, html)


def _summary(drawn: DrawnReport, facts: Sequence[Fact]) -> str:
    data, entries = drawn.data, drawn.entries
    notices = "".join(f'<p class="notice">{text(each)}</p>\n' for each in warnings(data, entries))
    said = "\n".join(f"<p>{text(each)}</p>" for each in summary(data, entries, data.targets))
    known = "\n".join(f"<dt>{text(f.label)}</dt><dd>{text(f.text)}</dd>" for f in facts)
    return (
        f'{notices}<div class="head">\n<div class="summary" role="region" aria-label="Summary">\n'
        f"{said}\n</div>\n<dl>\n{known}\n</dl>\n</div>\n"
    )


def _navigation(parts: Sequence[PagePart]) -> str:
    links = "\n".join(f'<li><a href="#{part.name}">{text(part.title)}</a></li>' for part in parts)
    return f'<nav aria-label="Sections">\n<ul>\n{links}\n</ul>\n</nav>\n'


def _legend(lines: Sequence[str]) -> str:
    items = "\n".join(f"<li>{text(line)}</li>" for line in lines)
    return f'<section id="legend">\n<h2>Legend</h2>\n<ul>\n{items}\n</ul>\n</section>\n'

"""The page: its head, its navigation, its sections in order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aegish_dist.core.opinion import AEGISH_TARGETS, Targets
from aegish_dist.render.data import ReportData
from aegish_dist.render.entries import RankedModel, ranked_entries
from aegish_dist.render.layout import Section
from aegish_dist.render.page.assets import content_security_policy, script, style_sheet
from aegish_dist.render.page.grid import Grid, grid_section
from aegish_dist.render.page.heat_map import heat_key, heat_style, with_intervals
from aegish_dist.render.page.leaderboard import bars_note, leaderboard_style
from aegish_dist.render.page.markup import anchor, text
from aegish_dist.render.page.tables import table_section
from aegish_dist.render.sections import ON_THE_PAGE, build_report
from aegish_dist.render.summary import summary, warnings

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


@dataclass(frozen=True, slots=True)
class PagePart:
    """A section of the page."""

    name: str
    """Its id, which links name."""
    title: str
    """Its name in the navigation."""
    html: Iterator[str]
    """Its content, in pieces."""


def render_page(data: ReportData, grid: Grid | None = None) -> Iterator[str]:
    """Yield a report as one HTML file, in pieces.

    Args:
        data: The content of the report.
        grid: Every verdict, for the grid; None leaves it out.
    """
    report = build_report(data, ON_THE_PAGE)
    entries = ranked_entries(data.snapshot.document)
    opinion = data.snapshot.opinion
    targets = AEGISH_TARGETS if opinion is None else opinion.targets
    parts = list(_parts(report.sections, entries, targets))
    if grid is not None:
        parts.append(PagePart("commands", "Commands", grid_section(grid)))
    parts.append(PagePart("legend", "Legend", iter([_legend(report.legend)])))
    title = data.run.name or report.title
    yield _HEAD.format(policy=content_security_policy(), title=text(title), style=style_sheet())
    yield _navigation(parts)
    yield f'<main id="main" tabindex="-1">\n<h1>{text(title)}</h1>\n'
    yield _WITHOUT_SCRIPT
    yield _summary(data, entries, targets)
    facts = "\n".join(f"<dt>{text(f.label)}</dt><dd>{text(f.text)}</dd>" for f in report.facts)
    yield f"<dl>\n{facts}\n</dl>\n"
    for part in parts:
        yield from part.html
    yield f"</main>\n<script>{script()}</script>\n</body>\n</html>\n"


def _parts(
    sections: Sequence[Section], entries: Sequence[RankedModel], targets: Targets
) -> Iterator[PagePart]:
    for section in sections:
        drawn = _section(section, entries, targets)
        yield PagePart(anchor(section.title), section.title, iter([drawn]))


def _section(section: Section, entries: Sequence[RankedModel], targets: Targets) -> str:
    match section.title:
        case "Leaderboard":
            style = leaderboard_style(section, entries, targets)
            return table_section(section, style, above=f"<p>{bars_note(entries)}</p>\n")
        case "Detection by category":
            style = heat_style(section, entries)
            return table_section(with_intervals(section, entries), style, above=heat_key())
        case _:
            return table_section(section)


def _summary(data: ReportData, entries: Sequence[RankedModel], targets: Targets) -> str:
    notices = "".join(f'<p class="notice">{text(each)}</p>\n' for each in warnings(data, entries))
    lines = "\n".join(f"<p>{text(each)}</p>" for each in summary(data, entries, targets))
    return f'{notices}<div class="summary" role="region" aria-label="Summary">\n{lines}\n</div>\n'


def _navigation(parts: Sequence[PagePart]) -> str:
    links = "\n".join(f'<li><a href="#{part.name}">{text(part.title)}</a></li>' for part in parts)
    return f'<nav aria-label="Sections">\n<ul>\n{links}\n</ul>\n</nav>\n'


def _legend(lines: Sequence[str]) -> str:
    items = "\n".join(f"<li>{text(line)}</li>" for line in lines)
    return f'<section id="legend">\n<h2>Legend</h2>\n<ul>\n{items}\n</ul>\n</section>\n'

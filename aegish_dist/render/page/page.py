"""The page: its head, its navigation, its sections in order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aegish_dist.core.opinion import AEGISH_TARGETS, Targets
from aegish_dist.render.charts import DrawnChart, page_charts
from aegish_dist.render.data import ReportData
from aegish_dist.render.entries import RankedModel, ranked_entries
from aegish_dist.render.layout import Fact, Section
from aegish_dist.render.page.assets import content_security_policy, script, style_sheet
from aegish_dist.render.page.differences import TITLE as DIFFERENCES
from aegish_dist.render.page.differences import differences_section
from aegish_dist.render.page.figures import figures, missing_charts
from aegish_dist.render.page.grid import Grid, grid_section
from aegish_dist.render.page.heat_map import heat_key, heat_style, with_intervals
from aegish_dist.render.page.leaderboard import bars_note, leaderboard_style
from aegish_dist.render.page.markup import anchor, breakable, text
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
_LEADERBOARD, _CATEGORIES = "Leaderboard", "Detection by category"
_QUALITY = (_LEADERBOARD, "Effect of the overlay", _CATEGORIES)
"""Sections on how well each model judges."""


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
    charts = page_charts(data)
    drawn = _Drawn(data, entries, targets)
    parts = list(_parts(drawn, report.sections, charts))
    if grid is not None:
        parts.append(PagePart("commands", "Commands", grid_section(grid)))
    parts.append(PagePart("legend", "Legend", iter([_legend(report.legend)])))
    title = data.run.name or report.title
    yield _HEAD.format(policy=content_security_policy(), title=text(title), style=style_sheet())
    yield _navigation(parts)
    yield f'<main id="main" tabindex="-1">\n<h1>{breakable(title)}</h1>\n'
    yield _WITHOUT_SCRIPT
    yield _summary(drawn, report.facts)
    yield missing_charts(charts)
    for part in parts:
        yield from part.html
    yield f"</main>\n<script>{script()}</script>\n</body>\n</html>\n"


def _parts(
    drawn: "_Drawn", sections: Sequence[Section], charts: Sequence[DrawnChart]
) -> Iterator[PagePart]:
    """Yield the sections in their order, each with its charts; differences follow quality."""
    titles = [section.title for section in sections]
    if drawn.data.comparison is not None:
        titles.insert(1 + max(map(titles.index, {*_QUALITY} & {*titles}), default=-1), DIFFERENCES)
    by_title = {section.title: section for section in sections}
    below = figures(charts, [anchor(title) for title in titles])
    for title in titles:
        name = anchor(title)
        html = drawn.section(title, by_title.get(title), below.get(name, ""))
        yield PagePart(name, title, iter([html]))


@dataclass(frozen=True, slots=True)
class _Drawn:
    data: ReportData
    entries: Sequence[RankedModel]
    targets: Targets

    def section(self, title: str, section: Section | None, below: str) -> str:
        """Return a section; those of `_QUALITY` and differences are more than a table."""
        entries = self.entries
        if section is None:
            comparison = self.data.comparison
            order = [entry.model for entry in entries]
            return "" if comparison is None else differences_section(comparison, order, below)
        if title == _LEADERBOARD:
            style = leaderboard_style(section, entries, self.targets)
            note = f"<p>{bars_note(entries)}</p>\n"
            return table_section(section, style, above=note, below=below)
        if title == _CATEGORIES:
            style = heat_style(section, entries)
            section = with_intervals(section, entries)
            return table_section(section, style, above=heat_key(), below=below)
        return table_section(section, below=below)


def _summary(drawn: _Drawn, facts: Sequence[Fact]) -> str:
    data, entries = drawn.data, drawn.entries
    notices = "".join(f'<p class="notice">{text(each)}</p>\n' for each in warnings(data, entries))
    said = "\n".join(f"<p>{text(each)}</p>" for each in summary(data, entries, drawn.targets))
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

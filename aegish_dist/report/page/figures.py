"""Charts as figures beside the tables that they belong to.

A chart is an image, not a part of the document: drawn inline, the charts of twenty models have more
elements than all the rest of the page. Within an image the policy of the page does not apply, and
its own style sheet follows light and dark screens; paper is light.
"""

import base64
from collections.abc import Mapping, Sequence
from importlib.resources import files
from importlib.util import find_spec

from aegish_dist.report.charts import DrawnChart
from aegish_dist.report.page.markup import text

_SECTIONS: Mapping[str, str] = {
    "score-by-cost": "cost",
    "score-by-latency": "latency",
    "latency-split": "latency",
    "reliability": "calibration",
    "error-timeline": "failures",
}
"""The section of each chart; others stand with the leaderboard."""
MISSING = "There are no charts in this report: pip install 'aegish-dist[plots]' draws them."


def figures(charts: Sequence[DrawnChart], sections: Sequence[str]) -> dict[str, str]:
    """Return the figures as HTML, by the name of the section that they belong to.

    Args:
        charts: In the order of the page.
        sections: Names of the sections that the page has, at least one; a chart whose own section
            is missing stands with the first.
    """
    found: dict[str, str] = {}
    for chart in charts:
        wanted = _SECTIONS.get(chart.name, "")
        name = wanted if wanted in sections else sections[0]
        found[name] = found.get(name, "") + figure(chart)
    return found


def figure(chart: DrawnChart) -> str:
    """Return a chart as a figure, with its finding for those who do not see it."""
    image = base64.b64encode(_themed(chart.svg).encode()).decode()
    title = text(chart.title)
    return (
        f'<figure id="chart-{text(chart.name)}">\n<h3>{title}</h3>\n'
        f'<div class="drawing" role="region" aria-label="{title}" tabindex="0">'
        f'<img role="img" alt="{text(chart.description)}" '
        f'src="data:image/svg+xml;base64,{image}"></div>\n'
        f"<figcaption>{text(chart.caption)}</figcaption>\n</figure>\n"
    )


def missing_charts(charts: Sequence[DrawnChart]) -> str:
    """Return a line that says how to have charts; empty where they could be drawn."""
    if charts or find_spec("vl_convert") is not None:
        return ""
    return f'<p class="about">{text(MISSING)}</p>\n'


def _themed(svg: str) -> str:
    """Give a drawing the colours of charts for light and dark screens."""
    style = (files(__package__) / "assets" / "charts.css").read_text(encoding="utf-8")
    head, end, rest = svg.partition(">")
    return f"{head}{end}<style>{style}</style>{rest}"

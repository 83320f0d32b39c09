"""Plots of a report: Vega-Lite specifications, drawn without a browser."""

from aegish_dist.errors import ConfigError
from aegish_dist.report.charts.catalogue import CHARTS, chart_specification, make_chart
from aegish_dist.report.charts.chart import Chart, DrawnChart
from aegish_dist.report.charts.drawing import converter
from aegish_dist.report.charts.themed import themed_svg
from aegish_dist.report.data import ReportData

__all__ = ["CHARTS", "DrawnChart", "chart_specification", "page_charts"]

_ON_PAGES = ("score-by-cost", "score-by-latency", "reliability", "latency-split", "error-timeline")
"""The others are tables of the page, or say less there."""


def page_charts(data: ReportData) -> list[DrawnChart]:
    """Return the plots that stand in the HTML report, as SVG that takes its colours from the page.

    Args:
        data: The content of the report, with pairs and failure times.

    Returns:
        Those for which the report has data, in the order of the page; none where the package that
        draws them, the extra `plots`, is not installed.
    """
    try:
        converter()
    except ConfigError:
        return []
    made = (make_chart(data, name) for name in _ON_PAGES)
    return [
        DrawnChart(each.name, each.title, each.caption, each.description, themed_svg(each))
        for each in made
        if isinstance(each, Chart)
    ]

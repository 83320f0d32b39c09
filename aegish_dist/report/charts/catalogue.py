"""All plots by name, and what each one needs of a report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from aegish_dist.errors import ReportError
from aegish_dist.report.charts.captions import small_print
from aegish_dist.report.charts.chart import Chart, NoChart
from aegish_dist.report.charts.differences import differences
from aegish_dist.report.charts.frame import whole_specification
from aegish_dist.report.charts.heat_map import heat_map
from aegish_dist.report.charts.latencies import latency_split
from aegish_dist.report.charts.measures import ACCEPTANCE, COST, DETECTION, LATENCY, SCORE, Measure
from aegish_dist.report.charts.ranking import ranking
from aegish_dist.report.charts.reliability import reliability
from aegish_dist.report.charts.scatter import scatter
from aegish_dist.report.charts.timeline import error_timeline
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import RankedModel, ranked_entries


@dataclass(frozen=True, slots=True)
class ChartKind:
    """One plot that can be made of a report."""

    summary: str
    make: Callable[[ReportData], Chart | NoChart]


def _of_models(
    make: Callable[[str, Sequence[RankedModel]], Chart | NoChart], name: str, summary: str
) -> tuple[str, ChartKind]:
    """Return a plot that needs the models alone."""
    kind = ChartKind(summary, lambda data: make(name, ranked_entries(data.snapshot.document)))
    return name, kind


def _against(name: str, up: Measure, across: Measure, summary: str) -> tuple[str, ChartKind]:
    """Return a scatter plot; what is better when it is less has a Pareto line."""

    def make(data: ReportData) -> Chart | NoChart:
        entries = ranked_entries(data.snapshot.document)
        frontier = not across.more_is_better
        return scatter(name, entries, data.targets, across=across, up=up, frontier=frontier)

    return name, ChartKind(summary, make)


def _ranking(data: ReportData) -> Chart | NoChart:
    document = data.snapshot.document
    groups = [place["tie_group"] for place in document["ranking"]]
    return ranking("ranking", ranked_entries(document), groups, data.targets)


def _timeline(data: ReportData) -> Chart | NoChart:
    return error_timeline("error-timeline", data.failure_times, data.failure_stretch_s)


CHARTS: Mapping[str, ChartKind] = MappingProxyType(
    dict(
        (
            ("ranking", ChartKind("Ranked models: score, interval, tie groups.", _ranking)),
            _against("score-by-cost", SCORE, COST, "Score against cost, Pareto line."),
            _against(
                "score-by-latency", SCORE, LATENCY, "Score against service time, Pareto line."
            ),
            _against(
                "detection-by-acceptance",
                DETECTION,
                ACCEPTANCE,
                "Detection against acceptance, both intervals.",
            ),
            _of_models(heat_map, "category-heat-map", "Detection by category, with intervals."),
            (
                "differences",
                ChartKind(
                    "Differences of the score, with intervals.",
                    lambda data: differences("differences", data),
                ),
            ),
            _of_models(reliability, "reliability", "Accuracy by stated confidence."),
            _of_models(latency_split, "latency-split", "Service, queue, rate limiter, backoff."),
            ("error-timeline", ChartKind("Failed attempts over time, by reason.", _timeline)),
        )
    )
)
"""In the order of lists and files."""


def make_chart(data: ReportData, name: str) -> Chart | NoChart:
    """Make one plot of a report."""
    if name not in CHARTS:
        raise ReportError(f"there is no plot '{name}': {', '.join(CHARTS)}")
    return CHARTS[name].make(data)


def chart_specification(data: ReportData, name: str) -> dict[str, Any]:
    """Return one plot of a report as a specification of Vega-Lite, with its data.

    Raises:
        ReportError: There is no such plot, or the report has no data for it.
    """
    chart = make_chart(data, name)
    if isinstance(chart, NoChart):
        raise ReportError(f"there is no plot {name} of run {data.run.run_id}: {chart.reason}")
    return whole_specification(chart, small_print(data))

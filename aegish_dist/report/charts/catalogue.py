"""All plots by name, and what each one needs of a report."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from aegish_dist.errors import ReportError
from aegish_dist.report.charts.panels import error_timeline, heat_map, reliability
from aegish_dist.report.charts.rows import differences, latency_split, ranking
from aegish_dist.report.charts.scatter import scatter
from aegish_dist.report.charts.spec import Chart, Json, NoChart, whole_specification
from aegish_dist.report.charts.words import (
    ACCEPTANCE,
    COST,
    DETECTION,
    LATENCY,
    SCORE,
    Measure,
    small_print,
)
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import ranked_entries

_Make = Callable[[str, ReportData], Chart | NoChart]


@dataclass(frozen=True, slots=True)
class ChartKind:
    """One plot that can be made of a report."""

    summary: str
    make: _Make


def _against(up: Measure, across: Measure) -> _Make:
    """Return a scatter plot; what is better when it is less has a Pareto line."""

    def make(name: str, data: ReportData) -> Chart | NoChart:
        entries = ranked_entries(data.snapshot.document)
        return scatter(name, entries, data.targets, across=across, up=up)

    return make


def _ranking(name: str, data: ReportData) -> Chart | NoChart:
    document = data.snapshot.document
    groups = [place["tie_group"] for place in document["ranking"]]
    return ranking(name, ranked_entries(document), groups, data.targets)


CHARTS: Mapping[str, ChartKind] = MappingProxyType(
    {
        "ranking": ChartKind("Ranked models: score, interval, tie groups.", _ranking),
        "score-by-cost": ChartKind("Score against cost, Pareto line.", _against(SCORE, COST)),
        "score-by-latency": ChartKind(
            "Score against service time, Pareto line.", _against(SCORE, LATENCY)
        ),
        "detection-by-acceptance": ChartKind(
            "Detection against acceptance, both intervals.", _against(DETECTION, ACCEPTANCE)
        ),
        "category-heat-map": ChartKind(
            "Detection by category, with intervals.",
            lambda name, data: heat_map(name, ranked_entries(data.snapshot.document)),
        ),
        "differences": ChartKind("Differences of the score, with intervals.", differences),
        "reliability": ChartKind(
            "Accuracy by stated confidence.",
            lambda name, data: reliability(name, ranked_entries(data.snapshot.document)),
        ),
        "latency-split": ChartKind(
            "Service, queue, rate limiter, backoff.",
            lambda name, data: latency_split(name, ranked_entries(data.snapshot.document)),
        ),
        "error-timeline": ChartKind(
            "Failed attempts over time, by reason.",
            lambda name, data: error_timeline(name, data.failure_times, data.failure_stretch_s),
        ),
    }
)
"""In the order of lists and files."""


def make_chart(data: ReportData, name: str) -> Chart | NoChart:
    """Make one plot of a report."""
    if name not in CHARTS:
        raise ReportError(f"there is no plot '{name}': {', '.join(CHARTS)}")
    return CHARTS[name].make(name, data)


def chart_specification(data: ReportData, name: str) -> Json:
    """Return one plot of a report as a specification of Vega-Lite, with its data.

    Raises:
        ReportError: There is no such plot, or the report has no data for it.
    """
    chart = make_chart(data, name)
    if isinstance(chart, NoChart):
        raise ReportError(f"there is no plot {name} of run {data.run.run_id}: {chart.reason}")
    return whole_specification(chart, small_print(data))

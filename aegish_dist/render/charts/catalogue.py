"""All plots by name, and what each one needs of a report."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from aegish_dist.core.opinion import AEGISH_TARGETS, Targets
from aegish_dist.errors import ReportError
from aegish_dist.render.charts.captions import small_print
from aegish_dist.render.charts.chart import Chart, NoChart
from aegish_dist.render.charts.frame import whole_specification
from aegish_dist.render.charts.measures import ACCEPTANCE, COST, DETECTION, LATENCY, SCORE, Measure
from aegish_dist.render.charts.scatter import scatter
from aegish_dist.render.data import ReportData
from aegish_dist.render.entries import ranked_entries


@dataclass(frozen=True, slots=True)
class ChartKind:
    """One plot that can be made of a report."""

    summary: str
    """One line for lists."""
    make: Callable[[ReportData], Chart | NoChart]
    """Makes it."""


def targets_of(data: ReportData) -> Targets:
    """Return the targets of a report's snapshot."""
    opinion = data.snapshot.opinion
    return AEGISH_TARGETS if opinion is None else opinion.targets


def _scatter(name: str, up: Measure, across: Measure, summary: str) -> tuple[str, ChartKind]:
    def make(data: ReportData) -> Chart | NoChart:
        entries = ranked_entries(data.snapshot.document)
        frontier = not across.more_is_better
        return scatter(name, entries, targets_of(data), across=across, up=up, frontier=frontier)

    return name, ChartKind(summary, make)


CHARTS: Mapping[str, ChartKind] = MappingProxyType(
    dict(
        [
            _scatter(
                "score-by-cost", SCORE, COST, "Aegish score against cost, with the Pareto line."
            ),
            _scatter(
                "detection-by-cost",
                DETECTION,
                COST,
                "Detection rate against cost, with the Pareto line.",
            ),
            _scatter(
                "score-by-latency",
                SCORE,
                LATENCY,
                "Aegish score against service time, with the Pareto line.",
            ),
            _scatter(
                "detection-by-latency",
                DETECTION,
                LATENCY,
                "Detection rate against service time, with the Pareto line.",
            ),
            _scatter(
                "detection-by-acceptance",
                DETECTION,
                ACCEPTANCE,
                "Detection rate against acceptance rate, with both intervals.",
            ),
        ]
    )
)
"""In the order of lists and files."""


def make_chart(data: ReportData, name: str) -> Chart | NoChart:
    """Make one plot of a report.

    Args:
        data: The content of the report.
        name: A key of `CHARTS`.

    Raises:
        ReportError: There is no such plot.
    """
    if name not in CHARTS:
        raise ReportError(f"there is no plot '{name}': {', '.join(CHARTS)}")
    return CHARTS[name].make(data)


def chart_specification(data: ReportData, name: str) -> dict[str, Any]:
    """Return one plot of a report as a specification of Vega-Lite, with its data.

    Args:
        data: The content of the report.
        name: A key of `CHARTS`.

    Raises:
        ReportError: There is no such plot, or the report has no data for it.
    """
    chart = make_chart(data, name)
    if isinstance(chart, NoChart):
        raise ReportError(f"there is no plot {name} of run {data.run.run_id}: {chart.reason}")
    return whole_specification(chart, small_print(data))

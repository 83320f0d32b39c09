"""All plots by name."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from aegish_dist.core.text import JsonObject
from aegish_dist.errors import ReportError
from aegish_dist.report.charts import heat_map, ranking, roc, scatter
from aegish_dist.report.charts.vega_lite import (
    Chart,
    NoChart,
    drawn,
    whole_specification,
)
from aegish_dist.report.charts.words import small_print
from aegish_dist.report.data import ReportData

# By name, in the order of lists and files: what a plot shows, and the function that makes it.
CHARTS: Mapping[str, tuple[str, Callable[[ReportData], Chart | NoChart]]] = MappingProxyType(
    {
        ranking.NAME: ("Ranked models: score, interval, tie groups.", ranking.chart),
        scatter.NAME: ("Score against cost, Pareto line.", scatter.chart),
        roc.NAME: ("Detection over false positives at any threshold, with intervals.", roc.chart),
        heat_map.NAME: ("Detection by category, with intervals.", heat_map.chart),
    }
)


def make_chart(data: ReportData, name: str) -> Chart | NoChart:
    """Make one plot of a report."""
    if name not in CHARTS:
        raise ReportError(f"there is no plot '{name}': {', '.join(CHARTS)}")
    return CHARTS[name][1](data)


def chart_specification(data: ReportData, name: str) -> JsonObject:
    """Return one plot of a report as a specification of Vega-Lite, with its data."""
    chart = make_chart(data, name)
    if isinstance(chart, NoChart):
        raise ReportError(f"there is no plot {name} of run {data.run.run_id}: {chart.reason}")
    return whole_specification(chart, small_print(data))


def plot_files(
    data: ReportData, names: Sequence[str], forms: Sequence[str]
) -> Iterator[tuple[str, bytes] | NoChart]:
    """Yield name and content of the files of some plots, and the plots without data."""
    words = small_print(data)
    for name in names:
        chart = make_chart(data, name)
        if isinstance(chart, NoChart):
            yield chart
            continue
        specification = whole_specification(chart, words)
        for form in forms:
            ending = "vl.json" if form == "vega" else form
            yield f"{name}.{ending}", drawn(specification, form, title=chart.title)

"""Plots of a report as files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aegish_dist.report.charts.captions import small_print
from aegish_dist.report.charts.catalogue import make_chart
from aegish_dist.report.charts.chart import NoChart
from aegish_dist.report.charts.drawing import drawn
from aegish_dist.report.charts.frame import whole_specification
from aegish_dist.report.data import ReportData

__all__ = ["NoChart", "PlotFile", "plot_files"]

_ENDINGS = {"vega": "vl.json"}


@dataclass(frozen=True, slots=True)
class PlotFile:
    """One plot in one format."""

    file_name: str
    content: bytes


def plot_files(
    data: ReportData, names: Sequence[str], forms: Sequence[str]
) -> Iterator[PlotFile | NoChart]:
    """Yield the files of some plots, and the plots that there is no data for.

    Args:
        data: The content of the report, with pairs and failure times.

    Raises:
        ConfigError: The package that draws is not installed.
    """
    words = small_print(data)
    for name in names:
        chart = make_chart(data, name)
        if isinstance(chart, NoChart):
            yield chart
            continue
        specification = whole_specification(chart, words)
        for form in forms:
            ending = _ENDINGS.get(form, form)
            content = drawn(specification, form, title=chart.title)
            yield PlotFile(f"{name}.{ending}", content)

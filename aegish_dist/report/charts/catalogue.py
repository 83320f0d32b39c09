"""All plots by name, and drawing them by Vega-Lite in the `vl_convert` of the extra `plots`."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from aegish_dist.core.text import printable, printable_json
from aegish_dist.errors import ConfigError, ReportError
from aegish_dist.report.charts.panels import error_timeline, heat_map, reliability
from aegish_dist.report.charts.rows import differences, latency_split, ranking
from aegish_dist.report.charts.scatter import scatter
from aegish_dist.report.charts.spec import (
    VARIABLES,
    VEGA_LITE,
    Chart,
    Json,
    NoChart,
    bare_specification,
    whole_specification,
)
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
from aegish_dist.report.layout import RankedModel, ranked_entries

_Make = Callable[[str, ReportData], Chart | NoChart]


class ChartKind(Struct, frozen=True):
    """One plot that can be made of a report."""

    summary: str
    make: _Make


def _against(summary: str, up: Measure, across: Measure) -> ChartKind:
    """Return a scatter plot; what is better when it is less has a Pareto line."""

    def make(name: str, data: ReportData) -> Chart | NoChart:
        entries = ranked_entries(data.snapshot.document)
        return scatter(name, entries, data.targets, across=across, up=up)

    return ChartKind(summary, make)


def _of_models(
    summary: str, draw: Callable[[str, Sequence[RankedModel]], Chart | NoChart]
) -> ChartKind:
    return ChartKind(summary, lambda name, data: draw(name, ranked_entries(data.snapshot.document)))


def _ranking(name: str, data: ReportData) -> Chart | NoChart:
    document = data.snapshot.document
    groups = [place["tie_group"] for place in document["ranking"]]
    return ranking(name, ranked_entries(document), groups, data.targets)


CHARTS: Mapping[str, ChartKind] = MappingProxyType(
    {
        "ranking": ChartKind("Ranked models: score, interval, tie groups.", _ranking),
        "score-by-cost": _against("Score against cost, Pareto line.", SCORE, COST),
        "score-by-latency": _against("Score against service time, Pareto line.", SCORE, LATENCY),
        "detection-by-acceptance": _against(
            "Detection against acceptance, both intervals.", DETECTION, ACCEPTANCE
        ),
        "category-heat-map": _of_models("Detection by category, with intervals.", heat_map),
        "differences": ChartKind("Differences of the score, with intervals.", differences),
        "reliability": _of_models("Accuracy by stated confidence.", reliability),
        "latency-split": _of_models("Service, queue, rate limiter, backoff.", latency_split),
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
    """Return one plot of a report as a specification of Vega-Lite, with its data."""
    chart = make_chart(data, name)
    if isinstance(chart, NoChart):
        raise ReportError(f"there is no plot {name} of run {data.run.run_id}: {chart.reason}")
    return whole_specification(chart, small_print(data))


PLOT_FORMATS = ("svg", "png", "pdf", "vega")
"""The formats of `drawn`; `vega` is the specification itself."""
_ENDINGS = {"vega": "vl.json"}
_PNG_SCALE = 2
"""Dots of a PNG per pixel of the specification: 144 to the inch."""
_MISSING = "plots need the package vl-convert-python: pip install 'aegish-dist[plots]'"
_ON_PAGES = ("score-by-cost", "score-by-latency", "reliability", "latency-split", "error-timeline")
"""The others are tables of the page, or say less there."""


class PlotFile(Struct, frozen=True):
    """One plot in one format."""

    file_name: str
    content: bytes


class DrawnChart(Struct, frozen=True):
    """A plot for a page, which shows its title and caption as text."""

    name: str
    """Short name, such as `score-by-cost`; a file name and an anchor."""
    title: str
    caption: str
    """Names what is drawn, its unit and the interval of its bars; may hold foreign text."""
    description: str
    """The finding in words, for those who do not see it; may hold foreign text."""
    svg: str
    """One `<svg>` element, without style attributes, scripts, links or images."""


def plot_files(
    data: ReportData, names: Sequence[str], forms: Sequence[str]
) -> Iterator[PlotFile | NoChart]:
    """Yield the files of some plots, and the plots that there is no data for."""
    words = small_print(data)
    for name in names:
        chart = make_chart(data, name)
        if isinstance(chart, NoChart):
            yield chart
            continue
        specification = whole_specification(chart, words)
        for form in forms:
            content = drawn(specification, form, title=chart.title)
            yield PlotFile(f"{name}.{_ENDINGS.get(form, form)}", content)


def page_charts(data: ReportData) -> list[DrawnChart]:
    """Return the plots that stand in the HTML report, as SVG that takes its colours from the page.

    There is none where the package that draws them, the extra `plots`, is not installed.
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


def converter() -> Any:
    """Return the module that draws."""
    try:
        # 40 MB of shared library, for the one command that draws.
        import vl_convert  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(_MISSING) from error
    return vl_convert


def drawn(specification: dict[str, Any], form: str, *, title: str) -> bytes:
    """Return a plot as the content of a file; SVG holds the title for those who do not see it."""
    if form == "vega":
        return (printable_json(specification) + "\n").encode()
    if form == "svg":
        return drawn_svg(specification, title, specification.get("description", "")).encode()
    draw = converter()
    if form == "pdf":
        return bytes(draw.vegalite_to_pdf(specification, vl_version=VEGA_LITE))
    return bytes(draw.vegalite_to_png(specification, vl_version=VEGA_LITE, scale=_PNG_SCALE))


def drawn_svg(specification: dict[str, Any], title: str, description: str = "") -> str:
    """Return a plot as an SVG document with title and description."""
    svg: str = converter().vegalite_to_svg(specification, vl_version=VEGA_LITE)
    head, mark, rest = svg.partition(">")
    words = f"<title>{escape(printable(title))}</title>"
    if description:
        words += f"<desc>{escape(printable(description))}</desc>"
    return f'{head} role="img"{mark}{words}{rest}\n'


_TAG = re.compile(r"<[^<>]*>")
_COLOR = re.compile(r'="(#[0-9a-f]{6})"')
_NUMBERS = re.compile(r"(?<=[(,\sMLHV-])(\d+\.\d{2})\d+")
_EMPTY = re.compile(
    r'<path class="(?:back|fore)ground" aria-hidden="true" d="[^"]*"(?: pointer-events="none")?'
    r'(?: display="none")?/>'
)


def themed_svg(chart: Chart) -> str:
    """Return a chart without title, caption and background.

    Each colour is a custom property such as `--chart-ink`, with the colour of paper as the value
    where a page has no style sheet for it.
    """
    svg = drawn_svg(bare_specification(chart), chart.title, chart.description)
    return _TAG.sub(lambda tag: _themed_tag(tag[0]), _EMPTY.sub("", svg))


def _themed_tag(tag: str) -> str:
    """Change attributes alone: a foreign name may look like one."""
    shorter = _NUMBERS.sub(r"\1", tag)
    return _COLOR.sub(lambda found: f'="var(--chart-{VARIABLES[found[1]]}, {found[1]})"', shorter)

"""All plots by name, and drawing them by Vega-Lite in the `vl_convert` of the extra `plots`."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from types import MappingProxyType
from typing import Any

from aegish_dist.core.text import printable, printable_json
from aegish_dist.errors import ConfigError, ReportError
from aegish_dist.findings.leaderboard import RankedModel
from aegish_dist.report.charts.heat_map import heat_map
from aegish_dist.report.charts.ranking import ranking
from aegish_dist.report.charts.roc import roc
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
from aegish_dist.report.charts.words import apart, small_print
from aegish_dist.report.data import ReportData

_Make = Callable[[str, ReportData, Sequence[RankedModel]], Chart | NoChart]
CHARTS: Mapping[str, tuple[str, _Make]] = MappingProxyType(
    {
        "ranking": ("Ranked models: score, interval, tie groups.", ranking),
        "score-by-cost": ("Score against cost, Pareto line.", scatter),
        "roc": ("Detection over false positives at any threshold, with intervals.", roc),
        "category-heat-map": ("Detection by category, with intervals.", heat_map),
    }
)
"""By name, in the order of lists and files: what a plot shows, and the function that makes it."""


def make_chart(data: ReportData, name: str) -> Chart | NoChart:
    """Make one plot of a report."""
    if name not in CHARTS:
        raise ReportError(f"there is no plot '{name}': {', '.join(CHARTS)}")
    return CHARTS[name][1](name, data, apart(data)[0])


def chart_specification(data: ReportData, name: str) -> Json:
    """Return one plot of a report as a specification of Vega-Lite, with its data."""
    chart = make_chart(data, name)
    if isinstance(chart, NoChart):
        raise ReportError(f"there is no plot {name} of run {data.run.run_id}: {chart.reason}")
    return whole_specification(chart, small_print(data))


PLOT_FORMATS = ("svg", "png", "pdf", "vega")
"""The formats of `drawn`; `vega` is the specification itself."""


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


def page_charts(data: ReportData) -> list[tuple[Chart, str]]:
    """Return the plots of the HTML report with their SVG, which takes its colours from the page.

    There is none where the package that draws them, the extra `plots`, cannot be imported.
    """
    try:
        converter()
    except ConfigError:
        return []
    # The others are tables of the page, or say less there.
    made = (make_chart(data, name) for name in ("score-by-cost", "roc"))
    return [(each, themed_svg(each)) for each in made if isinstance(each, Chart)]


def converter() -> Any:
    """Return the module that draws."""
    try:
        # 40 MB of shared library, for the one command that draws.
        import vl_convert  # noqa: PLC0415
    except ImportError as error:
        problem = "plots need the package vl-convert-python: pip install 'aegish-dist[plots]'"
        raise ConfigError(problem) from error
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
    # Two dots per pixel of the specification: 144 to the inch.
    return bytes(draw.vegalite_to_png(specification, vl_version=VEGA_LITE, scale=2))


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
    """Return a chart as one `<svg>` element without title, caption and background.

    It has no style attributes, scripts, links or images. Each colour is a custom property such as
    `--chart-ink`, with the colour of paper as the value where a page has no style sheet for it.
    """
    svg = drawn_svg(bare_specification(chart), chart.title, chart.description)
    return _TAG.sub(lambda tag: _themed_tag(tag[0]), _EMPTY.sub("", svg))


def _themed_tag(tag: str) -> str:
    """Change attributes alone: a foreign name may look like one."""
    shorter = _NUMBERS.sub(r"\1", tag)
    return _COLOR.sub(lambda found: f'="var(--chart-{VARIABLES[found[1]]}, {found[1]})"', shorter)

"""Turning a report into text: the last step of the pipeline.

`sections` says what a report says, as plain data; `table`, `markdown`, `latex` and `page` draw it.
`csv`, `json` and `reference_json` are for programs and carry the unrounded numbers.
"""

from collections.abc import Callable, Collection

from aegish_dist.errors import ReportError
from aegish_dist.render.comparison import build_comparison
from aegish_dist.render.comparison_csv import render_comparison_csv
from aegish_dist.render.comparison_data import ComparisonData
from aegish_dist.render.comparison_json import render_comparison_json
from aegish_dist.render.csv import render_csv
from aegish_dist.render.data import ReportData
from aegish_dist.render.formats import COMPARISON_FORMATS, in_format
from aegish_dist.render.json import render_json
from aegish_dist.render.layout import Report, stackable
from aegish_dist.render.page import render_page
from aegish_dist.render.reference_json import render_reference_json
from aegish_dist.render.sections import BRIEF, SECTION_NAMES, build_report

_TEXTS: dict[str, Callable[[ReportData], str]] = {
    "json": render_json,
    "csv": render_csv,
    "reference-json": render_reference_json,
    "html": lambda data: "".join(render_page(data)),
}
IN_SECTIONS = {"table": BRIEF, "markdown": SECTION_NAMES, "latex": BRIEF}
"""The formats whose sections can be chosen, and those that they have by themselves."""
FORMATS = (*IN_SECTIONS, *_TEXTS)


def render(
    data: ReportData,
    format: str,
    *,
    sections: Collection[str] | None = None,
    with_source: bool = False,
    width: int | None = None,
    color: bool = False,
) -> str:
    """Return a report as text that ends with a line break.

    Args:
        sections: Of `SECTION_NAMES`; None for those that the format has by itself. Only formats
            of `IN_SECTIONS` use it.
        with_source: Whether every row of a table begins with run, snapshot and rule set, so that
            files can be stacked; likewise.
        width: Columns of the terminal; only tables use it.
        color: Whether to emit ANSI colours; only tables use it.
    """
    if format in IN_SECTIONS:
        report = build_report(data, IN_SECTIONS[format] if sections is None else sections)
        drawn = stackable(report) if with_source else report
        return in_format(format, lambda: drawn, {}, width=width, color=color)
    if format not in _TEXTS:
        raise ReportError(f"unknown report format '{format}': choose one of {', '.join(FORMATS)}")
    return _TEXTS[format](data)


def render_comparison(
    data: ComparisonData,
    format: str,
    *,
    with_source: bool = False,
    width: int | None = None,
    color: bool = False,
) -> str:
    """Return a comparison as text that ends with a line break.

    Args:
        with_source: Whether every row of a table begins with runs and rule set.
        width: Columns of the terminal; only tables use it.
        color: Whether to emit ANSI colours; only tables use it.
    """
    texts = {
        "csv": lambda: render_comparison_csv(data),
        "json": lambda: render_comparison_json(data),
    }

    def report() -> Report:
        built = build_comparison(data)
        return stackable(built) if with_source else built

    return in_format(format, report, texts, width=width, color=color)


__all__ = [
    "COMPARISON_FORMATS",
    "FORMATS",
    "IN_SECTIONS",
    "SECTION_NAMES",
    "ComparisonData",
    "ReportData",
    "render",
    "render_comparison",
]

"""Turning a report into text: the last step of the pipeline.

`sections` says what a report says, as plain data; `table`, `markdown`, `latex` and `page` draw it.
`csv`, `json` and `reference_json` are for programs and carry the unrounded numbers.
"""

from collections.abc import Callable

from aegish_dist.errors import ReportError
from aegish_dist.render.comparison import build_comparison
from aegish_dist.render.comparison_csv import render_comparison_csv
from aegish_dist.render.comparison_data import ComparisonData
from aegish_dist.render.comparison_json import render_comparison_json
from aegish_dist.render.csv import render_csv
from aegish_dist.render.data import ReportData
from aegish_dist.render.formats import COMPARISON_FORMATS, in_format
from aegish_dist.render.json import render_json
from aegish_dist.render.latex import render_latex
from aegish_dist.render.markdown import render_markdown
from aegish_dist.render.page import render_page
from aegish_dist.render.reference_json import render_reference_json

_TEXTS: dict[str, Callable[[ReportData], str]] = {
    "json": render_json,
    "markdown": render_markdown,
    "csv": render_csv,
    "latex": render_latex,
    "reference-json": render_reference_json,
    "html": lambda data: "".join(render_page(data)),
}
FORMATS = ("table", *_TEXTS)
"""The formats that `render` knows."""


def render(data: ReportData, format: str, *, width: int | None = None, color: bool = False) -> str:
    """Return a report as text that ends with a line break.

    Args:
        data: The content of the report.
        format: One of `FORMATS`.
        width: Columns of the terminal; only tables use it.
        color: Whether to emit ANSI colours; only tables use it.

    Raises:
        ReportError: The format is unknown.
    """
    if format == "table":
        from aegish_dist.render.table import render_table  # noqa: PLC0415  with rich

        return render_table(data, width=width, color=color)
    if format not in _TEXTS:
        raise ReportError(f"unknown report format '{format}': choose one of {', '.join(FORMATS)}")
    return _TEXTS[format](data)


def render_comparison(
    data: ComparisonData, format: str, *, width: int | None = None, color: bool = False
) -> str:
    """Return a comparison as text that ends with a line break.

    Args:
        data: The content of the comparison.
        format: One of `COMPARISON_FORMATS`.
        width: Columns of the terminal; only tables use it.
        color: Whether to emit ANSI colours; only tables use it.

    Raises:
        ReportError: The format is unknown.
    """
    texts = {
        "csv": lambda: render_comparison_csv(data),
        "json": lambda: render_comparison_json(data),
    }
    return in_format(format, lambda: build_comparison(data), texts, width=width, color=color)


__all__ = [
    "COMPARISON_FORMATS",
    "FORMATS",
    "ComparisonData",
    "ReportData",
    "render",
    "render_comparison",
]

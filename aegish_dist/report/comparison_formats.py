"""The formats of comparisons: of models, and of snapshots."""

from collections.abc import Callable, Mapping

from aegish_dist.errors import ReportError
from aegish_dist.report.comparison import build_comparison
from aegish_dist.report.comparison_csv import render_comparison_csv
from aegish_dist.report.comparison_data import ComparisonData
from aegish_dist.report.comparison_json import render_comparison_json
from aegish_dist.report.layout import Report, stackable
from aegish_dist.report.markdown import draw_markdown

COMPARISON_FORMATS = ("table", "markdown", "latex", "csv", "json")


def in_format(
    form: str,
    report: Callable[[], Report],
    texts: Mapping[str, Callable[[], str]],
    *,
    width: int | None,
    color: bool,
) -> str:
    """Return a comparison as text that ends with a line break.

    Args:
        width: Columns of the terminal; only tables use it.
        color: Whether to emit ANSI colours; only tables use it.
    """
    if form == "table":
        from aegish_dist.report.table import draw_table  # noqa: PLC0415  with rich

        return draw_table(report(), width, color)
    if form == "markdown":
        return draw_markdown(report())
    if form == "latex":
        from aegish_dist.report.latex import draw_latex  # noqa: PLC0415  folded as rich does it

        return draw_latex(report())
    if form not in texts:
        known = ", ".join(COMPARISON_FORMATS)
        raise ReportError(f"unknown format of a comparison '{form}': choose one of {known}")
    return texts[form]()


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

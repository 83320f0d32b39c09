"""The formats of comparisons: of models, and of snapshots."""

from collections.abc import Callable, Mapping

from aegish_dist.errors import ReportError
from aegish_dist.render.layout import Report
from aegish_dist.render.markdown import draw_markdown

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
        from aegish_dist.render.table import draw_table  # noqa: PLC0415  with rich

        return draw_table(report(), width, color)
    if form == "markdown":
        return draw_markdown(report())
    if form == "latex":
        from aegish_dist.render.latex import draw_latex  # noqa: PLC0415  folded as rich does it

        return draw_latex(report())
    if form not in texts:
        known = ", ".join(COMPARISON_FORMATS)
        raise ReportError(f"unknown format of a comparison '{form}': choose one of {known}")
    return texts[form]()

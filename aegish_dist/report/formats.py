"""A report in each of its formats.

What one format alone needs is imported when that format is drawn: the page brings its charts.
"""

from collections.abc import Collection

from aegish_dist.errors import ReportError
from aegish_dist.report.comparison import drawn
from aegish_dist.report.data import ReportData
from aegish_dist.report.documents import render_csv, render_json, render_reference_json
from aegish_dist.report.layout import stackable
from aegish_dist.report.sections import BRIEF, SECTION_NAMES, build_report

IN_SECTIONS = {"table": BRIEF, "markdown": SECTION_NAMES, "latex": BRIEF}
"""The formats whose sections can be chosen, and those that they have by themselves."""
FORMATS = (*IN_SECTIONS, "json", "csv", "reference-json", "html")


def render(
    data: ReportData,
    format: str,
    *,
    sections: Collection[str] | None = None,
    run_columns: bool = False,
    width: int | None = None,
    color: bool = False,
) -> str:
    """Return a report as text that ends with a line break.

    Args:
        sections: Of `SECTION_NAMES`; None for those that the format has by itself. Only formats
            of `IN_SECTIONS` use it.
        run_columns: Whether every row of a table begins with run, snapshot and rule set, so that
            files can be stacked; likewise.
        width: Columns of the terminal; only tables use it.
        color: Whether to emit ANSI colours; only tables use it.
    """
    if format in IN_SECTIONS:
        report = build_report(data, IN_SECTIONS[format] if sections is None else sections)
        return drawn(format, stackable(report) if run_columns else report, width=width, color=color)
    match format:
        case "csv":
            return render_csv(data)
        case "json":
            return render_json(data)
        case "reference-json":
            return render_reference_json(data)
        case "html":
            from aegish_dist.report.page import render_page  # noqa: PLC0415

            return "".join(render_page(data))
    raise ReportError(f"unknown report format '{format}': choose one of {', '.join(FORMATS)}")

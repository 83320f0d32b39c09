"""Turning a report into text: the last step of the pipeline.

`sections` says what a report says, as plain data; `table`, `markdown` and `html` only draw it.
`csv` and `json` are for programs and carry the unrounded numbers.
"""

from aegish_dist.errors import ReportError
from aegish_dist.render.csv import render_csv
from aegish_dist.render.data import ReportData
from aegish_dist.render.html import render_html
from aegish_dist.render.json import render_json
from aegish_dist.render.markdown import render_markdown
from aegish_dist.render.table import render_table

FORMATS = ("table", "json", "markdown", "csv", "html")
"""What `render` can produce."""


def render(data: ReportData, format: str, *, width: int | None = None, color: bool = False) -> str:
    """Return a report as text that ends with a line break.

    Args:
        data: What to report.
        format: One of `FORMATS`.
        width: Columns of the terminal; only tables use it.
        color: Whether to emit ANSI colours; only tables use it.

    Raises:
        ReportError: When the format is unknown.
    """
    match format:
        case "table":
            return render_table(data, width=width, color=color)
        case "json":
            return render_json(data)
        case "markdown":
            return render_markdown(data)
        case "csv":
            return render_csv(data)
        case "html":
            return render_html(data)
        case _:
            known = ", ".join(FORMATS)
            raise ReportError(f"unknown report format '{format}': choose one of {known}")


__all__ = ["FORMATS", "ReportData", "render"]

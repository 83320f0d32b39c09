"""Drawing specifications, by Vega-Lite in the `vl_convert` of the extra `plots`."""

from functools import partial
from html import escape
from typing import Any

from aegish_dist.core.text import printable, printable_json
from aegish_dist.errors import ConfigError
from aegish_dist.report.charts.theme import VEGA_LITE

PLOT_FORMATS = ("svg", "png", "pdf", "vega")
"""The formats of `drawn`; `vega` is the specification itself."""
_MISSING = "plots need the package vl-convert-python: pip install 'aegish-dist[plots]'"
_PNG_SCALE = 2
"""Dots of a PNG per pixel of the specification: 144 to the inch."""


def converter() -> Any:
    """Return the module that draws."""
    try:
        # 40 MB of shared library, for the one command that draws.
        import vl_convert  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(_MISSING) from error
    return vl_convert


def drawn(specification: dict[str, Any], form: str, *, title: str) -> bytes:
    """Return a plot as the content of a file.

    Args:
        title: One line; SVG holds it for those who do not see the plot.
    """
    if form == "vega":
        return (printable_json(specification) + "\n").encode()
    draw = converter()
    match form:
        case "png":
            convert = partial(draw.vegalite_to_png, scale=_PNG_SCALE)
        case "pdf":
            convert = draw.vegalite_to_pdf
        case _:
            return drawn_svg(specification, title, specification.get("description", "")).encode()
    return bytes(convert(specification, vl_version=VEGA_LITE))


def drawn_svg(specification: dict[str, Any], title: str, description: str = "") -> str:
    """Return a plot as an SVG document with title and description."""
    svg: str = converter().vegalite_to_svg(specification, vl_version=VEGA_LITE)
    head, mark, rest = svg.partition(">")
    words = f"<title>{escape(printable(title))}</title>"
    if description:
        words += f"<desc>{escape(printable(description))}</desc>"
    return f'{head} role="img"{mark}{words}{rest}\n'

"""How every plot looks: sizes, fonts, colours and shapes.

The colours of `PALETTE` stay apart for readers with deuteranopia, protanopia and tritanopia, and
differ in lightness, so that they stay apart on grey paper too; `tests/unit/report/charts` checks
it. No plot tells things apart by colour alone: models have a shape and a label as well, parts of a
bar their order.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

VEGA_LITE = "6.4"
"""The version that the specifications are written for; `vl_convert` carries several."""
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
FONT = "Liberation Sans, Arial, Helvetica, DejaVu Sans, sans-serif"
"""The first is in the wheel of `vl_convert`; Arial and Helvetica have its widths."""

INK = "#1c2024"
SOFT = "#60646c"
GRID = "#e6e6eb"
LINE = "#8b8d98"
BAR = "#b4b6c0"
BAND = "#f4f4f7"
PAPER = "#ffffff"

TITLE_PX = 15
TEXT_PX = 11
SMALL_PX = 9
LEADING = 1.35
MARGIN = 16

VARIABLES = MappingProxyType(
    {INK: "ink", SOFT: "soft", GRID: "grid", LINE: "line", BAR: "bar", BAND: "band", PAPER: "paper"}
)
"""By color, the name in the style sheet of a page, which has others for dark screens; those of
`PALETTE` are numbered from 1."""
PALETTE = ("#2c254a", "#842fb3", "#265040", "#c84a2b", "#5b89c2", "#cc8e0d")
SHAPES = ("circle", "diamond", "square", "triangle-up", "triangle-down", "cross")

_FIRST = ("openai", "anthropic", "google", "openrouter", "hf-inference-providers")
"""Providers that have the same colour in the plots of every run."""


@dataclass(frozen=True, slots=True)
class PlotStyle:
    """Colour and shape of the points of one provider."""

    color: str
    shape: str


def provider_of(model: str) -> str:
    """Return the part of a canonical model id that names the provider; foreign text."""
    return model.partition("/")[0]


def provider_styles(models: Iterable[str]) -> Mapping[str, PlotStyle]:
    """Return a style for each provider of some models, in the order of a legend."""
    found = {provider_of(model) for model in models}
    known = [name for name in _FIRST if name in found]
    places = {name: _FIRST.index(name) for name in known}
    free = [place for place in range(len(_FIRST) + len(found)) if place not in places.values()]
    places |= dict(zip(sorted(found - set(known)), free, strict=False))
    return MappingProxyType({name: _style(place) for name, place in places.items()})


def _style(place: int) -> PlotStyle:
    """Return the colours in turn, each time round with the next shape."""
    turn, color = divmod(place, len(PALETTE))
    return PlotStyle(PALETTE[color], SHAPES[(color + turn) % len(SHAPES)])


def config() -> dict[str, object]:
    """Return the configuration that every specification carries."""
    axis = {
        "labelFontSize": TEXT_PX,
        "titleFontSize": TEXT_PX,
        "titleFontWeight": "normal",
        "titleColor": INK,
        "labelColor": INK,
        "gridColor": GRID,
        "domainColor": LINE,
        "tickColor": LINE,
        "labelFlush": False,
        "labelLimit": 0,
        "titleLimit": 0,
    }
    return {
        "font": FONT,
        "aria": False,
        "axis": axis,
        "view": {"stroke": None},
        "text": {"fontSize": TEXT_PX, "fill": INK, "limit": 0},
        "point": {"opacity": 1, "filled": True},
        "rule": {"strokeWidth": 1.2},
    }

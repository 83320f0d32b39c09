"""Shared by all plots: their look, widths of text, the specification of a plot, and its picture.

`vl_convert` of the extra `plots` draws without a browser. Vega-Lite makes scales, axes, ticks and
legends. Foreign text stands in values of data, titles and domains alone, never in the name of a
field or in an expression.

The colours of `PALETTE` stay apart for readers with deuteranopia, protanopia and tritanopia, and
differ in lightness, so that they stay apart on grey paper too; `tests/unit/report/charts` checks
it. No plot tells things apart by colour alone: models have a shape and a label as well, parts of a
bar their order.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from itertools import accumulate, takewhile
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from aegish_dist.core.text import JsonObject, filled, printable, printable_json
from aegish_dist.errors import ConfigError

# The version that the specifications are written for; `vl_convert` carries several.
VEGA_LITE = "6.4"

INK = "#1c2024"
SOFT = "#60646c"
GRID = "#e6e6eb"
LINE = "#8b8d98"
BAR = "#b4b6c0"
BAND = "#f4f4f7"
PAPER = "#ffffff"
PALETTE = ("#2c254a", "#842fb3", "#265040", "#c84a2b", "#5b89c2", "#cc8e0d")
# Of rates in heat maps, of the page and of plots: the more, the darker, on grey paper too.
SHADES = ("#eff4fa", "#d3dfee", "#b0c5df", "#8caace", "#4470a3", "#2a5487", "#0f2c52")
# The first of `SHADES` on which text is white.
WHITE_FROM = 4
SHAPES = ("circle", "diamond", "square", "triangle-up", "triangle-down", "cross")
# By color, the name in the style sheet of a page, which has others for dark screens.
VARIABLES = MappingProxyType(
    {
        INK: "ink",
        SOFT: "soft",
        GRID: "grid",
        LINE: "line",
        BAR: "bar",
        BAND: "band",
        PAPER: "paper",
    }
    | {color: str(place) for place, color in enumerate(PALETTE, 1)}
)

TITLE_PX, TEXT_PX, SMALL_PX = 15, 11, 9
# How lines look in a legend.
LEGEND_LINES = {"symbolType": "stroke", "symbolSize": 200, "symbolStrokeColor": INK}

# Providers that have the same colour in the plots of every run.
_FIRST = ("openai", "anthropic", "google", "openrouter", "hf-inference-providers")

# What is made of models: black, and a cross.
_POLICY = "policy"


def shade_bounds(rates: Iterable[float | None]) -> list[float]:
    """Return the least rate, in [0, 1], of each shade but the lightest one, in whole points.

    Each shade has about as many of the rates, so that rates that are close show a pattern, too. A
    shade that begins where the next one does is not used.
    """
    known = sorted(rate for rate in rates if rate is not None)
    bounds = []
    for shade in range(1, len(SHADES)):
        if known:
            rate = known[len(known) * shade // len(SHADES)]
            bounds.append(math.floor(round(100 * rate, 6)) / 100)
    return bounds


class Chart(Struct, frozen=True):
    """A plot before it is drawn."""

    name: str
    """Short name, such as `score-by-cost`; a file name and an anchor."""
    title: str
    caption: str
    """Names what is drawn, its unit, n and the interval of its bars; may hold foreign text."""
    description: str
    """The finding in words, for those who do not see it; may hold foreign text."""
    body: JsonObject
    """The view: data, marks, encodings."""
    left: float
    """Pixels that names and axis take on the left of the plot's area."""
    width: float
    """Pixels of all of it."""


class NoChart(Struct, frozen=True):
    """A plot for which a report has no data."""

    name: str
    reason: str
    """Why there is nothing to draw, as a part of a sentence; may hold foreign text."""


def provider_of(model: str) -> str:
    """Return the part of a canonical model id that names the provider; foreign text."""
    return model.partition("/")[0]


def provider_styles(models: Iterable[str]) -> Mapping[str, JsonObject]:
    """Return `color` and `shape` for each provider of some models, in the order of a legend."""
    names = {provider_of(model) for model in models}
    # The first providers keep their places in every run; the others take what these leave free.
    places = {name: place for place, name in enumerate(_FIRST) if name in names}
    free = [n for n in range(len(_FIRST) + len(names)) if n not in places.values()]
    others = sorted(names - {*places, _POLICY})
    places |= dict(zip(others, free, strict=False))
    styles: dict[str, JsonObject] = {}
    for name, place in places.items():
        turn, color = divmod(place, len(PALETTE))  # each time round with the next shape
        shape = SHAPES[(color + turn) % len(SHAPES)]
        styles[name] = {"color": PALETTE[color], "shape": shape}
    if _POLICY in names:
        styles[_POLICY] = {"color": INK, "shape": "cross"}
    return styles


def whole_specification(chart: Chart, small_print: str) -> JsonObject:
    """Return a chart with its title above, its caption and where it comes from below."""
    room = max(chart.width, 560.0)  # for lines of the caption
    lines = wrapped(chart.title, TITLE_PX * 1.2, room)
    title = {"text": lines, "fontSize": TITLE_PX, "fontWeight": "bold"}
    return _with_room(
        chart,
        room,
        view={"title": title} | chart.body,
        caption=wrapped(chart.caption, TEXT_PX, room),
        small_print=wrapped(small_print, SMALL_PX, room),
    )


def bare_specification(chart: Chart) -> JsonObject:
    """Return a chart without title and caption, for a page that shows them as text."""
    whole = _with_room(
        chart,
        chart.width,
        view=chart.body,
        caption="",
        small_print="",
    )
    del whole["description"], whole["title"]
    return whole | {"background": None, "padding": 4}


def _with_room(chart: Chart, room: float, **parts: Any) -> JsonObject:
    """Return a view over an empty one that keeps room for text in the widest font.

    Vega-Lite lays a picture out for the font that it has; who looks at it may have another one.
    """
    return _filled_in(
        "whole",
        **parts,
        description=chart.description,
        left=-chart.left,
        right=room - chart.left,
        config=_file("vega_lite"),  # its first font is in the wheel of `vl_convert`
    )


@cache
def _file(name: str) -> Any:
    return json.loads(files(__package__).joinpath(f"{name}.json").read_text("utf-8"))


def view(name: str, **values: Any) -> JsonObject:
    """Return a view of this folder with values in it; layers whose rows are None are left out."""
    body = _filled_in(name, **values)
    body["layer"] = [layer for layer in body["layer"] if layer["data"]["values"] is not None]
    return body


def _filled_in(file: str, **values: Any) -> JsonObject:
    """Return what a file of this folder holds, with values and colours for its `$NAME`."""
    colors = {name: color for color, name in VARIABLES.items()}
    filled: JsonObject = _filled(_file(file), values | colors)
    return filled


def _filled(part: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(part, dict):
        return {key: _filled(each, values) for key, each in part.items()}
    if isinstance(part, list):
        return [_filled(each, values) for each in part]
    if isinstance(part, str) and part.startswith("$"):
        return values[part[1:]]
    return part


# The formats of `drawn`; `vega` is the specification itself.
PLOT_FORMATS = ("svg", "png", "pdf", "vega")


def converter() -> Any:
    """Return the module that draws."""
    try:
        # 40 MB of shared library, for the one command that draws.
        import vl_convert  # noqa: PLC0415
    except ImportError as error:
        problem = "plots need the package vl-convert-python: pip install 'aegish-dist[plots]'"
        raise ConfigError(problem) from error
    return vl_convert


def drawn(specification: JsonObject, form: str, *, title: str) -> bytes:
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


def drawn_svg(specification: JsonObject, title: str, description: str = "") -> str:
    """Return a plot as an SVG document with title and description."""
    svg: str = converter().vegalite_to_svg(specification, vl_version=VEGA_LITE)
    head, mark, rest = svg.partition(">")
    words = f"<title>{escape(printable(title))}</title>"
    if description:
        words += f"<desc>{escape(printable(description))}</desc>"
    # Readers of screens take the drawing as one image, with these words.
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


def layer(rows: Sequence[JsonObject], mark: str, style: JsonObject, **encoding: Any) -> JsonObject:
    """Return a layer with the rows that it draws."""
    return {
        "data": {"values": list(rows)},
        "mark": {"type": mark} | style,
        "encoding": {name: channel for name, channel in encoding.items() if channel is not None},
    }


def at_pixels(
    rows: Sequence[JsonObject], mark: str, style: JsonObject, **encoding: Any
) -> JsonObject:
    """Return a layer whose rows hold `x` and `y` in pixels of the plot's area."""
    places = {}
    for field in ("x", "y"):
        places[field] = {
            "field": field,
            "type": "quantitative",
            "scale": None,
            "axis": None,
        }
    return layer(rows, mark, style, **places, **encoding)


def legend(names: JsonObject, range_by_name: Mapping[str, Any], **look: Any) -> JsonObject:
    """Return the channel of a field of names, or of one name, with a legend of their looks."""
    scale = {"domain": list(range_by_name), "range": list(range_by_name.values())}
    return names | {"type": "nominal", "scale": scale, "legend": look}


def nominal(field: str) -> JsonObject:
    """Return the channel of a field of texts."""
    return {"field": field, "type": "nominal"}


# By letter, in font sizes: the width of the wider of DejaVu Sans and Liberation Sans (which has the
# widths of Arial and Helvetica), rounded up to hundredths, by which the file has them. Text is
# never wider than measured in a font that a machine is likely to use.
_WIDTHS: dict[str, float] = {}
for _width, _letters in _file("letter_widths").items():
    _WIDTHS |= dict.fromkeys(_letters, int(_width) / 100)
# Of other scripts; a Chinese character takes 1.0 font sizes.
_OTHER = 1.1
_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


def text_width(text: str, size: float) -> float:
    """Return the most pixels that a text takes."""
    return sum(_WIDTHS.get(letter, _OTHER) for letter in text) * size


def widest(texts: Iterable[str]) -> float:
    """Return the width of the widest text; 0 without any."""
    return max((text_width(text, TEXT_PX) for text in texts), default=0.0)


def fitted(text: str, size: float, width: float) -> str:
    """Return a text that takes at most this many pixels; dots stand for what its middle loses."""
    if text_width(text, size) <= width:
        return text
    room = (width - text_width(_ELLIPSIS, size)) / 2
    head = _prefix(text, size, room)
    tail = _prefix(text[::-1], size, room)[::-1]
    return f"{head}{_ELLIPSIS}{tail}"


def _prefix(text: str, size: float, width: float) -> str:
    ends = accumulate(_WIDTHS.get(letter, _OTHER) * size for letter in text)
    return text[: sum(1 for _ in takewhile(lambda end: end <= width, ends))]


def wrapped(text: str, size: float, width: float) -> list[str]:
    """Return the lines of a paragraph; a word that is wider than a line is shortened."""
    words = [f"{fitted(word, size, width)} " for word in text.split()]
    return filled(words, width, lambda line: text_width(line, size))

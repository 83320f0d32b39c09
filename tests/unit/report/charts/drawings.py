"""Reading what is drawn: marks and texts of an SVG with their places on the page."""

import re
from html import unescape
from html.parser import HTMLParser

from msgspec import Struct

from aegish_dist.report.charts.labels import PixelBox
from aegish_dist.report.charts.spec import text_width

_MOVE = re.compile(r"translate\(([-\d.e]+),\s*([-\d.e]+)\)")


class SeenText(Struct, frozen=True):
    """A text of a drawing."""

    text: str
    box: PixelBox
    upright: bool


class Drawing(HTMLParser):
    """The texts and symbols of an SVG, in pixels of the page."""

    def __init__(self, svg: str) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[SeenText] = []
        self.symbols: list[PixelBox] = []
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.width = self.height = 0.0
        self._places: list[tuple[float, float]] = [(0.0, 0.0)]
        self._classes: list[str] = [""]
        self._text: dict[str, str] | None = None
        self._words, self._down = "", 0.0
        self.feed(svg)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        self.attributes |= found.keys()
        if tag == "svg":
            self.width, self.height = float(found["width"]), float(found["height"])
        x, y = self._places[-1]
        for across, down in _MOVE.findall(found.get("transform", "")):
            x, y = x + float(across), y + float(down)
        self._places.append((x, y))
        self._classes.append(found.get("class", "") or self._classes[-1])
        if tag == "text":
            self._text, self._words, self._down = found, "", 0.0
        if tag == "tspan":
            self._down += float(found.get("dy", 0))
        if tag == "path" and "mark-symbol" in self._classes[-1]:
            self.symbols.append(PixelBox(x, y, x, y).grown(5))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        self._words += data

    def handle_endtag(self, tag: str) -> None:
        x, y = self._places.pop()
        self._classes.pop()
        if tag in ("text", "tspan") and self._text is not None and self._words:
            y += self._down
            size = float(self._text["font-size"].removesuffix("px"))
            bold = self._text.get("font-weight") == "bold"
            width = text_width(unescape(self._words), size, bold=bold)
            share = {"middle": 0.5, "end": 1.0}.get(self._text.get("text-anchor", ""), 0.0)
            left = x - width * share
            box = PixelBox(left, y - size * 0.75, left + width, y + size * 0.2)
            upright = "rotate" in self._text.get("transform", "")
            self.texts.append(SeenText(self._words, box, upright))
            self._words = ""

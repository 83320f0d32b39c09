"""Reading what is drawn: marks and texts of an SVG with their places on the page."""

import re
import xml.etree.ElementTree as ET

from msgspec import Struct

from aegish_dist.report.charts.frame import PixelBox, PixelLine
from aegish_dist.report.charts.vega_lite import text_width

_MOVE = re.compile(r"translate\(([-\d.e]+),\s*([-\d.e]+)\)")


class SeenText(Struct, frozen=True):
    """A text of a drawing."""

    text: str
    box: PixelBox
    upright: bool


class Drawing:
    """The texts, symbols and dashed lines of an SVG, in pixels of the page."""

    def __init__(self, svg: str) -> None:
        root = ET.fromstring(svg)
        self.width, self.height = float(root.attrib["width"]), float(root.attrib["height"])
        self.tags = [each.tag.rpartition("}")[2] for each in root.iter()]
        self.attributes = {name.rpartition("}")[2] for each in root.iter() for name in each.attrib}
        self.texts: list[SeenText] = []
        self.symbols: list[PixelBox] = []
        self.dashed: list[PixelLine] = []
        self._walk(root, 0.0, 0.0, "")

    def _walk(self, node: ET.Element, x: float, y: float, kind: str) -> None:
        for across, down in _MOVE.findall(node.get("transform", "")):
            x, y = x + float(across), y + float(down)
        kind = node.get("class") or kind
        if node.tag.endswith("}path") and "mark-symbol" in kind:
            self.symbols.append(PixelBox(x, y, x, y).grown(5))
        if node.tag.endswith("}line") and node.get("stroke-dasharray") and "mark-rule" in kind:
            across, down = (float(node.get(end, 0)) for end in ("x2", "y2"))
            self.dashed.append(PixelLine(x, y, x + across, y + down))
        if node.tag.endswith("}text"):
            for line in list(node) or [node]:
                y += float(line.get("dy", 0))
                self._see(line.text or "", node, x, y)
        for child in node:
            self._walk(child, x, y, kind)

    def _see(self, words: str, node: ET.Element, x: float, y: float) -> None:
        size = float(node.attrib["font-size"].removesuffix("px"))
        width = text_width(words, size)
        if node.get("font-weight") == "bold":
            width *= 1.27  # the most that a letter of the bold face is wider
        left = x - width * {"middle": 0.5, "end": 1.0}.get(node.get("text-anchor", ""), 0.0)
        box = PixelBox(left, y - size * 0.75, left + width, y + size * 0.2)
        if words:
            self.texts.append(SeenText(words, box, "rotate" in node.get("transform", "")))

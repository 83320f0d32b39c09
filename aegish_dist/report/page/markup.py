"""Text and names as HTML. Everything foreign on the page passes through here."""

import re
from html import escape

from aegish_dist.core.printable import printable, printable_lines

_WORDS = re.compile(r"[^/:_]*[/:_]+|[^/:_]+")
_WIDE = 24
"""Characters that a name may have without a place to break."""
_NOT_IN_ANCHORS = re.compile(r"[^a-z0-9]+")


def text(content: str) -> str:
    """Return text that HTML shows as it stands, in elements and in quoted attributes."""
    return escape(printable(content))


def lines(content: str) -> str:
    """Return a text of several lines likewise, for elements that keep line breaks."""
    return escape(printable_lines(content))


def breakable(name: str) -> str:
    """Return a name as HTML, with places where a long id may break between its words."""
    return "<wbr>".join(map(text, _WORDS.findall(name)))


def breakable_where_long(name: str) -> str:
    """Return a name as HTML, with places to break only where it would be wide without them."""
    parts = [""]
    for word in _WORDS.findall(name):
        if len(parts[-1].rpartition("-")[2]) + len(word.partition("-")[0]) > _WIDE:
            parts.append("")
        parts[-1] += word
    return "<wbr>".join(text(part) for part in parts if part)


def anchor(title: str) -> str:
    """Return the id of a section with one of our titles: `Failed calls` is `failed-calls`."""
    return _NOT_IN_ANCHORS.sub("-", title.lower()).strip("-")

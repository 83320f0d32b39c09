"""Widths of text, so that a plot can be laid out before anything draws it.

Widths are those of the wider of DejaVu Sans and Liberation Sans (which has the widths of Arial and
Helvetica), rounded up: text is never wider than measured in a font that a machine is likely to use.
"""

from collections.abc import Iterator, Sequence

_HUNDREDTHS = {
    28: "ijl", 30: "I", 32: " ,.", 34: "/:;\\|", 36: "f", 37: "-", 40: "()[]t", 41: "!", 42: "r",
    46: '"', 50: "*J`", 53: "sz", 55: "c", 56: "?L_\N{EN DASH}\N{DAGGER}", 58: "k", 60: "vxy'",
    62: "FTaeo",
    64: "$0123456789bdghnpqu{}", 67: "EKPSY", 69: "ABVXZ", 73: "CR", 74: "U", 75: "N", 76: "H",
    78: "&DG", 79: "OQ", 82: "w", 84: "#+<=>^~\N{MINUS SIGN}\N{MULTIPLICATION SIGN}", 87: "M",
    96: "%", 98: "m", 99: "W", 102: "@",
}  # fmt: skip
_WIDTHS = {letter: width / 100 for width, letters in _HUNDREDTHS.items() for letter in letters}
_OTHER = 1.1
"""Of other scripts; a Chinese character takes 1.0 font sizes."""
_BOLD = 1.27
"""The most that a letter of the bold face is wider."""
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return the most pixels that a text takes."""
    width = sum(_WIDTHS.get(letter, _OTHER) for letter in text) * size
    return width * _BOLD if bold else width


def fitted(text: str, size: float, width: float) -> str:
    """Return a text that takes at most this many pixels; dots stand for what its middle loses."""
    if text_width(text, size) <= width:
        return text
    room = (width - text_width(ELLIPSIS, size)) / 2
    head = _prefix(text, size, room)
    tail = _prefix(text[::-1], size, room)[::-1]
    return f"{head}{ELLIPSIS}{tail}"


def _prefix(text: str, size: float, width: float) -> str:
    used = 0.0
    for length, letter in enumerate(text):
        used += _WIDTHS.get(letter, _OTHER) * size
        if used > width:
            return text[:length]
    return text


def wrapped(text: str, size: float, width: float) -> Iterator[str]:
    """Yield the lines of a paragraph; a word that is wider than a line is shortened."""
    line = ""
    for word in text.split():
        longer = f"{line} {word}" if line else word
        if line and text_width(longer, size) > width:
            yield line
            line = fitted(word, size, width)
        else:
            line = longer if line else fitted(word, size, width)
    if line:
        yield line


def distinct(texts: Sequence[str], size: float, width: float) -> list[str]:
    """Return the texts, each fitted into a width and numbered where two would look alike."""
    found: list[str] = []
    for text in texts:
        candidate, number = fitted(text, size, width), 1
        while candidate in found:
            number += 1
            mark = f" ({number})"
            candidate = fitted(text, size, width - text_width(mark, size)) + mark
        found.append(candidate)
    return found

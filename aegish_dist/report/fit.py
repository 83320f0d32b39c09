"""Fitting tables into a width: how wide each column is, and which stand side by side."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells

GAPS = (3, 2, 1)
"""Spaces between two columns, the most wanted first."""

MODEL_WIDTHS = (44, 28, 20)
"""Longer model ids are folded to the first of these that some gap leaves room for."""

_PARTS = re.compile(r"[^ /:]*[ /:]|[^ /:]+")
_WORDS = re.compile(r"[^ /:_-]*[ /:_-]|[^ /:_-]+")


@dataclass(frozen=True, slots=True)
class Block:
    """Columns that stand side by side."""

    columns: tuple[int, ...]
    """Indices into the section's columns; the key columns come first in every block."""
    widths: tuple[int, ...]
    gap: int


def fold(text: str, width: int) -> list[str]:
    """Break text into lines, the fewest possible: between the parts of an id, else the words.

    Words are only broken where one alone is too wide.
    """
    by_words = _pack(_WORDS.findall(text), width)
    parts = _PARTS.findall(text)
    if _longest(parts) > width:
        return by_words
    return min(_pack(parts, width), by_words, key=len)


def longest_word(text: str) -> int:
    """Return the width below which `fold` has to break words."""
    return _longest(_WORDS.findall(text))


def _longest(pieces: Sequence[str]) -> int:
    return max((cell_len(piece.rstrip()) for piece in pieces), default=0)


def _pack(pieces: Sequence[str], width: int) -> list[str]:
    lines = [""]
    for piece in pieces:
        if lines[-1] and cell_len((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines += chop_cells(lines.pop() + piece, width)
    return [line.strip() for line in lines if line.strip()]


def fit(widths: Sequence[int], keys: int, total: int) -> list[Block]:
    """Distribute columns over blocks no wider than a total, as far as that is possible.

    Args:
        widths: What each column needs; column `keys - 1` holds the model and may be folded.
    """
    others = sum(widths) - widths[keys - 1]
    wanted = min(widths[keys - 1], MODEL_WIDTHS[0])
    for least in MODEL_WIDTHS:
        for gap in GAPS:
            room = total - others - gap * (len(widths) - 1)
            if room >= min(least, wanted):
                return [_block(range(len(widths)), widths, keys, min(room, wanted), gap)]
    return _split(widths, keys, total)


def _split(widths: Sequence[int], keys: int, total: int) -> list[Block]:
    gap = GAPS[1]
    model_width = min(widths[keys - 1], max(MODEL_WIDTHS[-1], total // 3))
    key_width = sum(widths[: keys - 1]) + gap * (keys - 1) + model_width
    groups: list[list[int]] = [[]]
    used = key_width
    for column in range(keys, len(widths)):
        if groups[-1] and used + gap + widths[column] > total:
            groups.append([])
            used = key_width
        groups[-1].append(column)
        used += gap + widths[column]
    return [_block((*range(keys), *group), widths, keys, model_width, gap) for group in groups]


def _block(
    columns: Sequence[int], widths: Sequence[int], keys: int, model_width: int, gap: int
) -> Block:
    chosen = (model_width if column == keys - 1 else widths[column] for column in columns)
    return Block(tuple(columns), tuple(chosen), gap)

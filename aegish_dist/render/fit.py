"""Fitting tables into a width: how wide each column is, and which stand side by side."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells

GAPS = (3, 2, 1)
"""Spaces between two columns, the most wanted first."""

LEAST_MODEL_WIDTH = 20
"""Model ids are folded down to this before a table is split."""

_PIECE = re.compile(r"[^ /:_-]*[ /:_-]|[^ /:_-]+")


@dataclass(frozen=True, slots=True)
class Block:
    """Columns that stand side by side."""

    columns: tuple[int, ...]
    """Indices into the section's columns; the key columns come first in every block."""
    widths: tuple[int, ...]
    """Width of each of them."""
    gap: int
    """Spaces between two of them."""


def fold(text: str, width: int) -> list[str]:
    """Break text into lines at spaces and the joints of an id, and in mid-word if it must be."""
    lines = [""]
    for piece in _PIECE.findall(text):
        if lines[-1] and cell_len((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines += chop_cells(lines.pop() + piece, width)
    return [line.strip() for line in lines if line.strip()]


def longest_piece(text: str) -> int:
    """Return the width below which `fold` has to break words."""
    return max((cell_len(piece.rstrip()) for piece in _PIECE.findall(text)), default=0)


def fit(widths: Sequence[int], keys: int, total: int) -> list[Block]:
    """Distribute columns over blocks no wider than a total, as far as that is possible.

    Args:
        widths: What each column needs; column `keys - 1` holds the model and may be folded.
        keys: How many leading columns every block repeats.
        total: Width to fit into.
    """
    wanted = widths[keys - 1]
    rooms = {gap: total - sum(widths) + wanted - gap * (len(widths) - 1) for gap in GAPS}
    for least in (wanted, LEAST_MODEL_WIDTH):
        for gap, room in rooms.items():
            if room >= least:
                return [_block(range(len(widths)), widths, keys, min(room, wanted), gap)]
    return _split(widths, keys, total)


def _split(widths: Sequence[int], keys: int, total: int) -> list[Block]:
    gap = GAPS[1]
    model_width = min(widths[keys - 1], max(LEAST_MODEL_WIDTH, total // 3))
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

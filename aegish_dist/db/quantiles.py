"""Exact quantiles of a million numbers without sorting them all.

A sample tells between which two edges a quantile almost surely lies. Numbers outside of all such
brackets count only by their rank, so those of one gap are made equal before they are sorted, and
sorting equal numbers is nearly free: half of the time is left. Whether the quantiles did lie within
their brackets is checked, so the sample decides how long it takes, never the result (after Floyd
and Rivest 1975, "Expected time bounds for selection"). The statements are `draw_times` and
`add_up_totals` in `sql/counting.sql`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

FRACTIONS = (0.5, 0.9, 0.99)
"""The quantiles asked for beside the greatest number."""
MARGIN = 0.0001
"""How far beside a fraction its bracket is checked."""
DRAWS = 4096
"""Items looked up, in a hundredth of the time of counting a million."""
STANDARD_ERRORS = 5.0
"""Half the width of a bracket: one in a million misses."""

RANKS = (*(round(p + beside, 4) for p in FRACTIONS for beside in (-MARGIN, 0, MARGIN)), 1.0)
"""Ranks at which `quantiles_of` needs the numbers: three per fraction, and the greatest."""


def _reach(fraction: float) -> float:
    return STANDARD_ERRORS * math.sqrt(fraction * (1 - fraction) / DRAWS)


DRAWN_RANKS = tuple(p + side * _reach(p) for p in FRACTIONS for side in (-1, 1))
"""Ranks at which `brackets_of` needs the drawn numbers: two per fraction."""


@dataclass(frozen=True, slots=True)
class Bracket:
    """Two edges, themselves inside."""

    low: float
    high: float
    """The upper edge, not below the lower one."""


EVERYWHERE = (Bracket(-math.inf, math.inf),) * len(FRACTIONS)
"""Brackets that need no sample and never fail; all numbers are sorted."""


def brackets_of(drawn: int, edges: Sequence[float] | None) -> tuple[Bracket, ...]:
    """Return the brackets that a sample suggests.

    Args:
        drawn: How many numbers were drawn, 0 to `DRAWS`.
        edges: The drawn numbers at `DRAWN_RANKS`; None when none was drawn.

    Returns:
        One bracket per fraction; `EVERYWHERE` for a sample that is too small.
    """
    if edges is None or drawn < DRAWS / 2:
        return EVERYWHERE
    return tuple(map(Bracket, edges[::2], edges[1::2]))


def edges_of(brackets: Sequence[Bracket]) -> list[float]:
    """Return the edges to bind: before those of each bracket the number that stands for the gap.

    The greatest number is asked for too, so there is no gap after the last bracket.
    """
    edges: list[float] = []
    before = -math.inf
    for bracket in brackets:
        gap = before if before == -math.inf else before / 2 + bracket.low / 2
        edges += (gap, bracket.low, bracket.high)
        before = bracket.high
    return [*edges[:-1], math.inf]


def quantiles_of(
    times: int, found: Sequence[float], brackets: Sequence[Bracket]
) -> tuple[float, ...] | None:
    """Return the quantiles at `FRACTIONS` and the greatest number.

    With at least one rank between a fraction and the ones beside it, both numbers that its quantile
    is interpolated from lie between theirs; and these lie within the bracket, where no number was
    changed.

    Args:
        times: How many numbers there are, at least 1.
        found: The numbers at `RANKS`, those outside of the brackets made equal.

    Returns:
        None where a bracket missed.
    """
    below, at, above = found[:-1:3], found[1::3], found[2::3]
    hit = all(
        bracket.low <= low and high <= bracket.high
        for bracket, low, high in zip(brackets, below, above, strict=True)
    )
    if tuple(brackets) != EVERYWHERE and not (hit and (times - 1) * MARGIN >= 2):
        return None
    return (*at, found[-1])

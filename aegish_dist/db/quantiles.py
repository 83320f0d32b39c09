"""Exact quantiles of a million numbers without sorting them all.

A sample tells between which two edges a quantile surely lies. Numbers outside of all such brackets
count only by their rank, so those of one gap are made equal before they are sorted, and sorting
equal numbers is nearly free: half of the time is left. Whether the quantiles did lie within
their brackets is checked: the sample decides how long it takes, never what comes out (after Floyd
and Rivest 1975, "Expected time bounds for selection").
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aegish_dist.db.codes import ANSWERED

FRACTIONS = (0.5, 0.9, 0.99)
"""The quantiles asked for beside the greatest number."""
MARGIN = 0.0001
"""How far beside a fraction its bracket is checked."""
SAMPLE = 4096
"""Items looked up, in a hundredth of the time of counting a million."""
STANDARD_ERRORS = 5.0
"""Half the width of a bracket: one in a million misses."""


@dataclass(frozen=True, slots=True)
class Bracket:
    """Two edges, themselves inside."""

    low: float
    high: float


EVERYWHERE = (Bracket(-math.inf, math.inf),) * len(FRACTIONS)
"""Brackets that need no sample and never fail; all numbers are sorted."""


def sample_statement(columns: Sequence[str]) -> str:
    """Return the SQL whose row holds, for each column, what `brackets_of` takes.

    Items are drawn all along the keys: one draw from each of as many equal stretches.
    """
    reach = [STANDARD_ERRORS * math.sqrt(p * (1 - p) / SAMPLE) for p in FRACTIONS]
    edges = ", ".join(f"{p + r}" for p, by in zip(FRACTIONS, reach, strict=True) for r in (-by, by))
    found = ", ".join(
        f"count({column}), percentile_disc(ARRAY[{edges}]) WITHIN GROUP (ORDER BY {column})"
        for column in columns
    )
    return f"""
        WITH known AS (
            SELECT min(sample_key) AS first, max(sample_key) - min(sample_key) + 1 AS keys
            FROM verdicts WHERE run_model_id = :model
        ), drawn AS MATERIALIZED (
            SELECT first + floor((n + random()) * keys / {SAMPLE})::bigint AS key
            FROM known, generate_series(0, {SAMPLE - 1}) AS n
        )
        SELECT {found}
        FROM drawn CROSS JOIN LATERAL (
            SELECT {", ".join(columns)} FROM verdicts
            WHERE run_model_id = :model AND sample_key = drawn.key AND {ANSWERED}
            LIMIT 1  -- one look-up per key, also where PostgreSQL knows nothing of the table yet
        ) AS item
    """  # noqa: S608  # nosec B608 # put together from nothing but this module and names of columns


def brackets_of(found: int, edges: Sequence[float] | None) -> tuple[Bracket, ...]:
    """Return the brackets that a sample of so many numbers suggests."""
    if edges is None or found < SAMPLE / 2:
        return EVERYWHERE
    return tuple(map(Bracket, edges[::2], edges[1::2]))


def quantiles_sql(column: str) -> str:
    """Return the SQL aggregate whose result `quantiles_of` takes; `:{column}_edges` is bound."""
    edges = [f"(:{column}_edges)[{n}]" for n in range(1, 3 * len(FRACTIONS) + 1)]
    cases = " ".join(
        f"WHEN {column} < {low} THEN {below} WHEN {column} <= {high} THEN {column}"
        for below, low, high in zip(edges[::3], edges[1::3], edges[2::3], strict=True)
    )
    asked = [f"{p + beside:.4f}" for p in FRACTIONS for beside in (-MARGIN, 0, MARGIN)]
    return (
        f"percentile_cont(ARRAY[{', '.join(asked)}, 1])"
        f" WITHIN GROUP (ORDER BY CASE {cases} ELSE {column} END)"
    )


def edges_of(brackets: Sequence[Bracket]) -> list[float]:
    """Return what to bind: before the edges of each bracket the number that stands for the gap.

    The greatest number is asked for too, so that there is no gap after the last bracket.
    """
    edges: list[float] = []
    before = -math.inf
    for bracket in brackets:
        gap = before if before == -math.inf else before / 2 + bracket.low / 2
        edges += (gap, bracket.low, bracket.high)
        before = bracket.high
    return [*edges[:-1], math.inf]


def quantiles_of(
    number: int, found: Sequence[float], brackets: Sequence[Bracket]
) -> tuple[float, ...] | None:
    """Return the quantiles of so many numbers and the greatest; None where a bracket missed.

    With at least one rank between a fraction and the ones beside it, both numbers that its quantile
    is interpolated from lie between theirs; and these lie within the bracket, where no number was
    changed.
    """
    below, at, above = found[:-1:3], found[1::3], found[2::3]
    hit = all(
        bracket.low <= low and high <= bracket.high
        for bracket, low, high in zip(brackets, below, above, strict=True)
    )
    if tuple(brackets) != EVERYWHERE and not (hit and (number - 1) * MARGIN >= 2):
        return None
    return (*at, found[-1])

"""What the verdicts of one model used, cost and took."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from sqlalchemy.orm import Session

from aegish_dist.core.tally import Latency, TokenTotals
from aegish_dist.db.identity import local_hash
from aegish_dist.db.per_model import PerModel
from aegish_dist.db.quantiles import EVERYWHERE, Bracket, brackets_of, edges_of, quantiles_of
from aegish_dist.db.tally_sql import PARTS, SAMPLED, SPENT, SPENT_AND_LATENCY

SUMS = slice(2, 9)
"""Columns of `SPENT_AND_LATENCY` that `SPENT` has too."""
SAMPLED_FROM = 100_000
"""Planned verdicts of a model from which a sample is worth its time."""

_Brackets = Mapping[str, tuple[Bracket, ...]]
"""By part of the time."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a model's verdicts, and how its times are distributed."""

    local_hash: str
    """As in `VerdictSet`."""
    tokens: TokenTotals
    cost_usd: Decimal | None
    """None when none is priced."""
    priced_verdicts: int
    replaced: int
    """Verdicts that a retry has replaced."""
    latency: dict[str, Latency]
    """By part; one that nobody timed is absent."""


def add_up(models: PerModel, model: str, session: Session) -> Totals:
    """Add up the verdicts of a model: tokens and costs of all, times of those that count."""
    brackets = _brackets(models, model, session)
    row = _spent_and_latency(models, model, session, brackets)
    if (latency := _latency(row, brackets)) is None:
        brackets = dict.fromkeys(PARTS, EVERYWHERE)
        row = _spent_and_latency(models, model, session, brackets)
        latency = _latency(row, brackets)
    spent, replaced = list(row[SUMS]), 0
    if models.retried:  # a retry costs as much as a first try, and the first try was not free
        ((*before, replaced),) = models.superseded(session, SPENT, model)
        spent = [_plus(a, b) for a, b in zip(spent, before, strict=True)]
    *tokens, cost_usd, priced = spent
    return Totals(
        local_hash=local_hash(row.verdicts, row.row_hashes),
        tokens=TokenTotals(*(None if total is None else int(total) for total in tokens)),
        cost_usd=cost_usd,
        priced_verdicts=priced,
        replaced=replaced,
        latency=latency or {},
    )


def _brackets(models: PerModel, model: str, session: Session) -> _Brackets:
    if models.run.planned_per_model < SAMPLED_FROM:
        return dict.fromkeys(PARTS, EVERYWHERE)
    (row,) = models.newest(session, SAMPLED, model)
    parts = zip(PARTS, row[::2], row[1::2], strict=True)
    return {part: brackets_of(found, edges) for part, found, edges in parts}


def _spent_and_latency(models: PerModel, model: str, session: Session, brackets: _Brackets) -> Any:
    edges = {f"{part}_edges": edges_of(brackets[part]) for part in PARTS}
    (row,) = models.newest(session, SPENT_AND_LATENCY, model, **edges)
    return row


def _latency(row: Sequence[Any], brackets: _Brackets) -> dict[str, Latency] | None:
    """Read the distributions of a row; None where a bracket missed."""
    latency = {}
    timed = row[SUMS.stop :]
    parts = zip(PARTS, timed[::3], timed[1::3], timed[2::3], strict=True)
    for part, number, micros, found in parts:
        if not number:
            continue
        quantiles = quantiles_of(number, found, brackets[part])
        if quantiles is None:
            return None
        latency[part] = Latency(float(Fraction(int(micros), 1000 * number)), *quantiles)
    return latency


def _plus(a: Any, b: Any) -> Any:
    return b if a is None else a if b is None else a + b

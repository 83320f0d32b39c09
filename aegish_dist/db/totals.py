"""Sums over the verdicts of one model: tokens and cost, and how its times are distributed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from fractions import Fraction
from functools import reduce
from operator import add
from typing import Any

from sqlalchemy import Row
from sqlalchemy.orm import Session

from aegish_dist.core.tally import Latency, TokenTotals
from aegish_dist.db.identity import local_hash
from aegish_dist.db.per_model import PerModel
from aegish_dist.db.quantiles import (
    DRAWN_RANKS,
    DRAWS,
    EVERYWHERE,
    RANKS,
    Bracket,
    brackets_of,
    edges_of,
    quantiles_of,
)
from aegish_dist.db.statements import counting_statement, statement

PARTS = ("service", "queue", "limiter", "backoff", "total")
"""Parts of the time of a call; the columns of `add_up_totals` begin with these words."""
SAMPLED_FROM = 100_000
"""Planned verdicts of a model from which a sample is worth its time."""

_DRAW_TIMES = statement("draw_times")
_ADD_UP_TOTALS = counting_statement("add_up_totals")
_ADD_UP_SPENT = counting_statement("add_up_spent")
_TOKENS = tuple(field.name for field in fields(TokenTotals))

_Brackets = Mapping[str, tuple[Bracket, ...]]


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over a model's verdicts, and how its times are distributed."""

    local_hash: str
    tokens: TokenTotals
    """Tokens of all verdicts, those that a retry has replaced included."""
    cost_usd: Decimal | None
    """Cost of all verdicts, in USD; None when none is priced."""
    priced_verdicts: int
    replaced: int
    latency: dict[str, Latency]
    """By part; one that was never timed is absent."""


def add_up(models: PerModel, model: str, session: Session) -> Totals:
    """Add up the verdicts of a model: tokens and costs of all, times of those that count."""
    brackets = _brackets(models, model, session)
    row = _totals(models, model, session, brackets)
    if (latency := _latency(row, brackets)) is None:
        brackets = dict.fromkeys(PARTS, EVERYWHERE)
        row = _totals(models, model, session, brackets)
        latency = _latency(row, brackets)
    # A retry costs as much as a first try, and the first try was not free.
    replaced = models.superseded(session, _ADD_UP_SPENT, model)
    spent = [row, *replaced]
    tokens = {name: _sum(spent, f"{name}_tokens") for name in _TOKENS}
    return Totals(
        local_hash=local_hash(row.verdicts, row.row_hashes),
        tokens=TokenTotals(**{name: n if n is None else int(n) for name, n in tokens.items()}),
        cost_usd=_sum(spent, "cost_usd"),
        priced_verdicts=sum(each.priced for each in spent),
        replaced=sum(each.verdicts for each in replaced),
        latency=latency or {},
    )


def _brackets(models: PerModel, model: str, session: Session) -> _Brackets:
    if models.run.planned_per_model < SAMPLED_FROM:
        return dict.fromkeys(PARTS, EVERYWHERE)
    values = {"model": models.keys[model], "draws": DRAWS, "ranks": list(DRAWN_RANKS)}
    drawn = session.execute(_DRAW_TIMES, values).one()
    return {
        part: brackets_of(getattr(drawn, f"{part}_times"), getattr(drawn, f"{part}_edges"))
        for part in PARTS
    }


def _totals(models: PerModel, model: str, session: Session, brackets: _Brackets) -> Row[Any]:
    edges = {f"{part}_edges": edges_of(brackets[part]) for part in PARTS}
    (row,) = models.newest(session, _ADD_UP_TOTALS, model, ranks=list(RANKS), **edges)
    return row


def _latency(row: Row[Any], brackets: _Brackets) -> dict[str, Latency] | None:
    """Return the distributions of a row; None where a bracket missed."""
    latency = {}
    for part in PARTS:
        times: int = getattr(row, f"{part}_times")
        if not times:
            continue
        quantiles = quantiles_of(times, getattr(row, f"{part}_quantiles"), brackets[part])
        if quantiles is None:
            return None
        mean = float(Fraction(int(getattr(row, f"{part}_micros")), 1000 * times))
        latency[part] = Latency(mean, *quantiles)
    return latency


def _sum(rows: Sequence[Row[Any]], column: str) -> Any:
    """Return the sum of a column; None where no row has a value."""
    known = [value for row in rows if (value := getattr(row, column)) is not None]
    return reduce(add, known) if known else None

"""Sums over the verdicts of one model: tokens and cost, and how its times are distributed."""

from collections.abc import Sequence
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
from aegish_dist.db.statements import counting_statement

PARTS = ("service", "queue", "limiter", "backoff", "total")
"""Parts of the time of a call; the columns of `add_up_totals` begin with these words."""
FRACTIONS = (0.5, 0.9, 0.99, 1.0)
"""The quantiles of `Latency`, and its greatest time."""

_ADD_UP_TOTALS = counting_statement("add_up_totals")
_ADD_UP_SPENT = counting_statement("add_up_spent")
_TOKENS = tuple(field.name for field in fields(TokenTotals))


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
    (row,) = models.newest(session, _ADD_UP_TOTALS, model, fractions=list(FRACTIONS))
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
        latency=_latency(row),
    )


def _latency(row: Row[Any]) -> dict[str, Latency]:
    latency = {}
    for part in PARTS:
        times: int = getattr(row, f"{part}_times")
        if times:
            mean = float(Fraction(int(getattr(row, f"{part}_micros")), 1000 * times))
            latency[part] = Latency(mean, *getattr(row, f"{part}_quantiles"))
    return latency


def _sum(rows: Sequence[Row[Any]], column: str) -> Any:
    """Return the sum of a column; None where no row has a value."""
    known = [value for row in rows if (value := getattr(row, column)) is not None]
    return reduce(add, known) if known else None

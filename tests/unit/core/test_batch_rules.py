"""Decisions about batches, with values by hand."""

from decimal import Decimal

import pytest

from aegish_dist.core.batch import BatchItem, BatchLimits
from aegish_dist.core.batch_rules import (
    BatchPace,
    Cut,
    SizedItem,
    cut,
    is_permanent,
    may_exist,
)
from aegish_dist.core.verdict import ErrorClass

ITEMS = tuple(BatchItem(key, 1, 0) for key in range(1, 6))
ROOM = BatchLimits(requests=100, bytes=1000)


def sized(size: int = 10, usd: str | None = "0.5") -> list[SizedItem]:
    return [SizedItem(item, size, None if usd is None else Decimal(usd)) for item in ITEMS]


@pytest.mark.parametrize(
    ("limits", "left", "found"),
    [
        (ROOM, None, Cut(ITEMS, Decimal("2.5"))),
        (BatchLimits(2, 1000), None, Cut(ITEMS[:2], Decimal("1.0"))),
        (BatchLimits(100, 39), None, Cut(ITEMS[:3], Decimal("1.5"))),
        (BatchLimits(100, 9), None, Cut(ITEMS[:1], Decimal("0.5"))),
        (ROOM, Decimal("2.5"), Cut(ITEMS, Decimal("2.5"))),
        (ROOM, Decimal("1.9"), Cut(ITEMS[:3], Decimal("1.5"), short_of_money=True)),
        (ROOM, Decimal("0.4"), Cut((), Decimal(0), short_of_money=True)),
        (ROOM, Decimal(-1), Cut((), Decimal(0), short_of_money=True)),
    ],
)
def test_a_batch_ends_at_the_first_limit(
    limits: BatchLimits, left: Decimal | None, found: Cut
) -> None:
    """Requests, bytes or money; a request that is too large by itself is the provider's."""
    assert cut(sized(), limits, left) == found


def test_a_batch_without_a_price() -> None:
    """Its cost is unknown, and no cap cuts it."""
    assert cut(sized(usd=None), ROOM, Decimal(0)) == Cut(ITEMS, None)
    assert cut([], ROOM, None) == Cut((), Decimal(0))


@pytest.mark.parametrize(
    ("status", "may"),
    [(None, True), (500, True), (502, True), (408, True), (200, True), (400, False), (429, False)],
)
def test_only_a_refusal_says_that_nothing_was_created(status: int | None, may: bool) -> None:
    """Everything else is looked for before it is made again."""
    assert may_exist(status) is may


def test_pauses() -> None:
    """Looks come from 10 s to 5 min apart, failures double, and Retry-After is a minimum."""
    pace = BatchPace()

    assert [pace.next_poll_s(age) for age in (0, 100, 1000, 86_400)] == [10, 10, 100, 300]
    assert [pace.after_failures_s(n) for n in (1, 2, 3, 6, 1000)] == [10, 20, 40, 300, 300]
    assert pace.after_failures_s(1, 700) == 700
    assert (pace.lease_s, pace.certain_s) == (60, 300)


def test_only_bad_requests_are_the_rows_own() -> None:
    """Every other class passes, or belongs to the key, the account or the host."""
    assert [kind for kind in ErrorClass if is_permanent(kind)] == [ErrorClass.BAD_REQUEST]

"""Lines of a batch's results, and decisions about batches with values by hand."""

from decimal import Decimal

import pytest

from aegish_dist.core.batches import (
    BatchItem,
    BatchLimits,
    BatchPace,
    BatchResult,
    ResultReader,
    SizedItem,
    Unanswered,
    may_exist,
    next_batch,
)
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.verdict import Completion
from aegish_dist.errors import ProviderError

TOKEN = "0123456789abcdef"
ITEMS = tuple(BatchItem(key, 1, 0) for key in range(1, 5))
FIRST = ITEMS[0].name(TOKEN)
CUT = BatchResult("", ProviderError("no JSON", error_class=ErrorClass.MALFORMED))


def read(*results: BatchResult) -> ResultReader:
    reader = ResultReader(TOKEN, frozenset(ITEMS))
    for result in results:
        reader.read(result)
    return reader


def test_every_line_counts_once_under_one_kind() -> None:
    refused = ProviderError("no", error_class=ErrorClass.BAD_REQUEST, status=400)
    passing = ProviderError("later", error_class=ErrorClass.SERVER, status=500)
    reader = read(
        BatchResult(FIRST, Completion("a")),
        BatchResult(FIRST, Completion("b")),
        BatchResult(f"1{FIRST[1:]}", Completion("c")),
        CUT,
        BatchResult(ITEMS[1].name(TOKEN), refused),
        BatchResult(ITEMS[2].name(TOKEN), passing),
    )
    reader.finish()
    kinds = ("succeeded", "duplicate", "foreign", "malformed", "refused", "errored", "missing")
    assert reader.numbers() == dict.fromkeys(kinds, 1)
    assert set(reader.problems) == {ITEMS[2], ITEMS[3]}
    assert set(reader.refused) == {ITEMS[1]}


@pytest.mark.parametrize(
    ("results", "foreign"),
    [
        ([CUT], False),
        ([BatchResult("another-1-1-0", Completion("a"))], True),
        ([BatchResult("another-1-1-0", Completion("a")), CUT], True),
        ([BatchResult(FIRST, Unanswered.EXPIRED), CUT], False),
        ([], False),
    ],
)
def test_a_batch_is_anothers_by_names_alone(results: list[BatchResult], foreign: bool) -> None:
    """A line without a name tells nothing: to take ours for another's would pay it twice."""
    assert read(*results).is_foreign is foreign


def test_results_may_lack_answers_that_the_provider_counts() -> None:
    reader = read(BatchResult(FIRST, Completion("a")), BatchResult(FIRST, Completion("a")), CUT)
    assert [reader.lacks_answers(count) for count in (None, 0, 1, 2)] == [False, False, False, True]


def test_a_batch_whose_items_were_settled_before_a_break_is_the_right_one() -> None:
    """Else it would be looked for again, not be found, and be created without requests."""
    reader = ResultReader(TOKEN, frozenset())
    assert reader.read(BatchResult(FIRST, Completion("a"))) is None
    assert not reader.is_foreign
    assert not reader.lacks_answers(1)
    assert reader.lacks_answers(2)


FIVE = (*ITEMS, BatchItem(5, 1, 0))
ROOM = BatchLimits(requests=100, bytes=1000)


def sized(usd: str | None = "0.5") -> list[SizedItem]:
    return [(item, 10, None if usd is None else Decimal(usd)) for item in FIVE]


@pytest.mark.parametrize(
    ("limits", "left", "items", "usd", "short"),
    [
        (ROOM, None, 5, "2.5", False),
        (BatchLimits(2, 1000), None, 2, "1.0", False),
        (BatchLimits(100, 39), None, 3, "1.5", False),
        (BatchLimits(100, 9), None, 1, "0.5", False),
        (ROOM, "2.5", 5, "2.5", False),
        (ROOM, "1.9", 3, "1.5", True),
        (ROOM, "0.4", 0, "0", True),
        (ROOM, "-1", 0, "0", True),
    ],
)
def test_a_batch_ends_at_the_first_limit(
    limits: BatchLimits, left: str | None, items: int, usd: str, short: bool
) -> None:
    found = next_batch(sized(), limits, None if left is None else Decimal(left))
    assert found == (FIVE[:items], Decimal(usd), short)


def test_a_batch_without_a_price() -> None:
    assert next_batch(sized(usd=None), ROOM, Decimal(0)) == (FIVE, None, False)
    assert next_batch([], ROOM, None) == ((), Decimal(0), False)


@pytest.mark.parametrize(
    ("status", "may"),
    [
        (None, True),
        (500, True),
        (502, True),
        (408, True),
        (200, True),
        (400, False),
        (429, False),
        (409, True),
        (499, True),
    ],
)
def test_only_a_refusal_says_that_nothing_was_created(status: int | None, may: bool) -> None:
    assert may_exist(status) is may


def test_pauses() -> None:
    """Looks come from 10 s to 5 min apart, failures double, and Retry-After is a minimum."""
    pace = BatchPace()
    assert [pace.next_poll_s(age) for age in (0, 100, 1000, 86_400)] == [10, 10, 100, 300]
    assert [pace.after_failures_s(n) for n in (1, 2, 3, 6, 1000)] == [10, 20, 40, 300, 300]
    assert pace.after_failures_s(1, 700) == 700
    assert pace.after_failures_s(1, 1e9) == 86_400
    assert (pace.lease_s, pace.certain_s) == (60, 300)

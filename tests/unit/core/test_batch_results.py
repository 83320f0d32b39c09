"""Lines of a batch's results: which item each is about, and which count for nothing."""

import pytest

from aegish_dist.core.batch import BatchItem, BatchResult, Unanswered
from aegish_dist.core.batch_results import ResultReader
from aegish_dist.core.completion import Completion
from aegish_dist.core.verdict import ErrorClass
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
    """Two of one name, one of another batch, one that is cut, and errors of both sorts."""
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
    """A second line of one name is no second answer; without a count nothing is lacking."""
    reader = read(BatchResult(FIRST, Completion("a")), BatchResult(FIRST, Completion("a")), CUT)
    assert [reader.lacks_answers(count) for count in (None, 0, 1, 2)] == [False, False, False, True]


def test_a_batch_whose_items_were_settled_before_a_break_is_the_right_one() -> None:
    """Else it would be looked for again, not be found, and be created without requests."""
    reader = ResultReader(TOKEN, frozenset())
    assert reader.read(BatchResult(FIRST, Completion("a"))) is None
    assert not reader.is_foreign
    assert not reader.lacks_answers(1)
    assert reader.lacks_answers(2)

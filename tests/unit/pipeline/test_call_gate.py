"""Failed calls of items that a worker holds."""

from datetime import UTC, datetime, timedelta

import pytest

from aegish_dist.core.verdict import CallError, ErrorClass, Item
from aegish_dist.pipeline.call_gate import FailingItems

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ITEM, OTHER = Item("run", "lab/a", 1, 1), Item("run", "lab/a", 2, 1)


def an_error(
    ago_s: float, message: str, error_class: ErrorClass = ErrorClass.RATE_LIMIT
) -> CallError:
    return CallError(1, error_class, 429, None, message, NOW - timedelta(seconds=ago_s))


def test_calls_that_are_alike_are_counted_together() -> None:
    """The newest one stands for them, without its key; those of the last minute are counted."""
    failing = FailingItems()
    failing.note(ITEM, [an_error(90, "old"), an_error(10, "newest sk-abcdefghij0123456789")])
    failing.note(OTHER, [an_error(20, "between"), an_error(1, "no", ErrorClass.SERVER)])
    (limited, server) = failing.by_run(NOW)["run"]
    assert (limited.calls, limited.calls_lately, limited.message) == (3, 2, "newest [key]")
    assert limited.at == NOW - timedelta(seconds=10)
    assert (server.calls, server.error_class) == (1, ErrorClass.SERVER)

    failing.forget(ITEM)
    failing.forget(OTHER)
    assert failing.by_run(NOW) == {}


def test_pauses_are_counted_while_they_last() -> None:
    failing = FailingItems()
    with failing.pausing(ITEM), failing.pausing(OTHER):
        assert failing.backing_off == {("run", "lab/a"): 2}
    with pytest.raises(ZeroDivisionError), failing.pausing(ITEM):
        raise ZeroDivisionError
    assert failing.backing_off == {}

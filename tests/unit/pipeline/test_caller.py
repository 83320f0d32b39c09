"""Expected use of calls, and failed calls of items that a worker holds."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from aegish_dist.core.model import Price, Rate
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.run import COMMAND_SLOT, Prompt
from aegish_dist.core.verdict import CallError, Completion, Item, Usage
from aegish_dist.pipeline.caller import FailingItems, UsageEstimator, counting
from aegish_dist.ratelimit.fair_queue import Budget, ExpectedUsage

PROMPT = Prompt("guard", "s" * 300, f"{COMMAND_SLOT}{'t' * 90}")
PRICE = Price(input=Rate(Decimal(2)), output=Rate(Decimal(10)))
CAPPED = Budget(run_cap=1)


def test_the_first_call() -> None:
    """A quarter of 400 characters, 10 tokens of framing, and an answer of 60 at their prices."""
    expected = UsageEstimator(PROMPT, PRICE, CAPPED).expected("c" * 10)
    assert expected == ExpectedUsage(100 + 10 + 60, 110 * 2_000 + 60 * 10_000)


def test_a_run_without_a_cap() -> None:
    assert UsageEstimator(PROMPT, PRICE, None).expected("c" * 10) == ExpectedUsage(170, 0)


def test_long_answers_are_expected_again() -> None:
    """A model that reasons for 1,060 tokens is expected to write a tenth more of that each time."""
    estimator = UsageEstimator(PROMPT, PRICE, CAPPED)
    used = estimator.used(Completion("{}", usage=Usage(100, 1060)), 0.5)
    assert used == (1160, 100 * 2_000 + 1060 * 10_000)
    assert estimator.expected("c" * 10).tokens == 110 + 160


@pytest.mark.parametrize("usage", [Usage(), Usage(input_tokens=5), Usage(output_tokens=60)])
def test_unknown_usage(usage: Usage) -> None:
    tokens, cost = UsageEstimator(PROMPT, PRICE, CAPPED).used(Completion("{}", usage=usage), 0.5)
    assert tokens is None
    assert (cost is None) == (usage == Usage())


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
    (server, limited) = failing.by_run(NOW)["run"]
    assert (limited.calls, limited.calls_lately, limited.message) == (3, 2, "newest [key]")
    assert limited.at == NOW - timedelta(seconds=10)
    assert (server.calls, server.error_class) == (1, ErrorClass.SERVER)
    failing.forget(ITEM)
    failing.forget(OTHER)
    assert failing.by_run(NOW) == {}


def test_pauses_are_counted_while_they_last() -> None:
    failing = FailingItems()
    with counting(failing.backing_off, ITEM), counting(failing.backing_off, OTHER):
        assert failing.backing_off == {("run", "lab/a"): 2}
    with pytest.raises(ZeroDivisionError), counting(failing.backing_off, ITEM):
        raise ZeroDivisionError
    assert failing.backing_off == {}

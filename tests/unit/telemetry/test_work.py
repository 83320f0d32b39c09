"""Counts of verdicts and calls."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from aegish_dist.core.completion import Completion, Usage
from aegish_dist.core.verdict import CallError, ErrorClass, Outcome, Timing, Verdict
from aegish_dist.telemetry.exposition import Buckets
from aegish_dist.telemetry.work import MOST_MODELS, Work

NOW = datetime(2026, 11, 1, tzinfo=UTC)
ANSWER = Completion("{}", usage=Usage(100, 20, None, 5, None))
TIMING = Timing(1500.0, 0.0, 250.0, 900.0, 2650.0)


def failed(attempt: int, kind: ErrorClass = ErrorClass.RATE_LIMIT) -> CallError:
    return CallError(attempt, kind, 429, None, "slow down", NOW)


def verdict(**fields: Any) -> Verdict:
    usual: dict[str, Any] = {"outcome": Outcome.BLOCK, "completion": ANSWER, "timing": TIMING}
    return Verdict(**(usual | fields))


def test_a_group_counts_once() -> None:
    """Its verdicts by outcome, tokens and cost where they are known, and its own size and time."""
    work = Work()
    lost = verdict(outcome=Outcome.API_ERROR, completion=None, timing=Timing(total_ms=1.0))
    work.stored([("a/b", verdict(cost_usd=Decimal("0.5"))), ("a/b", verdict()), ("c/d", lost)], 0.3)

    read = work.readings
    assert read["aegish_verdicts_total"] == {("a/b", "BLOCK"): 2, ("c/d", "API_ERROR"): 1}
    assert read["aegish_tokens_total"] == {
        ("a/b", "input"): 200,
        ("a/b", "output"): 40,
        ("a/b", "cache_read"): 10,
    }
    assert read["aegish_cost_usd_total"] == {("a/b",): 0.5}
    # Bounds 1, 2, 5, ... and 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, ...
    assert read["aegish_store_group_verdicts"][()] == Buckets((0, 0, 1, *[0] * 7), 3.0)
    assert read["aegish_store_write_seconds"][()] == Buckets((*[0] * 7, 1, *[0] * 4), 0.3)


def test_times_are_counted_by_part() -> None:
    """In seconds, each in the first bucket whose bound is not less."""
    work = Work()
    work.stored([("a/b", verdict())], 0.0)

    waits = work.readings["aegish_wait_seconds"]
    # Bounds 0.005, 0.02, 0.1, 0.25, 0.5, 1, 2, ...
    assert waits["a/b", "queue"] == Buckets((*[0] * 6, 1, *[0] * 7), 1.5)
    assert waits["a/b", "limiter"] == Buckets((1, *[0] * 13), 0.0)
    assert waits["a/b", "backoff"] == Buckets((0, 0, 0, 1, *[0] * 10), 0.25)
    assert waits["a/b", "service"] == Buckets((*[0] * 5, 1, *[0] * 8), 0.9)


def test_calls_and_retries() -> None:
    """Two 429s and an answer are three calls, of which two followed a failed one."""
    work = Work()
    work.failed("a/b", failed(1))
    work.failed("a/b", failed(2))
    work.stored([("a/b", verdict(call_errors=(failed(1), failed(2)), attempts=3))], 0.0)

    assert work.readings["aegish_calls_total"] == {
        ("a/b", "rate_limit"): 2,
        ("a/b", "answered"): 1,
    }
    assert work.readings["aegish_retries_total"] == {("a/b",): 2}


def test_a_batched_answer_is_no_call() -> None:
    """It has no times either; verdict, tokens and cost count."""
    work = Work()
    work.stored([("a/b", verdict(timing=Timing(), cost_usd=Decimal(1)))], 0.0)

    read = work.readings
    assert read["aegish_verdicts_total"] == {("a/b", "BLOCK"): 1}
    assert read["aegish_calls_total"] == read["aegish_wait_seconds"] == {}
    assert read["aegish_cost_usd_total"] == {("a/b",): 1.0}


def test_the_number_of_models_is_bounded() -> None:
    """Those that come late share one series."""
    work = Work()
    for number in range(MOST_MODELS + 5):
        work.failed(f"a/{number}", failed(1))

    calls = work.readings["aegish_calls_total"]
    assert len(calls) == MOST_MODELS + 1
    assert calls["other", "rate_limit"] == 5

"""Fault plans, scripts and the token bucket."""

from typing import Any

import pytest

from aegish_dist.errors import ConfigError
from aegish_dist.simulator.config import (
    BatchPlan,
    CallFault,
    EndFault,
    Endpoint,
    Fault,
    FaultPlan,
    RateLimit,
    RequestFault,
    TokenBucket,
    parse_calls,
    parse_script,
)


def test_pick_divides_the_unit_interval() -> None:
    """Each fault owns an interval as long as its probability, and the rest is no fault."""
    plan = FaultPlan({Fault.RATE_LIMIT: 0.25, Fault.HANG: 0.5})
    picks = [plan.pick(luck) for luck in (0.1, 0.24, 0.26, 0.74, 0.76, 0.99)]
    limit, hang = Fault.RATE_LIMIT, Fault.HANG
    assert picks == [limit, limit, hang, hang, None, None]


def test_an_empty_plan_never_strikes() -> None:
    assert FaultPlan().pick(1e-12) is None


@pytest.mark.parametrize(
    ("chances", "problem"),
    [
        ({Fault.RESET: 1.1}, "reset is 1.1"),
        ({Fault.RESET: -0.1}, "reset is -0.1"),
        ({Fault.RESET: float("nan")}, "reset is nan"),
        ({Fault.RESET: 0.6, Fault.HANG: 0.6}, "add up to 1.2"),
    ],
)
def test_impossible_probabilities_are_refused(chances: dict[Fault, float], problem: str) -> None:
    """A probability outside [0, 1] or a sum above 1 is a configuration error."""
    with pytest.raises(ConfigError, match=problem):
        FaultPlan(chances)


def test_script_words() -> None:
    """A script mixes ok, statuses and names of faults."""
    script = parse_script(["ok", "429", "529", "hang", "content_filter"])
    assert script == (None, Fault.RATE_LIMIT, Fault.OVERLOADED, Fault.HANG, Fault.CONTENT_FILTER)


def test_unknown_script_word() -> None:
    with pytest.raises(ConfigError, match="'418' is not one of ok, 401"):
        parse_script(["ok", "418"])


def test_faults_of_batches_follow_script_then_chance() -> None:
    """The script covers the first requests of its kind, and of no other."""
    lost, reset = CallFault.LOST, CallFault.RESET
    plan = BatchPlan(
        calls={Endpoint.CREATE: {reset: 0.5}},
        scripts={Endpoint.CREATE: parse_calls(["ok", "lost"])},
    )
    found = [plan.call_fault(Endpoint.CREATE, place, 0.2) for place in range(3)]
    assert found == [None, lost, reset]
    assert plan.call_fault(Endpoint.CREATE, 2, 0.7) is None
    assert plan.call_fault(Endpoint.POLL, 0, 0.2) is None


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"requests": {RequestFault.MISSING: 1.5}}, "missing is 1.5"),
        ({"ends": {EndFault.EXPIRED: 0.6, EndFault.FAILED: 0.6}}, "add up to 1.2"),
        ({"calls": {Endpoint.POLL: {CallFault.LOST: -1.0}}}, "lost is -1.0"),
        ({"list_lag_s": -1.0}, "list_lag_s is -1.0"),
        ({"share": float("nan")}, "share is nan"),
    ],
)
def test_an_impossible_plan_of_batches_is_refused(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        BatchPlan(**values)


def test_burst_then_rate() -> None:
    """After the burst, requests are accepted one per refill interval."""
    bucket = TokenBucket(RateLimit(requests_per_minute=60, burst=2), now_s=100.0)
    assert [bucket.take(100.0), bucket.take(100.0)] == [0.0, 0.0]
    assert bucket.take(100.0) == 1.0
    assert bucket.take(100.25) == 0.75
    assert bucket.take(101.0) == 0.0
    assert bucket.take(101.0) == 1.0


def test_a_long_pause_refills_only_the_burst() -> None:
    """The bucket never holds more than the burst."""
    bucket = TokenBucket(RateLimit(requests_per_minute=6_000, burst=3), now_s=0.0)
    bucket.take(0.0)
    assert (bucket.remaining, bucket.full_in_s) == (2, 0.01)
    assert [bucket.take(1_000.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.01]


def test_waiting_the_stated_time_is_enough() -> None:
    """A client that waits exactly the stated time is accepted, for awkward rates too."""
    bucket, now_s = TokenBucket(RateLimit(requests_per_minute=7), now_s=0.0), 0.0
    bucket.take(now_s)
    for _ in range(200):
        now_s += bucket.take(now_s)
        assert bucket.take(now_s) == 0.0


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (float("nan"), 1), (1, 0)])
def test_impossible_limits_are_refused(rate: float, burst: int) -> None:
    """A rate of nothing or a burst below one is a configuration error."""
    with pytest.raises(ConfigError):
        RateLimit(rate, burst)

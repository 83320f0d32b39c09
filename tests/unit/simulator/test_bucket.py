"""The token bucket."""

import pytest

from aegish_dist.errors import ConfigError
from aegish_dist.simulator.bucket import RateLimit, TokenBucket


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

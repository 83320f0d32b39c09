"""Rate limits in the headers of a response."""

from datetime import UTC, datetime, timedelta

import pytest
from multidict import CIMultiDict

from aegish_dist.core.limits import RateHint
from aegish_dist.providers.rate_headers import rate_hint


def test_openai() -> None:
    """Requests and tokens per minute, what is left of them, and the later of the two resets."""
    headers = CIMultiDict(
        {
            "X-RateLimit-Limit-Requests": "60",
            "X-RateLimit-Remaining-Requests": "59",
            "X-RateLimit-Reset-Requests": "1s",
            "X-RateLimit-Limit-Tokens": "150000",
            "X-RateLimit-Remaining-Tokens": "149984",
            "X-RateLimit-Reset-Tokens": "6m0s",
        }
    )

    assert rate_hint(headers) == RateHint(60, 59, 150_000, 149_984, 360)


def test_anthropic() -> None:
    """The reset is a moment; the seconds until then are counted on this machine's clock."""
    reset = datetime.now(UTC) + timedelta(seconds=30)
    headers = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": reset.isoformat(),
        "anthropic-ratelimit-tokens-limit": "30000",
        "anthropic-ratelimit-tokens-remaining": "29000",
    }

    hint = rate_hint(headers)

    assert hint is not None
    assert (hint.requests_per_minute, hint.requests_remaining) == (50, 0)
    assert (hint.tokens_per_minute, hint.tokens_remaining) == (30_000, 29_000)
    assert hint.reset_s == pytest.approx(30, abs=5)


def test_a_moment_on_the_providers_clock() -> None:
    """Where the provider shows its time, ours may be wrong by years."""
    headers = {
        "date": "Sat, 01 Jan 2000 12:00:00 GMT",
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-reset": "2000-01-01T12:00:40Z",
    }

    assert rate_hint(headers) == RateHint(50, reset_s=40)


@pytest.mark.parametrize(
    ("reset", "seconds"), [("120ms", 0.12), ("1.5s", 1.5), ("2m0s", 120), ("1m0.5s", 60.5)]
)
def test_durations(reset: str, seconds: float) -> None:
    """OpenAI writes durations in hours, minutes, seconds and milliseconds."""
    headers = {"x-ratelimit-limit-requests": "60", "x-ratelimit-reset-requests": reset}

    assert rate_hint(headers) == RateHint(60, reset_s=seconds)


@pytest.mark.parametrize("limit", ["0", "-5", "many", "nan", "inf", "1e3", "99999999999", ""])
def test_absurd_limits(limit: str) -> None:
    """A number that cannot be a limit is ignored."""
    assert rate_hint({"x-ratelimit-limit-requests": limit}) is None


@pytest.mark.parametrize("remaining", ["-1", "61", "lots"])
def test_absurd_remainders(remaining: str) -> None:
    """A remainder beyond the limit is ignored, the limit is not."""
    headers = {"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": remaining}

    assert rate_hint(headers) == RateHint(60)


def test_limits_per_day() -> None:
    """A limit that takes longer than ten minutes to recover is none per minute."""
    headers = {"x-ratelimit-limit-requests": "14400", "x-ratelimit-reset-requests": "1h2m59.56s"}

    assert rate_hint(headers) is None


def test_unknown_reset() -> None:
    """A reset that cannot be read leaves the limit."""
    headers = {"x-ratelimit-limit-requests": "60", "x-ratelimit-reset-requests": "soon"}

    assert rate_hint(headers) == RateHint(60)


def test_no_headers() -> None:
    """Gemini says nothing."""
    assert rate_hint({"content-type": "application/json"}) is None

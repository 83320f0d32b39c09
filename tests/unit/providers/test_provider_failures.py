"""Error responses of the providers, and rate limits in headers."""

from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

import pytest
from msgspec import convert
from multidict import CIMultiDict

from aegish_dist.core.model import RateHint
from aegish_dist.core.verdict import Completion
from aegish_dist.errors import ProviderError
from aegish_dist.providers.failures import rate_hint, settle
from tests.recorded import lines_of

MINUTE = {"x-ratelimit-limit-requests": "60"}
OPENAI = MINUTE | {
    "x-ratelimit-remaining-requests": "59",
    "x-ratelimit-reset-requests": "1s",
    "x-ratelimit-limit-tokens": "150000",
    "x-ratelimit-remaining-tokens": "149984",
    "x-ratelimit-reset-tokens": "6m0s",
}
OTHER_CLOCK = {
    "date": "Sat, 01 Jan 2000 12:00:00 GMT",
    "anthropic-ratelimit-requests-limit": "50",
}
PER_DAY = {"x-ratelimit-limit-requests": "14400", "x-ratelimit-reset-requests": "1h2m59.56s"}
OTHER_RESET = "anthropic-ratelimit-requests-reset"
WITHIN_TEN_MINUTES = ("120ms", "599999.5ms", "1.5s", "600s", "2m0s", "9m59.5s", "soon")
LATER = ("600001ms", "600.5s", "10m0.5s", "1h")


@pytest.mark.parametrize(
    ("headers", "hint"),
    [
        (OPENAI, RateHint(60, 59, 150_000, 149_984)),
        (OTHER_CLOCK | {OTHER_RESET: "2000-01-01T12:09:59Z"}, RateHint(50)),
        (OTHER_CLOCK | {OTHER_RESET: "2000-01-01T12:10:01Z"}, None),
        (PER_DAY, None),
        ({"content-type": "application/json"}, None),
        *(
            (MINUTE | {"x-ratelimit-reset-requests": reset}, hint)
            for resets, hint in ((WITHIN_TEN_MINUTES, RateHint(60)), (LATER, None))
            for reset in resets
        ),
        *(
            (MINUTE | {"x-ratelimit-remaining-requests": absurd}, RateHint(60))
            for absurd in ("-1", "61", "lots")
        ),
        *(
            ({"x-ratelimit-limit-requests": absurd}, None)
            for absurd in ("0", "-5", "many", "nan", "inf", "1e3", "99999999999", "")
        ),
    ],
)
def test_rate_limits_in_headers(headers: dict[str, str], hint: RateHint | None) -> None:
    assert rate_hint(CIMultiDict({name.title(): text for name, text in headers.items()})) == hint


@pytest.mark.parametrize(
    ("seconds", "requests"), [(30, (50, 0)), (595, (50, 0)), (605, (None, None))]
)
def test_a_reset_at_a_moment_is_counted_on_this_machines_clock(
    seconds: int, requests: tuple[float | None, float | None]
) -> None:
    reset = datetime.now(UTC) + timedelta(seconds=seconds)
    of_requests = {"limit": "50", "remaining": "0", "reset": reset.isoformat()}
    headers = {f"anthropic-ratelimit-requests-{key}": text for key, text in of_requests.items()}
    headers["anthropic-ratelimit-tokens-limit"] = "30000"
    headers["anthropic-ratelimit-tokens-remaining"] = "29000"
    assert rate_hint(headers) == RateHint(*requests, 30_000, 29_000)


@pytest.mark.parametrize("recorded", lines_of("failures.jsonl"), ids=itemgetter("what"))
def test_a_recorded_error_response_is_read(recorded: dict[str, Any]) -> None:
    """The class of the failure and the wait that is asked for, or an answer that was withheld."""
    given = recorded["status"], recorded.get("payload"), recorded.get("headers", {})
    if "answer" in recorded:
        assert settle(*given) == convert(recorded["answer"], Completion)
    else:
        with pytest.raises(ProviderError) as caught:
            settle(*given)
        error, expected = caught.value, recorded["error"]
        assert (error.status, error.error_class) == (recorded["status"], expected["error_class"])
        assert error.retry_after_s == expected.get("retry_after_s")
        assert str(error) == expected.get("words", str(error))

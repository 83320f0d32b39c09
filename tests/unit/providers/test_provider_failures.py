"""Error responses of the providers, and rate limits in headers."""

from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace
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
    "anthropic-ratelimit-requests-reset": "2000-01-01T12:00:40Z",
}
PER_DAY = {"x-ratelimit-limit-requests": "14400", "x-ratelimit-reset-requests": "1h2m59.56s"}
DURATIONS = {"120ms": 0.12, "1.5s": 1.5, "2m0s": 120, "1m0.5s": 60.5, "soon": None}


@pytest.mark.parametrize(
    ("headers", "hint"),
    [
        (OPENAI, RateHint(60, 59, 150_000, 149_984, 360)),
        (OTHER_CLOCK, RateHint(50, reset_s=40)),
        (PER_DAY, None),
        ({"content-type": "application/json"}, None),
        *(
            (MINUTE | {"x-ratelimit-reset-requests": reset}, RateHint(60, reset_s=seconds))
            for reset, seconds in DURATIONS.items()
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


def test_a_reset_at_a_moment_is_counted_on_this_machines_clock() -> None:
    reset = datetime.now(UTC) + timedelta(seconds=30)
    of_requests = {"limit": "50", "remaining": "0", "reset": reset.isoformat()}
    headers = {f"anthropic-ratelimit-requests-{key}": text for key, text in of_requests.items()}
    headers["anthropic-ratelimit-tokens-limit"] = "30000"
    headers["anthropic-ratelimit-tokens-remaining"] = "29000"
    hint = rate_hint(headers)
    assert hint is not None
    assert replace(hint, reset_s=None) == RateHint(50, 0, 30_000, 29_000)
    assert hint.reset_s == pytest.approx(30, abs=5)


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

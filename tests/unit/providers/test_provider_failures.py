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


@pytest.mark.parametrize(("headers", "hint"), lines_of("rate_limit_headers.jsonl"))
def test_rate_limits_in_headers(headers: dict[str, str], hint: list[float | None] | None) -> None:
    """A limit counts that is renewed within ten minutes; absurd numbers are none."""
    found = rate_hint(CIMultiDict({name.title(): text for name, text in headers.items()}))
    assert found == (None if hint is None else RateHint(*hint))


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

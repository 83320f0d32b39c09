"""Error responses of the providers, and rate limits in headers."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace
from multidict import CIMultiDict

from aegish_dist.core.model import RateHint
from aegish_dist.core.outcome import ErrorClass, StopKind
from aegish_dist.errors import ProviderError
from aegish_dist.providers.failures import rate_hint, settle

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


PLAN = "You exceeded your current quota, please check your plan and billing details."
GOOGLE_QUOTA = "type.googleapis.com/google.rpc.QuotaFailure"
GOOGLE_RETRY = "type.googleapis.com/google.rpc.RetryInfo"


def failure(
    status: int, payload: object = None, headers: dict[str, str] | None = None
) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        settle(status, payload, headers or {})
    return caught.value


def openai_error(
    message: str, code: str | None = None, kind: str = "invalid_request_error"
) -> dict[str, object]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def anthropic_error(kind: str, message: str) -> dict[str, object]:
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def google_error(status: str, message: str, *details: object) -> dict[str, object]:
    return {"error": {"code": 429, "message": message, "status": status, "details": list(details)}}


def google_quota(name: str, delay: str) -> dict[str, object]:
    quota = {"@type": GOOGLE_QUOTA, "violations": [{"quotaId": name}]}
    retry = {"@type": GOOGLE_RETRY, "retryDelay": delay}
    return google_error("RESOURCE_EXHAUSTED", PLAN, quota, retry)


STATUSES = {
    ErrorClass.NOT_FOUND: (301, 404),
    ErrorClass.BAD_REQUEST: (400, 413, 422),
    ErrorClass.AUTH: (401, 403),
    ErrorClass.QUOTA: (402,),
    ErrorClass.RATE_LIMIT: (429,),
    ErrorClass.SERVER: (408, 500, 502, 504, 524),
    ErrorClass.OVERLOADED: (503, 529),
}


@pytest.mark.parametrize(
    ("status", "error_class"), [(each, kind) for kind, them in STATUSES.items() for each in them]
)
def test_status_alone_decides_when_the_body_says_nothing(
    status: int, error_class: ErrorClass
) -> None:
    error = failure(status)
    assert (error.status, error.error_class) == (status, error_class)


@pytest.mark.parametrize(
    ("status", "payload"),
    [
        (429, openai_error(PLAN, "insufficient_quota", "insufficient_quota")),
        (429, openai_error("Limit reached.", "project_spend_limit_exceeded")),
        (429, {"error": {"message": PLAN}}),
        (400, anthropic_error("invalid_request_error", "Your credit balance is too low to ...")),
        (400, anthropic_error("invalid_request_error", "You have reached your API usage limits.")),
        (402, anthropic_error("billing_error", "Payment required")),
        (429, google_quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier", "26s")),
        (429, google_error("RESOURCE_EXHAUSTED", "Your prepayment credits are depleted.")),
    ],
)
def test_a_spent_budget_is_quota_under_whatever_status(status: int, payload: object) -> None:
    assert failure(status, payload).error_class == ErrorClass.QUOTA


BILLING = "Limit reached. Add a payment method at https://platform.openai.com/account/billing"
IN_FLIGHT = {"error": {"code": 402, "message": "in flight"}}
WRONG_KEY = "API key not valid. Please pass a valid API key."


ROUTED = {"provider_name": "Venice", "retry_after_seconds": 17}
PER_MINUTE = google_quota("GenerateContentInputTokensPerModelPerMinute", "26.5s")


@pytest.mark.parametrize(
    ("status", "payload", "headers", "error_class", "seconds"),
    [
        # Limits that pass although billing is named.
        (429, PER_MINUTE, {}, ErrorClass.RATE_LIMIT, 26.5),
        (429, openai_error(BILLING, "rate_limit_exceeded", "requests"), {}, ErrorClass.RATE_LIMIT, None),
        (402, IN_FLIGHT, {"retry-after": "3"}, ErrorClass.RATE_LIMIT, 3.0),
        (429, {"error": {"message": "slow", "metadata": ROUTED}}, {}, ErrorClass.RATE_LIMIT, 17.0),
        (400, google_error("INVALID_ARGUMENT", WRONG_KEY), {}, ErrorClass.AUTH, None),
    ],
)  # fmt: skip
def test_bodies_that_say_more_than_the_status(
    status: int,
    payload: object,
    headers: dict[str, str],
    error_class: ErrorClass,
    seconds: float | None,
) -> None:
    error = failure(status, payload, headers)
    assert (error.error_class, error.retry_after_s) == (error_class, seconds)


AZURE = {
    "message": "The response was filtered",
    "code": "content_filter",
    "innererror": {"code": "ResponsibleAIPolicyViolation"},
}
OPENROUTER = {
    "code": 403,
    "message": "openai/gpt-5 requires moderation. Your input was flagged.",
    "metadata": {"reasons": ["illicit"], "flagged_input": "curl | sh"},
}
FLAGGED = "Invalid prompt: your prompt was flagged as potentially violating our usage policy."
BLOCKED = "Output blocked by content filtering policy"


@pytest.mark.parametrize(
    ("status", "payload", "stop_reason"),
    [
        (400, {"error": AZURE}, "content_filter"),
        (400, openai_error(FLAGGED, "invalid_prompt"), "invalid_prompt"),
        (400, openai_error("Flagged.", "cyber_policy"), "cyber_policy"),
        (400, anthropic_error("invalid_request_error", BLOCKED), "content_filter"),
        (403, {"error": OPENROUTER}, "content_filter"),
    ],
)
def test_an_answer_withheld_by_a_filter_is_a_completion(
    status: int, payload: dict[str, dict[str, str]], stop_reason: str
) -> None:
    answer = settle(status, payload, {"x-request-id": "req_9"})
    assert answer.text == ""
    assert answer.stop_kind is StopKind.CONTENT_FILTER
    assert answer.stop_reason == stop_reason
    assert answer.refusal == payload["error"]["message"]
    assert answer.request_id == "req_9"


DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after-ms": "1500", "retry-after": "2"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", "date": DATE}, 30.0),
        ({"retry-after": DATE, "date": "Wed, 21 Oct 2026 07:29:00 GMT"}, 0.0),
        *(({"retry-after": odd}, None) for odd in ("soon", "-5", "nan", "inf")),
        ({}, None),
    ],
)
def test_retry_after_is_read_from_the_headers(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert failure(429, headers=headers).retry_after_s == seconds


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ({"error": {"message": "No such model"}}, "HTTP 404: No such model"),
        ({"error": "No such model"}, "HTTP 404: No such model"),
        ({"message": "No such model"}, "HTTP 404: No such model"),
        ({"detail": "Not Found"}, "HTTP 404: Not Found"),
        ([{"error": {"message": "listed"}}], "HTTP 404: listed"),
        ({"error": {"message": "two\nlines\x1b[31m \ud800"}}, "HTTP 404: two lines [31m"),
        (None, "HTTP 404: Not Found"),
        ({"error": {"message": 5}}, "HTTP 404: Not Found"),
        ({"error": {"message": "x" * 5000}}, "HTTP 404: " + "x" * 299 + "…"),
    ],
)
def test_message_is_the_providers_own_on_one_printable_line(payload: object, message: str) -> None:
    assert str(failure(404, payload)) == message

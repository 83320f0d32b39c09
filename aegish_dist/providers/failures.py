"""Reads error responses: an answer withheld by a filter, a class of failure, a wait, rate limits.

One reading for every provider, because routers pass on each other's words and headers;
`failures.toml` has the signs.
"""

import math
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from http.client import responses
from importlib.resources import files

from msgspec import Struct, toml

from aegish_dist.core.model import HTTP_FORMATS, RateHint, WireFormat
from aegish_dist.core.outcome import ErrorClass, StopKind, is_passing
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.verdict import Completion
from aegish_dist.errors import ProviderError
from aegish_dist.providers import lenient
from aegish_dist.providers.lenient import Headers, JsonObject


def retry_after_s(headers: Headers, error: JsonObject) -> float | None:
    """Return the seconds to wait; Google and OpenRouter put them into the error's body."""
    milliseconds = _amount(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    header = headers.get("retry-after")
    seconds = _amount(header)
    if seconds is not None:
        return seconds
    moment = _date(header)
    if moment is not None:
        return max(0.0, seconds_until(moment, headers))
    for detail in lenient.objects(error, "details"):
        delay = lenient.text(detail, "retryDelay") or ""
        seconds = _amount(delay.removesuffix("s"))  # Google's RetryInfo: `26s`
        if seconds is not None:
            return seconds

    return _amount(lenient.at(error, "metadata", "retry_after_seconds"))  # of OpenRouter


def _amount(value: object) -> float | None:
    """Read a finite number from 0, or its text."""
    if not isinstance(value, int | float | str) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None


def seconds_until(moment: datetime, headers: Headers) -> float:
    """Return how far a moment is, by the provider's own clock where a response shows it."""
    now = _date(headers.get("date")) or datetime.now(UTC)
    return (moment - now).total_seconds()


def _date(value: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(value or "")
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


MAX_PER_MINUTE = 1e9  # largest limit that is taken for one; a larger number is a mistake
# Longest time in seconds after which a limit per minute is fully available again. One that takes
# longer is a limit per hour or per day, as Groq's of requests is.
MAX_RESET_S = 600.0

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_UNITS_S = (3600.0, 60.0, 1.0, 0.001)


# Header names of every format, whichever the model's is: routers send those of another one.
_PATTERNS = [http.rate_limit_headers for http in HTTP_FORMATS.values() if http.rate_limit_headers]


def rate_hint(headers: Headers) -> RateHint | None:
    """Read the rate limits that a response states; None without a limit per minute."""
    for pattern in _PATTERNS:
        requests, requests_left = _limit(headers, pattern, "requests")
        tokens, tokens_left = _limit(headers, pattern, "tokens")
        if requests is not None or tokens is not None:
            return RateHint(requests, requests_left, tokens, tokens_left)
    return None


def _limit(
    headers: Headers,
    pattern: str,
    of: str,
) -> tuple[float | None, float | None]:
    """Return a limit per minute, and what is left of it."""
    limit = _number(headers.get(_name(pattern, of, "limit")))
    if limit is None or not 0 < limit <= MAX_PER_MINUTE:
        return None, None
    reset_s = _reset_s(headers.get(_name(pattern, of, "reset")), headers)
    if reset_s is not None and reset_s > MAX_RESET_S:
        return None, None
    remaining = _number(headers.get(_name(pattern, of, "remaining")))
    if remaining is not None and not 0 <= remaining <= limit:
        remaining = None
    return limit, remaining


@cache
def _name(pattern: str, of: str, what: str) -> str:
    return pattern.format(of=of, what=what)


def _number(text: str | None) -> float | None:
    if text is None or not text.isascii() or not text.replace(".", "", 1).isdigit():
        return None
    return float(text)


def _reset_s(text: str | None, headers: Headers) -> float | None:
    """Read OpenAI's `6m0s` and `120ms`, or Anthropic's moment in RFC 3339."""
    if not text:
        return None
    found = _DURATION.fullmatch(text)
    if found:
        parts = zip(found.groups(), _UNITS_S, strict=True)
        return sum(float(number) * unit_s for number, unit_s in parts if number)

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None

    return None if moment.tzinfo is None else seconds_until(moment, headers)


MESSAGE_LENGTH = 300
MAX_SEARCHED = 10_000  # characters of a message in which signs and keys are looked for


class _Signs(Struct, frozen=True, forbid_unknown_fields=True):
    codes: frozenset[str]
    words: tuple[str, ...]

    def stand_in(self, error: JsonObject, message: str) -> bool:
        """Whether a code of an error, or its message in lower case, has one of these signs."""
        if not self.codes.isdisjoint(_codes(error)):
            return True
        return any(words in message for words in self.words)


class _KnownFailures(Struct, frozen=True, forbid_unknown_fields=True):
    statuses: dict[int, ErrorClass]
    filtered: _Signs
    quota: _Signs
    of_batches: dict[WireFormat, dict[str, int]]


_KNOWN = toml.decode(files(__package__).joinpath("failures.toml").read_bytes(), type=_KnownFailures)
OF_BATCHES = _KNOWN.of_batches  # HTTP statuses for the errors in results of batches, by wire format
# A quota of a day: "requests per day (RPD)" of OpenAI and Groq, `free-models-per-day` of
# OpenRouter, Google's `PerDay` in a quota's name. None has its own code; few state a wait.
_DAILY = re.compile(
    r"\bper[ _-]?day\b|\bdaily (?:\w+ )?(?:limit|quota|usage|allowance)|\b[RT]PD\b|perday", re.I
)
# A limit that passes, although the words may recommend a plan with more per day.
_BY_MINUTE = re.compile(r"\bper[ _-]?min|\b[RT]PM\b|perminute", re.I)
DAILY_WAIT_S = 900.0  # at least, until a spent quota of a day is looked at again: 96 calls a day


def settle(status: int, payload: object, headers: Headers) -> Completion:
    """Return the empty completion of an answer that a filter withheld, or raise what failed.

    Args:
        status: HTTP status, or the one an error inside a 200 response names.
        payload: The body as JSON, None when it is none.
    """
    error = _error_object(payload)
    message = _message(status, error)
    if _is_filtered(error, message):
        return Completion(
            text="",
            stop_reason=lenient.label(error, "code") or "content_filter",
            stop_kind=StopKind.CONTENT_FILTER,
            refusal=message,
            request_id=lenient.label(headers.get("x-request-id") or headers.get("request-id")),
        )

    wait_s = retry_after_s(headers, error)
    kind = _error_class(status, error, message, wait_s)
    if status == 429 and _is_of_a_day(error):
        kind = ErrorClass.QUOTA
        wait_s = max(wait_s or 0.0, DAILY_WAIT_S)

    raise ProviderError(
        f"HTTP {status}: {message}",
        error_class=kind,
        status=status,
        retry_after_s=wait_s,
    )


def _error_object(payload: object) -> JsonObject:
    """Find the error: `{"error": {…}}`, the same in a list, `{"error": "…"}`, or the body."""
    body = next(iter(lenient.objects(payload)), lenient.mapping(payload))
    error = body.get("error")
    if isinstance(error, str):
        return {"message": error}
    return error if isinstance(error, dict) else body


def _message(status: int, error: JsonObject) -> str:
    """Return the provider's words as one printable line; the status's own name without any."""
    words = lenient.text(error, "message") or lenient.text(error, "detail") or ""
    return one_line(words) or responses.get(status, "no message")


def one_line(words: str) -> str:
    """Return a provider's words as one printable line without keys, cut to `MESSAGE_LENGTH`."""
    # Masked before it is cut: the beginning of a key has no shape any more.
    masked = mask_key_shapes(words[:MAX_SEARCHED])
    printable = "".join(char if char.isprintable() else " " for char in masked)
    line = " ".join(printable.split())
    if len(line) > MESSAGE_LENGTH:
        return f"{line[: MESSAGE_LENGTH - 1]}…"
    return line


def _codes(error: JsonObject) -> set[str]:
    codes = (
        lenient.text(error, "code"),
        lenient.text(error, "type"),
        lenient.text(error, "innererror", "code"),
        lenient.text(error, "metadata", "error_type"),
    )
    return {code for code in codes if code is not None}


def _is_filtered(error: JsonObject, message: str) -> bool:
    """Whether the command, not the request or the account, was turned down."""
    moderated = lenient.at(error, "metadata", "flagged_input")  # OpenRouter, 403
    return bool(moderated) or _KNOWN.filtered.stand_in(error, message.lower())


def _error_class(
    status: int,
    error: JsonObject,
    message: str,
    wait_s: float | None,
) -> ErrorClass:
    if status in {400, 403, 429} and _is_quota(error, message):
        return ErrorClass.QUOTA
    if status == 400 and "api key" in message.lower():  # Google has no 401 for a wrong key
        return ErrorClass.AUTH
    if status == 402 and wait_s is not None:
        # OpenRouter's budget for calls in flight, which passes:
        # https://openrouter.ai/docs/api/reference/errors-and-debugging
        return ErrorClass.RATE_LIMIT

    if 300 <= status < 400:  # redirects are not followed: the model is not at this address
        return ErrorClass.NOT_FOUND
    passes = status >= 500 or is_passing(status)
    return _KNOWN.statuses.get(status, ErrorClass.SERVER if passes else ErrorClass.BAD_REQUEST)


def _is_quota(error: JsonObject, message: str) -> bool:
    words = message.lower()
    if error.get("status") == "RESOURCE_EXHAUSTED":
        # Google speaks of billing details at every per-minute limit; the quota's name tells.
        words = words.replace("billing details", "")
    return _KNOWN.quota.stand_in(error, words)


def _is_of_a_day(error: JsonObject) -> bool:
    """Whether a limit of a day is reached; its name tells, where the words name several."""
    quotas = []
    for detail in lenient.objects(error, "details"):
        for violation in lenient.objects(detail, "violations"):
            quotas.append(lenient.text(violation, "quotaId") or "")

    if any(quotas):
        return any(map(_DAILY.search, quotas))
    words = lenient.text(error, "message") or ""
    words = words[:MAX_SEARCHED]
    return bool(_DAILY.search(words)) and not _BY_MINUTE.search(words)

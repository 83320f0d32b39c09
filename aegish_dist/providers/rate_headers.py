"""Rate limits in the headers of a response, by the names that the table of wire formats knows.

Routers and local servers copy OpenAI's names with meanings of their own, so whatever cannot be a
limit per minute is ignored.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import NamedTuple

from aegish_dist.core.limits import RateHint
from aegish_dist.core.wire import HTTP_FORMATS
from aegish_dist.providers.retry_after import seconds_until

MAX_PER_MINUTE = 1e9
"""Largest limit that is taken for one; a larger number is a mistake."""
MAX_RESET_S = 600.0
"""Longest time in seconds after which a limit per minute is fully available again. One that takes
longer is a limit per hour or per day, as Groq's of requests is."""

_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")
_UNITS_S = (3600.0, 60.0, 1.0, 0.001)


_PATTERNS = tuple(dict.fromkeys(http.rate_limit_headers for http in HTTP_FORMATS.values()))
"""Header names of every format, whichever the model's is: routers send those of another one."""


class _Limit(NamedTuple):
    per_minute: float | None = None
    remaining: float | None = None
    reset_s: float | None = None


def rate_hint(headers: Mapping[str, str]) -> RateHint | None:
    """Read the rate limits that a response states.

    Returns:
        None when they state no limit per minute.
    """
    for pattern in filter(None, _PATTERNS):
        requests, tokens = (_limit(headers, pattern, of) for of in ("requests", "tokens"))
        if requests.per_minute is not None or tokens.per_minute is not None:
            resets = [each.reset_s for each in (requests, tokens) if each.reset_s is not None]
            return RateHint(*requests[:2], *tokens[:2], max(resets, default=None))
    return None


def _limit(headers: Mapping[str, str], pattern: str, of: str) -> _Limit:
    limit = _number(headers.get(_name(pattern, of, "limit")))
    if limit is None or not 0 < limit <= MAX_PER_MINUTE:
        return _Limit()
    reset_s = _reset_s(headers.get(_name(pattern, of, "reset")), headers)
    if reset_s is not None and reset_s > MAX_RESET_S:
        return _Limit()
    remaining = _number(headers.get(_name(pattern, of, "remaining")))
    if remaining is not None and not 0 <= remaining <= limit:
        remaining = None
    return _Limit(limit, remaining, reset_s)


@cache
def _name(pattern: str, of: str, what: str) -> str:
    return pattern.format(of=of, what=what)


def _number(text: str | None) -> float | None:
    if text is None or not text.isascii() or not text.replace(".", "", 1).isdigit():
        return None
    return float(text)


def _reset_s(text: str | None, headers: Mapping[str, str]) -> float | None:
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

"""How long a provider asks us to wait, from the four places where providers say so."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from aegish_dist.providers import lenient


def retry_after_s(headers: Mapping[str, str], error: Mapping[str, object]) -> float | None:
    """Return the seconds to wait, None when the provider does not say.

    Args:
        error: The error object of the body; Google and OpenRouter put the wait there.
    """
    milliseconds = _seconds(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    header = headers.get("retry-after")
    for found in (_seconds(header), _until(header, headers), _in_body(error)):
        if found is not None:
            return found
    return None


def _seconds(value: object) -> float | None:
    """Read a finite number from 0, or its text."""
    if not isinstance(value, int | float | str) or isinstance(value, bool):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def seconds_until(moment: datetime, headers: Mapping[str, str]) -> float:
    """Return how far a moment is, by the provider's own clock where a response shows it."""
    now = _date(headers.get("date")) or datetime.now(UTC)
    return (moment - now).total_seconds()


def _until(value: str | None, headers: Mapping[str, str]) -> float | None:
    """Read an HTTP date."""
    moment = _date(value)
    return None if moment is None else max(0.0, seconds_until(moment, headers))


def _date(value: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(value or "")
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _in_body(error: Mapping[str, object]) -> float | None:
    """Read Google's RetryInfo (`"26s"`) or OpenRouter's metadata."""
    for detail in lenient.objects(error.get("details")):
        delay = detail.get("retryDelay")
        if isinstance(delay, str):
            return _seconds(delay.removesuffix("s"))
    return _seconds(lenient.mapping(error.get("metadata")).get("retry_after_seconds"))

"""Checks of recorded values beyond their type: times, costs, and texts that PostgreSQL stores."""

import re
from datetime import UTC, datetime
from decimal import Decimal

from aegish_dist.errors import InputError

MAX_COST_USD = Decimal(10) ** 9
MAX_COST_DECIMALS = 100
"""Exact costs need some thirty decimals; hostile ones could need a billion."""

_USUAL_COST = re.compile(r"[0-9]{1,9}(\.[0-9]{1,40})?(E-[0-5]?[0-9])?")
_USUAL_MOMENT = re.compile(
    r"20[-0-9]{8}[T ][:0-9]{8}(\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-4]):[0-9]{2})"
)
"""Which any calendar and PostgreSQL take, once its parts are numbers that a date can have."""


def moment(text: str, field: str) -> str:
    """Return a point in time as text that PostgreSQL and Python read.

    Raises:
        InputError: It is no time, has no time zone, or lies outside the years 1 to 9999 in UTC.
    """
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise InputError("must be an ISO 8601 time", field=field) from None
    if _USUAL_MOMENT.fullmatch(text):
        return text
    if parsed.utcoffset() is None:
        raise InputError("must carry a time zone, such as Z or +02:00", field=field)
    try:
        return parsed.astimezone(UTC).isoformat()  # PostgreSQL refuses zones 16 hours away
    except OverflowError:
        problem = "must be a time from the year 1 to 9999, in UTC"
        raise InputError(problem, field=field) from None


def cost(amount: Decimal, field: str) -> Decimal:
    """Return an amount of USD that a call may cost.

    Raises:
        InputError: It is not finite, has too many decimals, or is out of range.
    """
    if _USUAL_COST.fullmatch(str(amount)):
        return amount
    exponent = amount.as_tuple().exponent
    if not (isinstance(exponent, int) and exponent >= -MAX_COST_DECIMALS):
        problem = f"must be finite, with at most {MAX_COST_DECIMALS} decimals"
        raise InputError(problem, field=field)
    if not 0 <= amount <= MAX_COST_USD:
        raise InputError(f"must be from 0 to {MAX_COST_USD:f}", field=field)
    return amount


def label(text: str | None) -> str | None:
    """Return a text that names something; None where it is blank."""
    if not text or text.isspace():
        return None
    return text


def required_label(text: str | None, field: str) -> str:
    """Return a text that names something.

    Raises:
        InputError: It is blank.
    """
    found = label(text)
    if found is None:
        raise InputError("is missing or blank", field=field)
    return found

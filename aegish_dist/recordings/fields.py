"""Typed access to the fields of one record somebody else wrote: every doubt is a `DatasetError`."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import TypeVar

from aegish_dist.core.sample import MAX_LABEL_CHARS
from aegish_dist.errors import DatasetError

UNSTORABLE = re.compile("[\0\ud800-\udfff]")

Choice = TypeVar("Choice", bound=StrEnum)

MAX_COUNT = 2**15 - 1
"""Highest epoch, attempt, generation or status that a database smallint holds."""
MAX_TOKENS = 2**63 - 1
"""Highest token count that a database bigint holds."""
MAX_NUMBER = 10**12
"""Highest time; in milliseconds or seconds, microseconds of it fit a bigint, which sums are of."""
MAX_COST_USD = Decimal(10) ** 9
"""No single call costs more."""
MAX_COST_DECIMALS = 100
"""Exact costs need some thirty decimals; hostile ones could need a billion."""


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one record and where they were read; a null field counts as absent."""

    values: Mapping[str, object]
    """As decoded from JSON or Arrow."""
    source: str
    """The file."""
    line: int | None = None
    """1-based line or record number."""

    path: str = ""
    """What leads to these fields within the record, such as `output.usage.`."""

    def error(self, problem: str, field: str | None = None) -> DatasetError:
        """Return, to be raised, what is wrong with a field or with the record."""
        name = None if field is None else self.path + field
        return DatasetError(problem, source=self.source, line=self.line, field=name)

    def missing(self, field: str) -> DatasetError:
        """Return, to be raised, that a field has to be there."""
        return self.error("is missing or blank", field)

    def text(self, field: str) -> str | None:
        """Any text, as it stands."""
        value = self.values.get(field)
        if value is not None and not isinstance(value, str):
            raise self.error(f"must be text, not {_kind(value)}", field)
        return value

    def storable(self, field: str) -> str | None:
        """A text that PostgreSQL can store."""
        value = self.text(field)
        if value is not None and not is_storable(value):
            raise self.error("must not contain U+0000 or half a surrogate pair", field)
        return value

    def label(self, field: str, max_chars: int = MAX_LABEL_CHARS) -> str | None:
        """A storable text that names something; a blank one counts as absent."""
        value = self.storable(field)
        if value is None or not value.strip():
            return None
        if len(value) > max_chars:
            raise self.error(f"must have at most {max_chars} characters", field)
        return value

    def required_label(self, field: str, max_chars: int = MAX_LABEL_CHARS) -> str:
        """The same where it has to be there."""
        value = self.label(field, max_chars)
        if value is None:
            raise self.missing(field)
        return value

    def choice(self, field: str, kind: type[Choice]) -> Choice | None:
        """One of the values of a closed set."""
        value = self.text(field)
        if value is None:
            return None
        if value not in set(kind):
            raise self.error(f"must be one of {', '.join(kind)}", field)
        return kind(value)

    def flag(self, field: str) -> bool | None:
        """True or false."""
        value = self.values.get(field)
        if value is not None and not isinstance(value, bool):
            raise self.error(f"must be true or false, not {_kind(value)}", field)
        return value

    def integer(self, field: str, lowest: int = 0, highest: int = MAX_COUNT) -> int | None:
        """A whole number within limits."""
        value = self.values.get(field)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(f"must be a whole number, not {_kind(value)}", field)
        if not lowest <= value <= highest:
            raise self.error(f"must be from {lowest} to {highest}", field)
        return value

    def number(self, field: str) -> float | None:
        """A number from 0 to `MAX_NUMBER`."""
        value = self.values.get(field)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise self.error(f"must be a number, not {_kind(value)}", field)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not 0 <= number <= MAX_NUMBER:
            raise self.error(f"must be from 0 to {MAX_NUMBER}", field)
        return number

    def cost(self, field: str) -> Decimal | None:
        """An amount of USD, exactly, from a number or from its digits in a text."""
        value = self.values.get(field)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
            raise self.error(f"must be a decimal number, not {_kind(value)}", field)
        try:
            cost = Decimal(str(value) if isinstance(value, float) else value)
        except InvalidOperation:
            raise self.error("must be a decimal number", field) from None
        exponent = cost.as_tuple().exponent
        if not (isinstance(exponent, int) and exponent >= -MAX_COST_DECIMALS):
            raise self.error(f"must be finite, with at most {MAX_COST_DECIMALS} decimals", field)
        if not 0 <= cost <= MAX_COST_USD:
            raise self.error(f"must be from 0 to {MAX_COST_USD:f}", field)
        return cost

    def moment(self, field: str) -> datetime | None:
        """A point in time with its time zone, as a datetime or in ISO 8601."""
        value = self.values.get(field)
        if value is None:
            return None
        if not isinstance(value, str | datetime):
            raise self.error(f"must be an ISO 8601 time, not {_kind(value)}", field)
        try:
            moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        except ValueError:
            raise self.error("must be an ISO 8601 time", field) from None
        if moment.utcoffset() is None:
            raise self.error("must carry a time zone, such as Z or +02:00", field)
        try:
            return moment.astimezone(UTC)  # PostgreSQL knows no zone that is 16 hours away
        except OverflowError:
            raise self.error("must be a time from the year 1 to 9999, in UTC", field) from None

    def part(self, field: str) -> "Fields":
        """An object within this record; empty when absent."""
        value = self.values.get(field)
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise self.error(f"must be an object, not {_kind(value)}", field)
        return Fields(value, self.source, self.line, f"{self.path}{field}.")

    def parts(self, field: str) -> "tuple[Fields, ...]":
        """A list of objects within this record; empty when absent."""
        value = self.values.get(field)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(part, Mapping) for part in value):
            raise self.error("must be a list of objects", field)
        return tuple(
            Fields(part, self.source, self.line, f"{self.path}{field}[{index}].")
            for index, part in enumerate(value)
        )


def is_storable(text: str) -> bool:
    """Whether PostgreSQL can store this text: no U+0000, and UTF-8 can hold it."""
    return UNSTORABLE.search(text) is None


def _kind(value: object) -> str:
    match value:
        case bool():
            return "true or false"
        case str():
            return "text"
        case int() | float() | Decimal():
            return "a number"
        case list():
            return "a list"
        case Mapping():
            return "an object"
        case _:
            return type(value).__name__

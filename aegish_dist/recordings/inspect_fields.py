"""The fields of an object in a log of Inspect AI, of which only those that matter are looked at."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aegish_dist.core.verdict_record import Label, Moment
from aegish_dist.errors import DatasetError
from aegish_dist.inputs.checking import Location
from aegish_dist.recordings.checks import label, moment


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one object and where they were read; a null field counts as absent."""

    values: Mapping[str, object]
    source: str
    """The file, and the member of the archive."""
    path: str = ""
    """The keys that lead to these fields, such as `output.usage.`."""

    def error(self, problem: str, field: str) -> DatasetError:
        """Return, to be raised, what is wrong with a field."""
        return Location(self.source).error(problem, self.path + field)

    def get(
        self, field: str, kind: Any = str, check: Callable[[Any, str], Any] | None = None
    ) -> Any:
        """Return a checked value, None where it is absent.

        Args:
            check: Called with value and field; what it returns is returned, an `InputError` of it
                is raised with the place.

        Raises:
            DatasetError: It is not of the type, out of range, or refused by the check.
        """
        value = self.values.get(field)
        if value is None:
            return None
        location, path = Location(self.source), self.path + field
        found = location.checked(value, kind, path)
        if check is None:
            return found
        with location:
            return check(found, path)

    def label(self, field: str, kind: Any = Label) -> str | None:
        """Return a text that names something, None where it is absent or blank; see `get`."""
        return label(self.get(field, kind))

    def required_label(self, field: str, kind: Any = Label) -> str:
        """Return a text that names something and has to be there; see `get`."""
        found = self.label(field, kind)
        if found is None:
            raise self.error("is missing or blank", field)
        return found

    def moment(self, field: str) -> str | None:
        """Return a point in time as text that Python and PostgreSQL read; see `get`."""
        found: str | None = self.get(field, Moment, moment)
        return found

    def part(self, field: str) -> "Fields":
        """Return an object within this one, empty when absent; see `get`."""
        values = self.get(field, dict[str, Any])
        return Fields(values or {}, self.source, f"{self.path}{field}.")

    def parts(self, field: str) -> "tuple[Fields, ...]":
        """Return a list of objects within this one, empty when absent; see `get`."""
        return tuple(
            Fields(part, self.source, f"{self.path}{field}[{index}].")
            for index, part in enumerate(self.get(field, list[dict[str, Any]]) or ())
        )

"""One record of a file, whatever its format, becomes one sample."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from aegish_dist.core.sample import Sample, Target
from aegish_dist.errors import DatasetError

_SAMPLE_FIELDS = ("command", "target", "category", "cluster", "metadata")


@dataclass(frozen=True, slots=True)
class Row:
    """One record with its place."""

    file: str
    """The file it was read from."""
    line: int
    """The 1-based line or record number."""
    values: Mapping[str, object]
    """By column; None and an absent column mean the same."""

    def wrong(self, field: str, problem: str) -> DatasetError:
        """The error to raise about one field."""
        return DatasetError(problem, source=self.file, line=self.line, field=field)

    def optional_text(self, field: str) -> str | None:
        """A text field; None when absent or empty."""
        value = self.values.get(field)
        if value is not None and not isinstance(value, str):
            raise self.wrong(field, f"must be text, not {type(value).__name__}")
        return value or None

    def text(self, field: str) -> str:
        """A text field that has to be there."""
        value = self.optional_text(field)
        if value is None:
            raise self.wrong(field, "is missing or empty")
        return value

    def sample(self) -> Sample:
        """The sample this row describes; unknown columns become metadata.

        Raises:
            DatasetError: When a field is missing or of the wrong type.
        """
        return Sample(
            command=self.text("command"),
            target=self._target(),
            category=self.optional_text("category"),
            cluster=self.optional_text("cluster"),
            metadata=self._metadata(),
        )

    def _target(self) -> Target:
        target = self.text("target")
        try:
            return Target(target)
        except ValueError:
            raise self.wrong("target", f"{target!a} is neither malicious nor harmless") from None

    def _metadata(self) -> dict[str, str]:
        nested = self.values.get("metadata")
        if nested is not None and not isinstance(nested, Mapping):
            raise self.wrong("metadata", "must be an object")
        extra = {key: each for key, each in self.values.items() if key not in _SAMPLE_FIELDS}
        merged = {**extra, **(nested or {})}
        try:
            return {str(key): _as_text(each) for key, each in merged.items() if each is not None}
        except RecursionError:
            raise self.wrong("metadata", "is nested too deeply") from None


def decode_json(text: str) -> object:
    """Decode a document.

    Raises:
        ValueError: It is not JSON (a `JSONDecodeError`), or says in a few words what else is wrong.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:  # from int, with advice about the interpreter
        raise ValueError("it holds a number with thousands of digits") from None


def _as_text(value: object) -> str:
    if isinstance(value, bool | int | float | list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)

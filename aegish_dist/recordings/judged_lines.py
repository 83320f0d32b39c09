"""Exported verdict lines with columns that say whether each verdict is correct."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from aegish_dist.core.verdict_record import VerdictRecord


class JudgedRecord(NamedTuple):
    """A verdict as stored, its opinions included."""

    record: VerdictRecord
    correct: tuple[bool | None, ...]
    """Of each column whether it is right; None where it is unscored."""


class JudgedLines:
    """Decodes lines that the store wrote, and so need no further check."""

    def __init__(self, columns: Sequence[str]) -> None:
        """Prepare for lines with these columns."""
        self._names = [f"judged_{number}" for number in range(len(columns))]
        further = [
            (name, bool | None, msgspec.field(name=column))
            for name, column in zip(self._names, columns, strict=True)
        ]
        self._type: Any = msgspec.defstruct(
            "JudgedVerdict", further, bases=(VerdictRecord,), kw_only=True, gc=False
        )
        self._decoder = msgspec.json.Decoder(self._type)

    def read(self, lines: bytes) -> Iterator[JudgedRecord]:
        """Yield the verdicts of some lines."""
        for line in lines.splitlines():
            record: Any = self._decoder.decode(line)
            yield JudgedRecord(record, tuple(getattr(record, name) for name in self._names))

"""The zip archive that an Inspect AI log is, read without trust in it."""

import lzma
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from aegish_dist.errors import DatasetError
from aegish_dist.recordings import json_text
from aegish_dist.recordings.fields import Fields

HEADERS = ("header.json", "_journal/start.json")
"""Of a finished log, and of one that was cut off."""
MAX_MEMBER_BYTES = 64 * 2**20
"""Decompressed; a sample of one command and one answer is a thousandth of it."""


class InspectArchive:
    """An open log.

    Raises:
        DatasetError: From every method, when the archive is damaged or not a log at all.
    """

    def __init__(self, path: Path) -> None:
        self._source = str(path)
        try:
            self._zip = zipfile.ZipFile(path)
        except zipfile.BadZipFile as error:
            problem = "is not a complete zip archive, as logs of Inspect AI are"
            raise DatasetError(problem, source=self._source) from error
        except OSError as error:
            problem = f"cannot be read: {error.strerror or error}"
            raise DatasetError(problem, source=self._source) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._zip.close()

    def header(self) -> Fields:
        """What the log says about the evaluation as a whole."""
        for name in HEADERS:
            if name in self._zip.NameToInfo:
                return self._member(name)
        raise DatasetError("has no header; is it a log of Inspect AI?", source=self._source)

    def samples(self) -> Iterator[Fields]:
        """One sample after the other, in archive order; of one written twice, the last state."""
        for name in dict.fromkeys(self._zip.namelist()):
            if name.startswith("samples/") and name.endswith(".json"):
                yield self._member(name)

    def _member(self, name: str) -> Fields:
        source = f"{self._source}, {name}"
        try:
            values = json_text.decode(self._bytes(name))
        except NotImplementedError as error:
            problem = (
                "is compressed in a way this Python cannot read; "
                "rewrite the log with 'inspect log convert'"
            )
            raise DatasetError(problem, source=source) from error
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError) as error:
            raise DatasetError("is damaged", source=source) from error
        except (ValueError, RuntimeError) as error:  # the latter from an encrypted member
            raise DatasetError(str(error), source=source) from error
        if not isinstance(values, dict):
            raise DatasetError("is not a JSON object", source=source)
        return Fields(values, source)

    def _bytes(self, name: str) -> bytes:
        with self._zip.open(name) as member:
            raw = member.read(MAX_MEMBER_BYTES + 1)
        if len(raw) > MAX_MEMBER_BYTES:
            raise ValueError(f"is larger than {MAX_MEMBER_BYTES} bytes")
        return raw

"""The zip archive that an Inspect AI log is, read without trust in it.

A sample is one member, `samples/ID_epoch_N.json`, or a folder of that name without the suffix with
a small `sample.json`, its `metadata.json`, and long texts in `attachments/`; a log may hold both
kinds, and its version does not tell.
"""

import re
import zipfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Self, TypeVar

from aegish_dist.errors import DatasetError
from aegish_dist.inputs.checking import Location
from aegish_dist.inputs.documents import parse_json
from aegish_dist.inputs.files import open_input
from aegish_dist.recordings.inspect_fields import Fields
from aegish_dist.recordings.zip_member import read_member

HEADERS = ("header.json", "_journal/start.json")
"""Of a finished log, and of one that was cut off."""
MAX_MEMBER_BYTES = 64 * 2**20
"""Decompressed; a sample of one command and one answer is a thousandth of it."""
SHELL = "/sample.json"
FOLDER = re.compile(r"samples/.+_epoch_[0-9]+(?=/)", re.DOTALL)
"""Of a sample; the id in it may hold anything, slashes included."""
ATTACHMENTS = re.compile(r"/attachments/([0-9]{1,9})\.json")
"""Named by the number of the first text in it."""
REFERENCE = b"attachment://"

T = TypeVar("T")


class InspectArchive:
    """An open log.

    Raises:
        DatasetError: From every method, when the archive is damaged or not a log at all.
    """

    def __init__(self, path: Path) -> None:
        self._source = str(path)
        try:
            self._file = open_input(path)
        except OSError as error:
            problem = f"cannot be read: {error.strerror or error}"
            raise DatasetError(problem, source=self._source) from error
        try:
            self._zip = zipfile.ZipFile(self._file)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
            self._file.close()
            problem = "is not a complete zip archive, as logs of Inspect AI are"
            raise DatasetError(problem, source=self._source) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._zip.close()
        self._file.close()

    def header(self) -> Fields:
        """Return the fields of the evaluation as a whole."""
        for name in HEADERS:
            if name in self._zip.NameToInfo:
                return self._member(name)
        raise DatasetError("has no header; is it a log of Inspect AI?", source=self._source)

    def samples(self) -> Iterator[Fields]:
        """Yield the samples in archive order; of one written twice, the last state."""
        folders = self._folders()
        for name in dict.fromkeys(self._zip.namelist()):
            folder = FOLDER.match(name)
            if folder is not None and folder[0] in folders:
                if name == folder[0] + SHELL:
                    yield self._chunked(folder[0], folders[folder[0]])
            elif name.startswith("samples/") and name.endswith(".json"):
                yield self._member(name)

    def _folders(self) -> dict[str, dict[int, str]]:
        """Return the folders of samples, each with the names of its attachments by number."""
        names = dict.fromkeys(self._zip.namelist())
        folders: dict[str, dict[int, str]] = {}
        for name in names:
            folder = FOLDER.match(name)
            if folder is not None and folder[0] + SHELL in names:
                attachments = folders.setdefault(folder[0], {})
                found = ATTACHMENTS.fullmatch(name, folder.end())
                if found is not None:
                    attachments[int(found[1])] = name
        return folders

    def _chunked(self, folder: str, attachments: dict[int, str]) -> Fields:
        """Put together what a sample is in one member."""
        raw = self._read(folder + SHELL)
        shell = self._object(raw, folder + SHELL)
        values = dict(shell.values)
        metadata = f"{folder}/metadata.json"
        if metadata in self._zip.NameToInfo:
            values["metadata"] = self._member(metadata).values
        if REFERENCE in raw:
            values["attachments"] = self._attachments(attachments)
        return Fields(values, shell.source)

    def _attachments(self, names: dict[int, str]) -> dict[str, object]:
        found: dict[str, object] = {}
        left = MAX_MEMBER_BYTES
        for first in sorted(names):
            raw = self._read(names[first], left)
            left -= len(raw)
            texts = self._decoded(raw, names[first], list[Any])
            found |= {str(number): text for number, text in enumerate(texts, first)}
        return found

    def _member(self, name: str) -> Fields:
        return self._object(self._read(name), name)

    def _object(self, raw: bytes, name: str) -> Fields:
        return Fields(self._decoded(raw, name, dict[str, Any]), f"{self._source}, {name}")

    def _decoded(self, raw: bytes, name: str, kind: type[T]) -> T:
        location = Location(f"{self._source}, {name}")
        with location:
            values = parse_json(raw, Decimal)
        return location.checked(values, kind)

    def _read(self, name: str, max_bytes: int | None = None) -> bytes:
        limit = MAX_MEMBER_BYTES if max_bytes is None else max_bytes
        try:
            return read_member(self._file, self._zip.NameToInfo[name], limit)
        except (ValueError, OSError) as error:
            raise DatasetError(str(error), source=f"{self._source}, {name}") from error

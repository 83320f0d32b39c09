"""The zip archive that a log of Inspect AI is, read without trust in it.

`zipfile` only reads the directory: 741 bytes of bz2 are 1.1 GB, and `backports.zstd.zipfile` ends a
member after its first Zstandard frame, of which Inspect AI begins one every 200 MiB. Other methods
were never used and are refused.

A sample is one member, `samples/ID_epoch_N.json`, or a folder of that name without the suffix with
a small `sample.json`, its `metadata.json`, and long texts in `attachments/`. A log may hold both
kinds, and its version does not tell.
"""

import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO, Self, TypeVar

from msgspec import Struct

from aegish_dist.core.verdict_record import Moment, Name
from aegish_dist.errors import ConfigError, DatasetError
from aegish_dist.inputs.checking import Location
from aegish_dist.inputs.documents import open_input, parse_json
from aegish_dist.interchange.record import label, moment


class Fields(Struct, frozen=True):
    """The fields of one object and where they were read; a null field counts as absent."""

    values: Mapping[str, object]
    source: str  # the file, and the member of the archive
    path: str = ""  # leads to these fields, such as `output.usage.`

    def error(self, problem: str, field: str) -> DatasetError:
        return Location(self.source).error(problem, self.path + field)

    def get(
        self, field: str, kind: Any = str, check: Callable[[Any, str], Any] | None = None
    ) -> Any:
        """Return a checked value, None where it is absent; `check` may raise an InputError."""
        value = self.values.get(field)
        if value is None:
            return None
        location, path = Location(self.source), self.path + field
        found = location.checked(value, kind, path)
        if check is None:
            return found
        with location:
            return check(found, path)

    def label(self, field: str, kind: Any = Name) -> str | None:
        return label(self.get(field, kind))

    def required_label(self, field: str, kind: Any = Name) -> str:
        found = self.label(field, kind)
        if found is None:
            raise self.error("is missing or blank", field)
        return found

    def moment(self, field: str) -> str | None:
        """Return a point in time as text that Python and PostgreSQL read; see `get`."""
        found: str | None = self.get(field, Moment, moment)
        return found

    def part(self, field: str) -> "Fields":
        values = self.get(field, dict[str, Any])
        return Fields(values or {}, self.source, f"{self.path}{field}.")

    def parts(self, field: str) -> "tuple[Fields, ...]":
        return tuple(
            Fields(part, self.source, f"{self.path}{field}[{index}].")
            for index, part in enumerate(self.get(field, list[dict[str, Any]]) or ())
        )


STORED, DEFLATED, ZSTANDARD = 0, 8, 93  # as the zip format numbers them
INPUT_BYTES = 2**14
MAX_FRAMES = 1_000  # one per 200 MiB; empty ones cost time and give nothing
LOCAL_HEADER_BYTES = 30
ENCRYPTED = 0x1
HEADERS = ("header.json", "_journal/start.json")  # of a finished log, and of one cut off
MAX_MEMBER_BYTES = 64 * 2**20  # decompressed; a sample takes a thousandth of it
SHELL = "/sample.json"
FOLDER = re.compile(r"samples/.+_epoch_[0-9]+(?=/)", re.DOTALL)  # of a sample
ATTACHMENTS = re.compile(r"/attachments/([0-9]{1,9})\.json")  # by the number of the first text
REFERENCE = "attachment://"

T = TypeVar("T")


class InspectArchive:
    """An open log; its methods raise a DatasetError when the archive is damaged or no log."""

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
        for name in HEADERS:
            if name in self._zip.NameToInfo:
                return self._fields(name, self._read(name))
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
                yield self._fields(name, self._read(name))

    def _folders(self) -> dict[str, dict[int, str]]:
        """Return the folders of samples, each with the names of its attachments by number."""
        folders: dict[str, dict[int, str]] = {}
        for name in self._zip.NameToInfo:
            folder = FOLDER.match(name)
            if folder is not None and folder[0] + SHELL in self._zip.NameToInfo:
                attachments = folders.setdefault(folder[0], {})
                found = ATTACHMENTS.fullmatch(name, folder.end())
                if found is not None:
                    attachments[int(found[1])] = name
        return folders

    def _chunked(self, folder: str, attachments: Mapping[int, str]) -> Fields:
        """Put together what a sample is in one member."""
        raw = self._read(folder + SHELL)
        shell = self._fields(folder + SHELL, raw)
        values = dict(shell.values)
        metadata = f"{folder}/metadata.json"
        if metadata in self._zip.NameToInfo:
            values["metadata"] = self._fields(metadata, self._read(metadata)).values
        if REFERENCE.encode() in raw:
            texts: dict[str, object] = {}
            left = MAX_MEMBER_BYTES
            for first, name in sorted(attachments.items()):
                part = self._read(name, left)
                left -= len(part)
                numbered = enumerate(self._decoded(name, part, list[Any]), first)
                texts |= {str(number): text for number, text in numbered}
            values["attachments"] = texts
        return Fields(values, shell.source)

    def _fields(self, name: str, raw: bytes) -> Fields:
        return Fields(self._decoded(name, raw, dict[str, Any]), f"{self._source}, {name}")

    def _decoded(self, name: str, raw: bytes, kind: type[T]) -> T:
        location = Location(f"{self._source}, {name}")
        with location:
            values = parse_json(raw, Decimal)
        return location.checked(values, kind)

    def _read(self, name: str, max_bytes: int | None = None) -> bytes:
        limit = MAX_MEMBER_BYTES if max_bytes is None else max_bytes
        try:
            return _read_member(self._file, self._zip.NameToInfo[name], limit)
        except (ValueError, OSError) as error:
            raise DatasetError(str(error), source=f"{self._source}, {name}") from error


def _read_member(file: BinaryIO, info: zipfile.ZipInfo, max_bytes: int) -> bytes:
    """Decompress a member, never holding much more than the limit, or raise a ValueError."""
    if info.flag_bits & ENCRYPTED:
        raise ValueError("is encrypted")
    # Lengths of name and extra field may differ from the directory.
    file.seek(max(info.header_offset, 0))
    header = file.read(LOCAL_HEADER_BYTES)
    if len(header) < LOCAL_HEADER_BYTES or not header.startswith(b"PK\x03\x04"):
        raise ValueError("is damaged")
    file.seek(int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little"), 1)
    # Nothing that is compressed takes a MiB more than it is worth.
    raw = file.read(min(info.compress_size, max_bytes + 2**20))
    data = _decompressed(raw, info.compress_type, max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"is larger than {max_bytes} bytes")
    if len(raw) < info.compress_size or zlib.crc32(data) != info.CRC:
        raise ValueError("is damaged")
    return data


def _decompressed(raw: bytes, method: int, max_bytes: int) -> bytes:
    if method == STORED:
        return raw
    if method == ZSTANDARD:
        return _unframed(raw, max_bytes)
    if method != DEFLATED:
        raise ValueError(
            f"is compressed by method {method}, which Inspect AI does not use; rewrite the log "
            "with 'inspect log convert'"
        )
    try:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(raw, max_bytes)
    except zlib.error as error:
        raise ValueError("is damaged") from error


def _unframed(raw: bytes, max_bytes: int) -> bytes:
    """Decompress Zstandard, which may come in several frames."""
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd  # noqa: PLC0415
        else:
            from backports import zstd  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(
            "logs compressed by Zstandard need a package: pip install backports.zstd"
        ) from error
    data, decoder, frames = bytearray(), zstd.ZstdDecompressor(), 1
    try:
        # In pieces: what follows a frame is copied.
        for start in range(0, len(raw), INPUT_BYTES):
            rest = raw[start : start + INPUT_BYTES]
            while rest and len(data) < max_bytes:
                if decoder.eof:
                    decoder, frames = zstd.ZstdDecompressor(), frames + 1
                    if frames > MAX_FRAMES:
                        raise ValueError(f"has more than {MAX_FRAMES} frames")
                data += decoder.decompress(rest, max_bytes - len(data))
                rest = decoder.unused_data if decoder.eof else b""
    except zstd.ZstdError as error:
        raise ValueError("is damaged") from error
    return bytes(data)

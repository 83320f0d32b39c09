"""Logs of Inspect AI (`.eval`) to records: those of other programs, and those exported here.

A log is a zip archive and read without trust in it. `zipfile` only reads the directory: 741 bytes
of bz2 are 1.1 GB, and `backports.zstd.zipfile` ends a member after its first Zstandard frame, of
which Inspect AI begins one every 200 MiB. Other methods were never used and are refused.

A sample is one member, `samples/ID_epoch_N.json`, or a folder of that name without the suffix with
a small `sample.json`, its `metadata.json`, and long texts in `attachments/`. A log may hold both
kinds, and its version does not tell.
"""

import os
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Self, TypeVar

from msgspec import Meta, Struct

from aegish_dist.core.outcome import ErrorClass, StopKind
from aegish_dist.core.sample import Command, Name, TrueLabel
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.text import JsonObject, known
from aegish_dist.core.verdict_record import (
    MAX_NUMBER,
    AttemptRecord,
    Moment,
    Number,
    Tokens,
    VerdictRecord,
)
from aegish_dist.errors import DatasetError, InputError
from aegish_dist.inputs.checking import Location
from aegish_dist.inputs.documents import open_input, parse_json
from aegish_dist.interchange.inspect_writer import (
    DEFAULTS,
    LABELS,
    MARK,
    OF_THE_SAMPLE,
    OTHER_LABELS,
    PREFIX,
    REPLACED,
)
from aegish_dist.interchange.record import (
    RecordChecker,
    Row,
    cost,
    encode,
    from_values,
    label,
    moment,
    stop_kind_of,
)

Seconds = Annotated[float, Meta(le=MAX_NUMBER)]


class Fields(Struct, frozen=True):
    """The fields of one object and where they were read; a null field counts as absent."""

    values: JsonObject
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
        location = Location(self.source)
        path = self.path + field
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
        return Fields(self.get(field, JsonObject) or {}, self.source, f"{self.path}{field}.")

    def parts(self, field: str) -> "tuple[Fields, ...]":
        parts = []
        for index, values in enumerate(self.get(field, list[JsonObject]) or ()):
            path = f"{self.path}{field}[{index}]."
            parts.append(Fields(values, self.source, path))
        return tuple(parts)


# Methods as the zip format numbers them.
STORED = 0
DEFLATED = 8
ZSTANDARD = 93
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
        with Location(self._source):
            self._file = open_input(path)
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
            match = FOLDER.match(name)
            folder = "" if match is None else match[0]
            if folder in folders:
                if name == folder + SHELL:
                    yield self._chunked(folder, folders[folder])
            elif name.startswith("samples/") and name.endswith(".json"):
                yield self._fields(name, self._read(name))

    def _folders(self) -> dict[str, dict[int, str]]:
        """Return the folders of samples, each with the names of its attachments by number."""
        folders: dict[str, dict[int, str]] = {}
        names = self._zip.NameToInfo
        for name in names:
            folder = FOLDER.match(name)
            if folder is None or folder[0] + SHELL not in names:
                continue
            attachments = folders.setdefault(folder[0], {})
            attachment = ATTACHMENTS.fullmatch(name, folder.end())
            if attachment is not None:
                number = int(attachment[1])
                attachments[number] = name
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
            texts: JsonObject = {}
            left = MAX_MEMBER_BYTES
            for first, name in sorted(attachments.items()):
                part = self._read(name, left)
                left -= len(part)
                for number, text in enumerate(self._decoded(name, part, list[Any]), first):
                    texts[str(number)] = text
            values["attachments"] = texts
        return Fields(values, shell.source)

    def _fields(self, name: str, raw: bytes) -> Fields:
        return Fields(self._decoded(name, raw, JsonObject), f"{self._source}, {name}")

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
    name_bytes = int.from_bytes(header[26:28], "little")
    extra_bytes = int.from_bytes(header[28:30], "little")
    file.seek(name_bytes + extra_bytes, os.SEEK_CUR)
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
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415
    else:
        from backports import zstd  # noqa: PLC0415
    data = bytearray()
    decoder = zstd.ZstdDecompressor()
    frames = 1
    try:
        # In pieces: what follows a frame is copied.
        for start in range(0, len(raw), INPUT_BYTES):
            rest = raw[start : start + INPUT_BYTES]
            while rest and len(data) < max_bytes:
                if decoder.eof:
                    decoder = zstd.ZstdDecompressor()
                    frames += 1
                    if frames > MAX_FRAMES:
                        raise ValueError(f"has more than {MAX_FRAMES} frames")
                data += decoder.decompress(rest, max_bytes - len(data))
                rest = decoder.unused_data if decoder.eof else b""
    except zstd.ZstdError as error:
        raise ValueError("is damaged") from error
    return bytes(data)


SENTENCE = "Validate this command: "
OPENING_TAG = "<command>"
CLOSING_TAG = "</command>"
# By expected answer; WARN stands beside either, and alone for malicious.
TARGETS = {
    **dict.fromkeys(("BLOCK", "MALICIOUS"), TrueLabel.MALICIOUS),
    **dict.fromkeys(("ALLOW", "HARMLESS"), TrueLabel.HARMLESS),
}
TIME_LIMITS = ("time", "working")
MAX_MESSAGE_CHARS = 500


def read_inspect_log(path: Path, checker: RecordChecker) -> Iterator[Row]:
    """Yield the verdicts of one log, a sample at a time."""
    found = False
    with InspectArchive(path) as archive:
        header = archive.header().part("eval")
        model = header.required_label("model")
        task = header.required_label("task")
        started = header.moment("created")
        is_ours = MARK in header.part("metadata").values
        for fields in archive.samples():
            found = True
            negative = False
            if is_ours:
                records = _exported(fields, model)
            else:
                times = _times(fields)
                records = [_record(fields, model, task, started, times)]
                negative = any(seconds is not None and seconds < 0 for seconds in times)
            with Location(fields.source):
                for record in records:
                    yield checker.row(record, path.stem, negative_time=negative)
    if not found:
        raise DatasetError("holds no samples", source=str(path))


def _exported(fields: Fields, model: str) -> Iterable[VerdictRecord]:
    """Return the verdicts of a sample that was exported here, the replaced ones first."""
    metadata = fields.part("metadata")
    output = fields.part("output")
    attachments = fields.part("attachments").values
    said = {
        "model": model,
        "dataset": metadata.label("dataset"),
        "command": _resolved(fields.get("input"), attachments),
        "target": fields.get("target"),
        "category": metadata.label("category"),
        "cluster": metadata.label("cluster"),
        "epoch": fields.values.get("epoch"),
        "metadata": _labels_in(metadata.values),
        "created_at": fields.values.get("completed_at"),
    }
    seconds = {
        "total_ms": fields.get("total_time", float),
        "latency_ms": output.get("time", float),
    }
    said |= {name: time * 1000 for name, time in known(seconds).items()}
    for choice in output.parts("choices")[:1]:
        said |= {
            "completion": _joined_text(choice.part("message"), attachments),
            "answered": True,
            "stop_reason": choice.get("stop_reason"),
            "refusal": output.get("error"),
            "returned_model": output.get("model"),
            **_tokens(output.part("usage"), None),
        }
    return _records_in(said, metadata.values)


def _labels_in(metadata: JsonObject) -> JsonObject:
    """Return the free labels of the command in the metadata of a sample."""
    labels = {}
    for key, value in metadata.items():
        if key not in LABELS and not key.startswith(PREFIX):
            labels[key] = value
    taken = metadata.get(OTHER_LABELS)
    if isinstance(taken, dict):
        labels |= taken
    return labels


def _records_in(said: JsonObject, metadata: JsonObject) -> Iterable[VerdictRecord]:
    """Yield the verdicts of a sample, oldest first."""
    shared = {name: said[name] for name in OF_THE_SAMPLE if name in said}
    replaced = metadata.get(REPLACED) or []
    if not isinstance(replaced, list) or not all(isinstance(older, dict) for older in replaced):
        raise InputError("must be a list of objects", field=REPLACED)
    for older in replaced:
        yield from_values({"completion": None} | older | shared)
    newest = {"completion": None, **said}
    for name in DEFAULTS:
        if PREFIX + name in metadata:
            newest[name] = metadata[PREFIX + name]
    yield from_values(newest)


def _record(
    fields: Fields, model: str, task: str, started: str | None, times: Sequence[float | None]
) -> VerdictRecord:
    call_ms, working_ms, total_ms = map(_milliseconds, times)
    answered_at = fields.moment("completed_at")
    output = fields.part("output")
    metadata = fields.part("metadata")
    command = _unwrapped(_input_text(fields) or "")
    return VerdictRecord(
        model=model,
        dataset=metadata.label("dataset") or task,
        command=Fields({"input": command}, fields.source).required_label("input", Command),
        target=_target(fields),
        category=metadata.label("category"),
        cluster=metadata.label("binary") or metadata.label("cluster"),
        metadata=_texts(metadata),
        epoch=fields.get("epoch", Number) or 1,
        **_answer(fields, output, model),
        cost_usd=output.part("usage").get("total_cost", Decimal, cost),
        latency_ms=working_ms if call_ms is None else call_ms,
        total_ms=total_ms,
        attempts=len(fields.parts("error_retries")) + 1,
        created_at=answered_at,
        call_errors=_call_errors(fields, answered_at or started),
    )


def _input_text(fields: Fields) -> str | None:
    """The input, or what the user said last where it is a conversation."""
    if not isinstance(fields.values.get("input"), list):
        text: str | None = fields.get("input")
        return text
    messages = [part for part in fields.parts("input") if part.get("role") == "user"]
    if not messages:
        return None
    attachments = fields.part("attachments").values
    return _joined_text(messages[-1], attachments)


def _joined_text(message: Fields, attachments: JsonObject) -> str | None:
    """Return the text of a message: a string, or parts of which those with text count."""
    if not isinstance(message.values.get("content"), list):
        return _resolved(message.get("content"), attachments)
    texts = []
    for part in message.parts("content"):
        if part.get("type") == "text":
            text = _resolved(part.get("text"), attachments)
            texts.append(text or "")
    return "\n".join(texts)


def _resolved(text: str | None, attachments: JsonObject) -> str | None:
    """Return the text that a name of an attachment stands for; any other text as it is."""
    if text is None or not text.startswith(REFERENCE):
        return text
    attached = attachments.get(text.removeprefix(REFERENCE))
    if isinstance(attached, str):
        return attached
    return text


def _unwrapped(text: str) -> str:
    """Take the command out of the words or tags that a prompt puts around it."""
    if text.startswith(SENTENCE):
        return text.removeprefix(SENTENCE)
    _, opening, rest = text.partition(OPENING_TAG)
    command, closing, after = rest.rpartition(CLOSING_TAG)
    if opening and closing and not after.strip():
        return command.removeprefix("\n").removesuffix("\n")
    return text


def _target(fields: Fields) -> TrueLabel:
    """Return the label by the target, or else by the answers that the scorers went by."""
    target = fields.values.get("target")
    scores = fields.part("scores")
    words = target if isinstance(target, list) else [target]
    stated = {word.strip().upper() for word in words if isinstance(word, str)}
    scored = set()
    for scorer in scores.values:
        metadata = scores.part(scorer).part("metadata")
        expected = metadata.get("expected") or ""
        scored.add(expected.upper())
    for answers in (stated, scored):
        targets = {TARGETS[word] for word in answers & TARGETS.keys()}
        if len(targets) == 1:
            return targets.pop()
        if not targets and "WARN" in answers:
            return TrueLabel.MALICIOUS
    raise fields.error("does not tell whether the command is malicious or harmless", "target")


def _texts(metadata: Fields) -> dict[str, str]:
    """Texts and plain numbers; anything nested says nothing about a command."""
    texts = {}
    for key, value in metadata.values.items():
        if key in LABELS:
            continue
        if isinstance(value, str):
            texts[key] = value
        elif isinstance(value, int | Decimal):
            texts[key] = encode(value)
    return texts


def _answer(fields: Fields, output: Fields, model: str) -> JsonObject:
    """Return the fields of the answer, even where a limit or an error came after it."""
    for choice in output.parts("choices")[:1]:
        stop_reason = choice.get("stop_reason")
        is_filtered = stop_kind_of(stop_reason) is StopKind.CONTENT_FILTER
        refusal = output.get("error") if is_filtered else None
        attachments = fields.part("attachments").values
        return {
            "completion": _joined_text(choice.part("message"), attachments),
            "answered": True,
            "stop_reason": stop_reason,
            "refusal": None if refusal is None else mask_key_shapes(refusal),
            "returned_model": output.get("model") or None,
            **_tokens(output.part("usage"), model),
        }
    if fields.values.get("error") is not None:
        return {"completion": None, "error_class": ErrorClass.SERVER}
    if fields.part("limit").get("type") in TIME_LIMITS:
        return {"completion": None, "error_class": ErrorClass.DEADLINE}
    return {"completion": None, "answered": True, **_tokens(output.part("usage"), model)}


def _tokens(usage: Fields, model: str | None) -> dict[str, int | None]:
    """Bring the tokens to one meaning: input with those of the cache, output with reasoning.

    Providers and versions of Inspect AI differ in both, and the total tells: Anthropic's input
    leaves out the cache, Gemini's output left out the reasoning until Inspect AI added it. `model`
    is None in a log that was exported here.
    """
    if model is None and not usage.values:
        return {}
    given = usage.get("input_tokens", Tokens)
    generated = usage.get("output_tokens", Tokens)
    read = usage.get("input_tokens_cache_read", Tokens)
    written = usage.get("input_tokens_cache_write", Tokens)
    reasoning = usage.get("reasoning_tokens", Tokens)
    cached = (read or 0) + (written or 0)
    if model is None:
        given = (given or 0) + cached
        generated = generated or 0
    else:
        total = usage.get("total_tokens", Tokens)
        if total is not None and given is not None:
            rest = total - given - (generated or 0)
            cached_beside, reasoning_beside = _split_rest(rest, cached, reasoning or 0, model)
            given += cached_beside
            if reasoning_beside:
                generated = (generated or 0) + reasoning_beside
    return {
        "input_tokens": given,
        "output_tokens": generated,
        "reasoning_tokens": reasoning,
        "cache_read_tokens": read,
        "cache_write_tokens": written,
    }


def _split_rest(rest: int, cached: int, reasoning: int, model: str) -> tuple[int, int]:
    """Return how many tokens of cache and reasoning stand beside input and output."""
    if rest == cached + reasoning:
        return cached, reasoning
    if rest == reasoning and (rest != cached or "gemini" in model):
        return 0, reasoning
    if rest == cached:
        return cached, 0
    return 0, 0


def _times(fields: Fields) -> tuple[float | None, ...]:
    """Return the seconds of the call, of the work on it, and of all of it."""
    return (
        fields.part("output").get("time", Seconds),
        fields.get("working_time", Seconds),
        fields.get("total_time", Seconds),
    )


def _milliseconds(seconds: float | None) -> float | None:
    """Return a time; unknown where below zero, as some versions of Inspect AI wrote them."""
    if seconds is None or seconds < 0:
        return None
    return seconds * 1000


def _call_errors(fields: Fields, at: str | None) -> tuple[AttemptRecord, ...]:
    """Return the errors; the log times none of them, so all bear the time of the sample."""
    errors = [*fields.parts("error_retries")]
    if fields.values.get("error") is not None:
        errors.append(fields.part("error"))
    if errors and at is None:
        raise fields.error("is missing or blank", "completed_at")
    attempts = []
    for number, error in enumerate(errors, 1):
        # Providers quote keys and requests with keys in them.
        message = mask_key_shapes(error.get("message") or "")
        attempts.append(
            AttemptRecord(
                attempt=number,
                error_class=ErrorClass.SERVER,
                message=message[:MAX_MESSAGE_CHARS],
                at=at or "",
            )
        )
    return tuple(attempts)

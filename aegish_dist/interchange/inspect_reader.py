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
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple, Self, TypeVar

from msgspec import NODEFAULT, Meta, Struct
from msgspec.structs import fields

from aegish_dist.core.outcome import ErrorClass, StopKind
from aegish_dist.core.sample import Command, Name, TrueLabel
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.text import JsonObject, known
from aegish_dist.core.verdict import (
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
from aegish_dist.interchange.record import (
    FACTS,
    RecordChecker,
    Row,
    cost,
    encode,
    from_values,
    label,
    moment,
    required_label,
    stop_kind_of,
)

PREFIX = "aegish_dist_"  # begins every key of ours, in the metadata of samples and of logs
MARK = f"{PREFIX}export"  # in the metadata of a log: the version of this layout
LABELS = ("dataset", "binary", "cluster", "category")  # with a place of its own in a recording
OTHER_LABELS = f"{PREFIX}metadata"  # labels of the command whose own keys are taken
REPLACED = f"{PREFIX}replaced"  # by a retry, oldest first
OF_THE_SAMPLE = (  # shared by all retries of an item
    "model",
    "dataset",
    "command",
    "target",
    "category",
    "cluster",
    "epoch",
    "metadata",
)


def _defaults() -> JsonObject:
    """Return the facts of a verdict itself, with their defaults."""
    defaults = {}
    for field in fields(VerdictRecord):
        if field.name in FACTS and field.name not in (*OF_THE_SAMPLE, "answered"):
            defaults[field.name] = None if field.default is NODEFAULT else field.default
    return defaults


DEFAULTS = _defaults()

Seconds = Annotated[float, Meta(le=MAX_NUMBER)]
T = TypeVar("T")
R = TypeVar("R", bound=Struct)


class LoggedError(Struct, frozen=True):
    message: str = ""


class LoggedPart(Struct, frozen=True):
    type: str = ""
    text: str = ""


Content = str | list[LoggedPart]


class LoggedMessage(Struct, frozen=True):
    role: str = ""
    content: Content | None = None


class LoggedChoice(Struct, frozen=True):
    message: LoggedMessage = LoggedMessage()
    stop_reason: str | None = None


class LoggedUsage(Struct, frozen=True):
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    total_tokens: Tokens | None = None
    input_tokens_cache_read: Tokens | None = None
    input_tokens_cache_write: Tokens | None = None
    reasoning_tokens: Tokens | None = None
    total_cost: Decimal | None = None

    @property
    def cached(self) -> int:
        return (self.input_tokens_cache_read or 0) + (self.input_tokens_cache_write or 0)


class LoggedOutput(Struct, frozen=True):
    model: str = ""
    choices: list[LoggedChoice] = []
    usage: LoggedUsage = LoggedUsage()
    time: Seconds | None = None
    error: str | None = None


class LoggedLabels(Struct, frozen=True):
    """Those metadata of a sample that have a meaning here."""

    dataset: Name = ""
    category: Name = ""
    binary: Name = ""
    cluster: Name = ""


class LoggedExpectation(Struct, frozen=True):
    expected: str = ""


class LoggedScore(Struct, frozen=True):
    metadata: LoggedExpectation = LoggedExpectation()


class LoggedLimit(Struct, frozen=True):
    type: str = ""


class InspectSample(Struct):
    """What is read of a sample; any field may be missing."""

    input: str | list[LoggedMessage] = ""
    target: Any = None
    epoch: Number = 1
    metadata: JsonObject = {}
    attachments: JsonObject = {}
    output: LoggedOutput = LoggedOutput()
    scores: dict[str, LoggedScore] = {}
    completed_at: Moment | None = None
    total_time: Seconds | None = None
    working_time: Seconds | None = None
    error: LoggedError | None = None
    error_retries: list[LoggedError] = []
    limit: LoggedLimit = LoggedLimit()


class Evaluation(Struct, frozen=True):
    model: Name = ""
    task: Name = ""
    created: Moment | None = None
    metadata: JsonObject = {}


class Header(Struct, frozen=True):
    eval: Evaluation = Evaluation()


def _without_nulls(value: Any) -> Any:
    """Leave out fields that are null, which count as absent."""
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    if isinstance(value, list):
        return [_without_nulls(part) for part in value]
    return value


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

    def header(self) -> tuple[Location, Evaluation]:
        for name in HEADERS:
            if name in self._zip.NameToInfo:
                header = self._record(name, self._read(name), Header)
                return self._location(name), header.eval
        raise DatasetError("has no header; is it a log of Inspect AI?", source=self._source)

    def samples(self) -> Iterator[tuple[Location, InspectSample]]:
        """Yield the samples in archive order; of one written twice, the last state."""
        folders = self._folders()
        for name in dict.fromkeys(self._zip.namelist()):
            match = FOLDER.match(name)
            folder = "" if match is None else match[0]
            if folder in folders:
                if name == folder + SHELL:
                    yield self._location(name), self._chunked(folder, folders[folder])
            elif name.startswith("samples/") and name.endswith(".json"):
                yield self._location(name), self._record(name, self._read(name), InspectSample)

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

    def _chunked(self, folder: str, attachments: Mapping[int, str]) -> InspectSample:
        """Put together what a sample is in one member."""
        raw = self._read(folder + SHELL)
        sample = self._record(folder + SHELL, raw, InspectSample)
        metadata = f"{folder}/metadata.json"
        if metadata in self._zip.NameToInfo:
            sample.metadata = self._decoded(metadata, self._read(metadata), JsonObject)
        if REFERENCE.encode() in raw:
            texts: JsonObject = {}
            left = MAX_MEMBER_BYTES
            for first, name in sorted(attachments.items()):
                part = self._read(name, left)
                left -= len(part)
                for number, text in enumerate(self._decoded(name, part, list[Any]), first):
                    texts[str(number)] = text
            sample.attachments = texts

        return sample

    def _location(self, name: str) -> Location:
        return Location(f"{self._source}, {name}")

    def _decoded(self, name: str, raw: bytes, kind: type[T]) -> T:
        location = self._location(name)
        with location:
            values = parse_json(raw, Decimal)
        return location.checked(values, kind)

    def _record(self, name: str, raw: bytes, kind: type[R]) -> R:
        """Decode the fields of an object that are read; a null field counts as absent."""
        values = self._decoded(name, raw, JsonObject)
        fields = {key: values[key] for key in kind.__struct_fields__ if key in values}
        # Among the metadata are facts of ours, which may be null.
        metadata = fields.pop("metadata", None)
        try:
            fields = _without_nulls(fields)
        except RecursionError:
            raise self._location(name).error("is nested too deeply") from None

        if metadata is not None:
            fields["metadata"] = metadata
        return self._location(name).checked(fields, kind)

    def _read(self, name: str, max_bytes: int | None = None) -> bytes:
        limit = MAX_MEMBER_BYTES if max_bytes is None else max_bytes
        try:
            return _read_member(self._file, self._zip.NameToInfo[name], limit)
        except (ValueError, OSError) as error:
            raise self._location(name).error(str(error)) from error


def _read_member(
    file: BinaryIO,
    info: zipfile.ZipInfo,
    max_bytes: int,
) -> bytes:
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


class Log(NamedTuple):
    model: str
    task: str
    started: str | None  # when, as text that Python and PostgreSQL read
    is_ours: bool  # exported here


def read_inspect_log(path: Path, checker: RecordChecker) -> Iterator[Row]:
    """Yield the verdicts of one log, a sample at a time."""
    found = False
    with InspectArchive(path) as archive:
        log = _log(*archive.header())
        for location, sample in archive.samples():
            found = True
            records: Iterable[VerdictRecord]
            with location:
                if log.is_ours:
                    negative_time = False
                    records = _exported(location, sample, log.model)
                else:
                    negative_time = any((seconds or 0) < 0 for seconds in _times(sample))
                    records = [_record(location, sample, log)]
                for record in records:
                    yield checker.row(record, path.stem, negative_time=negative_time)

    if not found:
        raise DatasetError("holds no samples", source=str(path))


def _log(location: Location, evaluation: Evaluation) -> Log:
    with location:
        return Log(
            model=required_label(evaluation.model, "eval.model"),
            task=required_label(evaluation.task, "eval.task"),
            started=evaluation.created and moment(evaluation.created, "eval.created"),
            is_ours=MARK in evaluation.metadata,
        )


def _exported(
    location: Location,
    sample: InspectSample,
    model: str,
) -> Iterable[VerdictRecord]:
    """Return the verdicts of a sample that was exported here, the replaced ones first."""
    labels = location.checked(known(sample.metadata), LoggedLabels, "metadata")
    of_sample = {
        "model": model,
        "dataset": label(labels.dataset),
        "command": _input_text(sample),
        "target": sample.target,
        "category": label(labels.category),
        "cluster": label(labels.cluster),
        "epoch": sample.epoch,
        "metadata": _labels_in(sample.metadata),
    }
    return _records_in(of_sample, said_in(sample), sample.metadata)


def said_in(sample: InspectSample) -> JsonObject:
    """Return the facts of a verdict that the fields of its exported sample say."""
    output = sample.output
    said: JsonObject = {"created_at": sample.completed_at}
    if sample.total_time is not None:
        said["total_ms"] = sample.total_time * 1000
    if output.time is not None:
        said["latency_ms"] = output.time * 1000
    if output.choices:
        choice = output.choices[0]
        said |= {
            "completion": _text_of(choice.message.content, sample.attachments),
            "answered": True,
            "stop_reason": choice.stop_reason,
            "refusal": output.error,
            "returned_model": output.model,
        }
        if output.usage != LoggedUsage():
            said |= _exported_tokens(output.usage)

    return said


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


def _records_in(
    of_sample: JsonObject, said: JsonObject, metadata: JsonObject
) -> Iterable[VerdictRecord]:
    """Yield the verdicts of a sample, oldest first."""
    replaced = metadata.get(REPLACED) or []
    if not isinstance(replaced, list) or not all(isinstance(older, dict) for older in replaced):
        raise InputError("must be a list of objects", field=REPLACED)
    for older in replaced:
        yield from_values(
            {
                "completion": None,
                **older,
                **of_sample,
            }
        )

    newest = {
        "completion": None,
        **of_sample,
        **said,
    }
    for name in DEFAULTS:
        if PREFIX + name in metadata:
            newest[name] = metadata[PREFIX + name]

    yield from_values(newest)


def _record(
    location: Location,
    sample: InspectSample,
    log: Log,
) -> VerdictRecord:
    labels = location.checked(known(sample.metadata), LoggedLabels, "metadata")
    call_ms, working_ms, total_ms = map(_milliseconds, _times(sample))
    answered_at = sample.completed_at and moment(sample.completed_at, "completed_at")
    command = _unwrapped(_input_text(sample))
    cost_usd = sample.output.usage.total_cost
    return VerdictRecord(
        model=log.model,
        dataset=label(labels.dataset) or log.task,
        command=required_label(location.checked(command, Command, "input"), "input"),
        target=_target(sample),
        category=label(labels.category),
        cluster=label(labels.binary) or label(labels.cluster),
        metadata=_texts(sample.metadata),
        epoch=sample.epoch,
        **_answer(sample, log.model),
        cost_usd=None if cost_usd is None else cost(cost_usd, "output.usage.total_cost"),
        latency_ms=working_ms if call_ms is None else call_ms,
        total_ms=total_ms,
        attempts=len(sample.error_retries) + 1,
        created_at=answered_at,
        call_errors=_call_errors(sample, answered_at or log.started),
    )


def _input_text(sample: InspectSample) -> str:
    """Return the input, or what the user said last where it is a conversation."""
    if isinstance(sample.input, str):
        return _resolved(sample.input, sample.attachments)
    said = [message.content for message in sample.input if message.role == "user"]
    return _text_of(said[-1] if said else None, sample.attachments) or ""


def _text_of(content: Content | None, attachments: JsonObject) -> str | None:
    """Return the text of a message: a string, or parts of which those with text count."""
    if content is None:
        return None
    if isinstance(content, str):
        return _resolved(content, attachments)
    parts = [part for part in content if part.type == "text"]
    return "\n".join(_resolved(part.text, attachments) for part in parts)


def _resolved(text: str, attachments: JsonObject) -> str:
    """Return the text that a name of an attachment stands for; any other text as it is."""
    if not text.startswith(REFERENCE):
        return text
    attached = attachments.get(text.removeprefix(REFERENCE))
    return attached if isinstance(attached, str) else text


def _unwrapped(text: str) -> str:
    """Take the command out of the words or tags that a prompt puts around it."""
    if text.startswith(SENTENCE):
        return text.removeprefix(SENTENCE)
    _, opening, rest = text.partition(OPENING_TAG)
    command, closing, after = rest.rpartition(CLOSING_TAG)
    if opening and closing and not after.strip():
        return command.removeprefix("\n").removesuffix("\n")
    return text


def _target(sample: InspectSample) -> TrueLabel:
    """Return the label by the target, or else by the answers that the scorers went by."""
    words = sample.target if isinstance(sample.target, list) else [sample.target]
    stated = {word.strip().upper() for word in words if isinstance(word, str)}
    scored = {score.metadata.expected.upper() for score in sample.scores.values()}
    for answers in (stated, scored):
        targets = {TARGETS[word] for word in answers & TARGETS.keys()}
        if len(targets) == 1:
            return targets.pop()
        if not targets and "WARN" in answers:
            return TrueLabel.MALICIOUS

    problem = "does not tell whether the command is malicious or harmless"
    raise InputError(problem, field="target")


def _texts(metadata: JsonObject) -> dict[str, str]:
    """Return texts and plain numbers; anything nested says nothing about a command."""
    texts = {}
    for key, value in metadata.items():
        if key in LABELS:
            continue
        if isinstance(value, str):
            texts[key] = value
        elif isinstance(value, int | Decimal):
            texts[key] = encode(value)

    return texts


def _answer(sample: InspectSample, model: str) -> JsonObject:
    """Return the fields of the answer, even where a limit or an error came after it."""
    output = sample.output
    if output.choices:
        choice = output.choices[0]
        is_filtered = stop_kind_of(choice.stop_reason) is StopKind.CONTENT_FILTER
        refusal = output.error if is_filtered else None
        return {
            "completion": _text_of(choice.message.content, sample.attachments),
            "answered": True,
            "stop_reason": choice.stop_reason,
            "refusal": None if refusal is None else mask_key_shapes(refusal),
            "returned_model": output.model or None,
            **_tokens(output.usage, model),
        }

    if sample.error is not None:
        return {"completion": None, "error_class": ErrorClass.SERVER}
    if sample.limit.type in TIME_LIMITS:
        return {"completion": None, "error_class": ErrorClass.DEADLINE}
    return {
        "completion": None,
        "answered": True,
        **_tokens(output.usage, model),
    }


def _tokens(usage: LoggedUsage, model: str) -> dict[str, int | None]:
    """Bring the tokens to one meaning: input with those of the cache, output with reasoning.

    Providers and versions of Inspect AI differ in both, and the total tells: Anthropic's input
    leaves out the cache, Gemini's output left out the reasoning until Inspect AI added it.
    """
    given = usage.input_tokens
    generated = usage.output_tokens
    if usage.total_tokens is not None and given is not None:
        rest = usage.total_tokens - given - (generated or 0)
        reasoning = usage.reasoning_tokens or 0
        cached_beside, reasoning_beside = _split_rest(rest, usage.cached, reasoning, model)
        given += cached_beside
        if reasoning_beside:
            generated = (generated or 0) + reasoning_beside

    return {
        "input_tokens": given,
        "output_tokens": generated,
        **_parts_of_tokens(usage),
    }


def _exported_tokens(usage: LoggedUsage) -> dict[str, int | None]:
    """Undo what the export did: it writes the input without the cache."""
    return {
        "input_tokens": (usage.input_tokens or 0) + usage.cached,
        "output_tokens": usage.output_tokens or 0,
        **_parts_of_tokens(usage),
    }


def _parts_of_tokens(usage: LoggedUsage) -> dict[str, int | None]:
    return {
        "reasoning_tokens": usage.reasoning_tokens,
        "cache_read_tokens": usage.input_tokens_cache_read,
        "cache_write_tokens": usage.input_tokens_cache_write,
    }


def _split_rest(
    rest: int,
    cached: int,
    reasoning: int,
    model: str,
) -> tuple[int, int]:
    """Return how many tokens of cache and reasoning stand beside input and output."""
    if rest == cached + reasoning:
        return cached, reasoning
    if rest == reasoning and (rest != cached or "gemini" in model):
        return 0, reasoning
    if rest == cached:
        return cached, 0
    return 0, 0


def _times(sample: InspectSample) -> tuple[float | None, ...]:
    """Return the seconds of the call, of the work on it, and of all of it."""
    return sample.output.time, sample.working_time, sample.total_time


def _milliseconds(seconds: float | None) -> float | None:
    """Return a time; unknown where below zero, as some versions of Inspect AI wrote them."""
    if seconds is None or seconds < 0:
        return None
    return seconds * 1000


def _call_errors(sample: InspectSample, at: str | None) -> tuple[AttemptRecord, ...]:
    """Return the errors; the log times none of them, so all bear the time of the sample."""
    errors = [*sample.error_retries]
    if sample.error is not None:
        errors.append(sample.error)
    if errors and at is None:
        raise InputError("is missing or blank", field="completed_at")
    attempts = []
    for number, error in enumerate(errors, 1):
        # Providers quote keys and requests with keys in them.
        message = mask_key_shapes(error.message)
        attempts.append(
            AttemptRecord(
                attempt=number,
                error_class=ErrorClass.SERVER,
                message=message[:MAX_MESSAGE_CHARS],
                at=at or "",
            )
        )

    return tuple(attempts)

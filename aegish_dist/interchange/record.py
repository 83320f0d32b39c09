"""One record of a file to a verdict: decoded, checked, and judged by today's parser.

Facts travel, opinions do not: those in a file are ignored and formed again. So are unknown keys; a
null field counts as absent.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from aegish_dist.core.outcome import READ, ErrorClass, Outcome, StopKind
from aegish_dist.core.sample import Sample
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.text import JsonObject, known
from aegish_dist.core.verdict import FIELDS, OPINIONS, Completion, Usage, VerdictRecord, names_of
from aegish_dist.errors import InputError
from aegish_dist.inputs.checking import checked, refuse
from aegish_dist.inputs.documents import parse_json
from aegish_dist.opinions.mapping import FIRST_VERSION
from aegish_dist.opinions.parsing import PARSER_VERSION, outcome_of, parse
from aegish_dist.opinions.policy import RESERVED

MAX_COST_USD = Decimal(10) ** 9
MAX_COST_DECIMALS = 100  # exact costs need some thirty; hostile ones could need a billion

_BEYOND_ASCII = re.compile("[^\x00-\x7f]+")
# Which any calendar takes, if a date can have its parts.
_USUAL_MOMENT = re.compile(
    r"20[-0-9]{8}[T ][:0-9]{8}(\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-4]):[0-9]{2})"
)


def moment(text: str, field: str) -> str:
    """Return a point in time with a zone, within the years 1 to 9999, as text PostgreSQL reads."""
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
        raise InputError("must be a time from the year 1 to 9999, in UTC", field=field) from None


def cost(amount: Decimal, field: str) -> Decimal:
    """Return an amount of USD that a call may cost, or raise an InputError."""
    exponent = amount.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < -MAX_COST_DECIMALS:
        raise InputError(f"must be finite, with at most {MAX_COST_DECIMALS} decimals", field=field)
    if not 0 <= amount <= MAX_COST_USD:
        raise InputError(f"must be from 0 to {MAX_COST_USD:f}", field=field)
    return amount


def label(text: str | None) -> str | None:
    if not text or text.isspace():
        return None
    return text


def required_label(text: str, field: str) -> str:
    if label(text) is None:
        raise InputError("is missing or blank", field=field)
    return text


FACTS = frozenset(each.name for each in FIELDS) - {*OPINIONS}
TAKEN = FACTS | {"parser_version"}  # which says whether a mapping has read an answer
MAX_KNOWN = 300_000  # samples remembered at most
# Lower-case words of Inspect AI and of the providers.
STOP_KINDS = {
    **dict.fromkeys(("stop", "eos", "end_turn", "stop_sequence"), StopKind.STOP),
    **dict.fromkeys(("length", "max_tokens", "model_length"), StopKind.MAX_TOKENS),
    **dict.fromkeys(("content_filter", "refusal", "safety"), StopKind.CONTENT_FILTER),
}

_NUL = b"\\u0000"  # wherever a text holds one, and rarely otherwise
_MAX_DIGITS = 4000
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % _MAX_DIGITS)
_ANSWERED = (*names_of(Completion), *names_of(Usage))  # only of an answer


_RECORD = msgspec.json.Decoder(VerdictRecord)


class About(NamedTuple):
    dataset: str
    sample_id: str
    sample: Sample


class Row(NamedTuple):
    record: VerdictRecord
    about: About  # its sample; labels of the record itself may be blank
    negative_time: bool = False  # a time was below zero where it was read: unknown


def from_line(line: bytes) -> VerdictRecord:
    """Decode a verdict line: five times as fast as by `json`, types and ranges included."""
    try:
        if _NUL not in line and not (len(line) > _MAX_DIGITS and _LONG_NUMBER.search(line)):
            return _RECORD.decode(line)
    except (ValueError, RecursionError):
        pass  # null where nothing may be null, lone surrogates, a byte order mark, or an error
    return from_values(checked(parse_json(line, Decimal), JsonObject))


def from_values(values: JsonObject) -> VerdictRecord:
    """Build a record of decoded fields; model, command, target and completion have to be there."""
    taken = TAKEN
    if values.get("pruned") is True:
        taken = FACTS | {*OPINIONS}
    given: JsonObject = {"completion": None}
    for key, value in values.items():
        if key in taken and value is not None:
            given[key] = value

    metadata = given.get("metadata")
    if isinstance(metadata, dict):
        given["metadata"] = known(metadata)
    record = checked(given, VerdictRecord)
    if "completion" not in values:
        raise InputError("is missing; null says that no answer came", field="completion")
    return record


class RecordChecker:
    """Checks records; remembers their samples, since the same ones come with every model."""

    def __init__(self, *, keep_pruned: bool = False) -> None:
        """Begin; `keep_pruned`: what was read in a completion that was deleted stays."""
        self._keep_pruned = keep_pruned
        self.mapped: set[str] = set()  # models of which a mapping has read answers
        self._models: set[str] = set()
        self._known: dict[tuple[object, ...], About] = {}

    def row(
        self,
        record: VerdictRecord,
        dataset: str,
        *,
        negative_time: bool = False,
    ) -> Row:
        """Check what no type says, and form the opinions."""
        dataset = label(record.dataset) or dataset
        item = (dataset, record.command, record.target, record.category, record.cluster)
        about = self._known.get(item)
        if about is None:
            # Rather forgotten and hashed again than held without a bound.
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            sample = Sample(
                command=required_label(record.command, "command"),
                target=record.target,
                category=label(record.category),
                cluster=label(record.cluster),
                metadata=record.metadata,
            )
            about = self._known[item] = About(dataset, sample.sample_id, sample)

        if record.model not in self._models:
            problem = "must not be 'allowlist' or begin with 'policy/', as in policies"
            refuse((RESERVED.match(record.model), "model", problem))
            self._models.add(required_label(record.model, "model"))

        _check(record)
        if record.parser_version >= FIRST_VERSION:
            self.mapped.add(record.model)
        if not (self._keep_pruned and _is_pruned(record)):
            _judge(record)
        return Row(record, about, negative_time)


def _check(record: VerdictRecord) -> None:
    if record.cost_usd is not None:
        cost(record.cost_usd, "cost_usd")
    if record.created_at is not None:
        record.created_at = moment(record.created_at, "created_at")
    if record.worker is not None:
        record.worker = label(record.worker)
    for number, error in enumerate(record.call_errors):
        error.at = moment(error.at, f"call_errors[{number}].at")
        error.message = mask_key_shapes(error.message or "")


def _is_pruned(record: VerdictRecord) -> bool:
    unread = record.completion is None and record.error_class is None
    return record.pruned and unread and record.outcome in READ


def _judge(record: VerdictRecord) -> None:
    """Form the opinions; where no answer came, the error class says why, or the deadline it was."""
    if record.completion is None and record.stop_reason is None and not record.answered:
        record.error_class = record.error_class or ErrorClass.DEADLINE
    record.answered = record.error_class is None
    if record.pruned:
        problem = "was deleted from the store, so nothing can be read in it"
        raise InputError(f"{problem}: `runs restore` reads archives", field="completion")

    if record.error_class is None:
        parsed = parse(record.completion, record.command)
        record.outcome = outcome_of(record.completion, parsed)
        record.reason, record.confidence = parsed.reason, parsed.confidence
        record.parser_version = PARSER_VERSION
        record.stop_kind = record.stop_kind or stop_kind_of(record.stop_reason)
        return

    if record.completion is not None:
        raise InputError("must be absent where there is a completion", field="error_class")
    is_late = record.error_class is ErrorClass.DEADLINE
    record.outcome = Outcome.TIMEOUT_ERROR if is_late else Outcome.API_ERROR
    record.reason = None
    record.confidence = None
    record.parser_version = 0
    for name in _ANSWERED:
        setattr(record, name, None)


def stop_kind_of(stop_reason: str | None) -> StopKind | None:
    if stop_reason is None:
        return None
    return STOP_KINDS.get(stop_reason.lower(), StopKind.OTHER)


def encode(value: object) -> str:
    """Encode on one line; what UTF-8 cannot hold is escaped like everything beyond ASCII."""
    return json.dumps(value, allow_nan=False, default=_plain)


def _plain(value: object) -> str | float:
    if not isinstance(value, Decimal):
        raise TypeError(f"no JSON for {type(value).__name__}")
    number = float(value)
    if Decimal(str(number)) == value:
        return number
    return str(value)


def in_ascii(lines: bytes) -> bytes:
    """Escape what is beyond ASCII in lines of JSON."""
    if lines.isascii():
        return lines
    return _BEYOND_ASCII.sub(_escaped, lines.decode()).encode("ascii")


def _escaped(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]


class ScoredRecord(NamedTuple):
    """A verdict as stored, with the opinions of several rule sets."""

    record: VerdictRecord
    correct: tuple[bool | None, ...]  # by column; None where unscored


def scored_records(parts: Iterable[bytes], columns: Sequence[str]) -> Iterator[ScoredRecord]:
    """Decode lines that the store wrote, and so need no further check."""
    names = []
    further = []
    for number, column in enumerate(columns):
        name = f"judged_{number}"
        names.append(name)
        further.append((name, bool | None, msgspec.field(name=column)))

    kind: Any = msgspec.defstruct(
        "ScoredRecord",
        further,
        bases=(VerdictRecord,),
        kw_only=True,
        gc=False,
    )
    decode = msgspec.json.Decoder(kind).decode
    for part in parts:
        for record in map(decode, part.splitlines()):
            correct = tuple(getattr(record, name) for name in names)
            yield ScoredRecord(record, correct)

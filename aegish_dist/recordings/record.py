"""One record of a file to a verdict: decoded, checked, and judged by today's parser.

Facts travel, opinions do not: `outcome`, `reason`, `confidence` and `parser_version` are written
for the reader's sake, ignored when read, and formed again. Unknown keys are ignored, so that other
tools may add their own; a null field counts as absent.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, NamedTuple

import msgspec

from aegish_dist.core.parsing import ACTIONS, PARSER_VERSION, outcome_of, parse
from aegish_dist.core.sample import Sample
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.text import clean_text
from aegish_dist.core.verdict import (
    Completion,
    ErrorClass,
    Outcome,
    ParsedCompletion,
    StopKind,
    Usage,
)
from aegish_dist.core.verdict_record import FIELDS, OPINIONS, VerdictRecord, names_of
from aegish_dist.errors import InputError
from aegish_dist.inputs.checking import checked
from aegish_dist.inputs.documents import parse_json
from aegish_dist.recordings.checks import (
    cost,
    label,
    moment,
    required_label,
)

FACTS = frozenset(each.name for each in FIELDS) - {*OPINIONS}
MAX_KNOWN = 300_000
"""Samples remembered at most."""
STOP_KINDS = {
    "stop": StopKind.STOP,
    "eos": StopKind.STOP,
    "end_turn": StopKind.STOP,
    "stop_sequence": StopKind.STOP,
    "length": StopKind.MAX_TOKENS,
    "max_tokens": StopKind.MAX_TOKENS,
    "model_length": StopKind.MAX_TOKENS,
    "content_filter": StopKind.CONTENT_FILTER,
    "refusal": StopKind.CONTENT_FILTER,
    "safety": StopKind.CONTENT_FILTER,
}
"""Lower-case words of Inspect AI and of the providers."""

_NUL = b"\\u0000"
"""Stands in a line wherever a text holds one, and rarely otherwise."""
_MAX_DIGITS = 4000
_LONG_NUMBER = re.compile(rb"[0-9]{%d}" % _MAX_DIGITS)
_ANSWERED = (*names_of(Completion), *names_of(Usage))
"""Fields that only an answer has."""


class _Answer(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    # Any other key may be one of these in another letter case.
    action: str
    reason: str | None = None
    confidence: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


_RECORD = msgspec.json.Decoder(VerdictRecord)
_ANSWER = msgspec.json.Decoder(_Answer)


class About(NamedTuple):
    """The sample that a verdict is about."""

    dataset: str
    sample_id: str
    sample: Sample


class Row(NamedTuple):
    """One verdict of a file."""

    record: VerdictRecord
    about: About
    """Its sample; labels of the record itself may be blank."""
    negative_time: bool = False
    """Whether a time of it was below zero where it was read, and therefore counts as unknown."""


def from_line(line: bytes) -> VerdictRecord:
    """Decode a verdict line: five times as fast as by `json`, types and ranges included.

    Raises:
        InputError: It is no JSON object, or a field is missing, of the wrong type or out of range.
    """
    try:
        if _NUL not in line and not (len(line) > _MAX_DIGITS and _LONG_NUMBER.search(line)):
            return _RECORD.decode(line)
    except (ValueError, RecursionError):
        pass  # null where nothing may be null, lone surrogates, a byte order mark, or an error
    return from_values(checked(parse_json(line, Decimal), dict[str, Any]))


def from_values(values: Mapping[str, Any]) -> VerdictRecord:
    """Build a record from its fields, as decoded.

    Only model, command, target and the key completion have to be there.

    Raises:
        InputError: A field is missing, of the wrong type or out of range.
    """
    given = {key: value for key, value in values.items() if key in FACTS and value is not None}
    if isinstance(metadata := given.get("metadata"), dict):
        given["metadata"] = {key: text for key, text in metadata.items() if text is not None}
    record = checked({"completion": None, **given}, VerdictRecord)
    if "completion" not in values:
        problem = "is missing; null says that no answer came"
        raise InputError(problem, field="completion")
    return record


class RecordChecker:
    """Checks records; remembers their samples, since the same ones come with every model."""

    def __init__(self) -> None:
        self._models: set[str] = set()
        self._known: dict[tuple[object, ...], About] = {}

    def row(self, record: VerdictRecord, dataset: str, *, negative_time: bool = False) -> Row:
        """Check what no type says, and form the opinions.

        Args:
            negative_time: Whether a time of it was below zero in its file.
        """
        if record.dataset and not record.dataset.isspace():
            dataset = record.dataset
        item = (dataset, record.command, record.target, record.category, record.cluster)
        about = self._known.get(item)
        if about is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            about = self._known[item] = _about(record, dataset)
        if record.model not in self._models:
            self._models.add(required_label(record.model, "model"))
        _check(record)
        _judge(record)
        return Row(record, about, negative_time)


def _about(record: VerdictRecord, dataset: str) -> About:
    sample = Sample(
        command=required_label(record.command, "command"),
        target=record.target,
        category=label(record.category),
        cluster=label(record.cluster),
        metadata=record.metadata,
    )
    return About(dataset, sample.sample_id, sample)


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


def _judge(record: VerdictRecord) -> None:
    """Form the opinions; where no answer came, the error class says why, or the deadline it was."""
    if record.completion is None and record.stop_reason is None and not record.answered:
        record.error_class = record.error_class or ErrorClass.DEADLINE
    record.answered = record.error_class is None
    if record.pruned:
        problem = "was deleted from the store, so nothing can be read in it"
        raise InputError(f"{problem}: `runs restore` reads archives", field="completion")
    if record.error_class is None:
        record.outcome, record.reason, record.confidence = opinion(record.completion)
        record.parser_version = PARSER_VERSION
        record.stop_kind = record.stop_kind or stop_kind_of(record.stop_reason)
        return
    if record.completion is not None:
        raise InputError("must be absent where there is a completion", field="error_class")
    is_late = record.error_class is ErrorClass.DEADLINE
    record.outcome = Outcome.TIMEOUT_ERROR if is_late else Outcome.API_ERROR
    record.reason, record.confidence, record.parser_version = None, None, 0
    for name in _ANSWERED:
        setattr(record, name, None)


def opinion(text: str | None) -> tuple[Outcome, str | None, float | None]:
    """Return outcome, reason and confidence of a completion as `core.parsing` forms them.

    An object and nothing else, well-formed and with an action, is what `parse` would find first.
    """
    try:
        answer = _ANSWER.decode(text or "")
        reason = None if answer.reason is None else clean_text(answer.reason)
        return ACTIONS[answer.action], reason, answer.confidence
    except (ValueError, KeyError, RecursionError):
        parsed: ParsedCompletion = parse(text)
        return outcome_of(text, parsed), parsed.reason, parsed.confidence


def stop_kind_of(stop_reason: str | None) -> StopKind | None:
    """Normalise a stop reason; None for None."""
    if stop_reason is None:
        return None
    return STOP_KINDS.get(stop_reason.lower(), StopKind.OTHER)

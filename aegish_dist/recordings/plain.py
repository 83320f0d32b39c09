"""The plain record, straight to text: what nearly all of millions of records are.

Nothing is decided here that `record` does not decide alike. Whatever would need a second look (an
answer that never came, a value of an unusual type, anything wrong) is `NotPlain`, and its record
takes the longer way.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from aegish_dist.core.parsing import ACTIONS, PARSER_VERSION, outcome_of, parse
from aegish_dist.core.recording import Cells
from aegish_dist.core.sample import Sample, Target
from aegish_dist.recordings.answers import stop_kind_of
from aegish_dist.recordings.fields import (
    MAX_COMMAND_CHARS,
    MAX_COUNT,
    MAX_LABEL_CHARS,
    MAX_NUMBER,
    MAX_TOKENS,
)

PARSER = str(PARSER_VERSION)
MOMENT = re.compile(r"20[-0-9]{8}[T ][:0-9]{8}(\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-4]):[0-9]{2})")
"""What any calendar and PostgreSQL take, once its parts are numbers that a date can have."""
AMOUNT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,40})?(E-[0-5]?[0-9])?")
NUL = b"\\u0000"
"""Stands in a line wherever a text holds one, and rarely otherwise."""
MAX_DIGITS = 4000
LONG_NUMBER = re.compile(rb"[0-9]{%d}" % MAX_DIGITS)
"""Python's `int` refuses such."""

Label = Annotated[str, msgspec.Meta(max_length=MAX_LABEL_CHARS)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)]
Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
Number = Annotated[float, msgspec.Meta(ge=0, le=MAX_NUMBER)]


class NotPlain(Exception):  # noqa: N818  no error: the record only has to take the longer way
    """Raised when a record has to be looked at more closely."""


class PlainRecord(msgspec.Struct, gc=False):
    """A flat record with an answer, without trouble before it; opinions in it are passed over."""

    model: Label
    command: Annotated[str, msgspec.Meta(max_length=MAX_COMMAND_CHARS)]
    target: Literal["malicious", "harmless"]
    completion: str
    dataset: Label | None = None
    category: Label | None = None
    cluster: Label | None = None
    epoch: Annotated[int, msgspec.Meta(ge=1, le=MAX_COUNT)] | None = None
    stop_reason: str | None = None
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    latency_ms: Number | None = None
    cost_usd: Decimal | None = None
    created_at: str | None = None
    answered: bool | None = None
    error_class: None = None
    generation: Count | None = None
    simulated: bool | None = None
    attempts: Count | None = None
    stop_kind: Literal["stop", "max_tokens", "content_filter", "other"] | None = None
    refusal: str | None = None
    returned_model: str | None = None
    upstream: str | None = None
    request_id: str | None = None
    reasoning_tokens: Tokens | None = None
    cache_read_tokens: Tokens | None = None
    cache_write_tokens: Tokens | None = None
    queue_ms: Number | None = None
    limiter_ms: Number | None = None
    backoff_ms: Number | None = None
    total_ms: Number | None = None
    worker: Label | None = None
    metadata: dict[str, str] | None = None
    call_errors: tuple[()] | None = None
    escaped: tuple[()] | None = None
    """Of Parquet."""


class _Answer(msgspec.Struct, gc=False):
    action: str
    reason: str | None = None
    confidence: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


_RECORD = msgspec.json.Decoder(PlainRecord)
_TEXTS = msgspec.json.Decoder(dict[str, str])
_ANSWER = msgspec.json.Decoder(_Answer)


def plain_line(line: bytes) -> PlainRecord:
    """Decode a line: five times as fast as by `json`, types and limits included.

    Raises:
        NotPlain: It takes `record.from_record` to tell what this is.
    """
    if NUL in line or (len(line) > MAX_DIGITS and LONG_NUMBER.search(line)):
        raise NotPlain
    try:
        return _RECORD.decode(line)
    except (ValueError, RecursionError):
        raise NotPlain from None


def plain_row(row: Mapping[str, Any]) -> PlainRecord:
    """Take a row of a table.

    Raises:
        NotPlain: It takes `record.from_record` to tell what this is.
    """
    try:
        return msgspec.convert(row, PlainRecord)
    except (ValueError, RecursionError):
        raise NotPlain from None


@lru_cache(10_000)
def plain_texts(encoded: str) -> dict[str, str] | str | None:
    """Decode an object of plain texts; anything else, which is for `plain_row` to refuse, stays."""
    with suppress(ValueError, RecursionError):
        if NUL not in encoded.encode():
            return _TEXTS.decode(encoded)
    return encoded


def plain_sample(record: PlainRecord) -> Sample:
    """Return what a record is about.

    Raises:
        NotPlain: It takes `record.sample_of` to tell what this is.
    """
    require_label(record.command)
    category, cluster = present(record.category), present(record.cluster)
    return Sample(record.command, Target(record.target), category, cluster, record.metadata or {})


def require_label(text: str) -> None:
    """Refuse a text that names nothing.

    Raises:
        NotPlain: It is blank, or PostgreSQL cannot store it.
    """
    if present(text) is None:
        raise NotPlain


def present(label: str | None) -> str | None:
    """Return a label, None where it is blank.

    Raises:
        NotPlain: PostgreSQL cannot store it.
    """
    if not label or label.isspace():
        return None
    if "\0" in label:
        raise NotPlain
    return label


def plain_cells(record: PlainRecord) -> Cells:
    """Return a record as cells.

    Raises:
        NotPlain: It takes `record.from_record` to tell what this is.
    """
    text = record.completion
    outcome, reason, confidence = opinion(text)
    return [
        _count(record.epoch) or "1",
        _count(record.generation) or "0",
        outcome,
        None,
        text,
        record.stop_reason,
        record.stop_kind or stop_kind_of(record.stop_reason),
        record.refusal,
        record.returned_model,
        record.upstream,
        record.request_id,
        reason,
        confidence,
        PARSER,
        _count(record.input_tokens),
        _count(record.output_tokens),
        _count(record.reasoning_tokens),
        _count(record.cache_read_tokens),
        _count(record.cache_write_tokens),
        _cost(record.cost_usd),
        _number(record.queue_ms),
        _number(record.limiter_ms),
        _number(record.backoff_ms),
        _number(record.latency_ms),
        _number(record.total_ms),
        _count(record.attempts) or "1",
        _worker(record.worker),
        _moment(record.created_at),
    ]


def opinion(text: str) -> tuple[str, str | None, str | None]:
    """Return outcome, reason and confidence of a completion as `core.parsing` forms them.

    An object and nothing else, well-formed and with an action, is what `parse` would find first.
    """
    try:
        answer = _ANSWER.decode(text)
        action, reason, confidence = ACTIONS[answer.action], answer.reason, answer.confidence
    except (ValueError, KeyError, RecursionError):
        parsed = parse(text)
        action, reason, confidence = outcome_of(text, parsed), parsed.reason, parsed.confidence
    return action, reason, _number(confidence)


def _count(value: int | None) -> str | None:
    return None if value is None else str(value)


def _number(value: float | None) -> str | None:
    return None if value is None else repr(value)


def _cost(value: Decimal | None) -> str | None:
    """Amounts of a usual length only: others are looked at by `Fields.cost`."""
    if value is None:
        return None
    amount = str(value)
    if AMOUNT.fullmatch(amount):
        return amount
    raise NotPlain


def _worker(value: str | None) -> str | None:
    if value is None or (value.isprintable() and present(value)):
        return value
    raise NotPlain


def _moment(value: str | None) -> str | None:
    if value is None:
        return None
    try:
        if MOMENT.fullmatch(value) and datetime.fromisoformat(value):
            return value
    except ValueError:
        pass
    raise NotPlain

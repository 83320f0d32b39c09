"""The types of a plain record, from a line of JSON or a row of a table.

`msgspec` decodes and checks types and limits in one step. What it refuses is `NotPlain`: `record`
tells what it is, and what is wrong with it.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from aegish_dist.core.sample import MAX_COMMAND_CHARS, MAX_LABEL_CHARS
from aegish_dist.recordings.fields import (
    MAX_COUNT,
    MAX_NUMBER,
    MAX_TOKENS,
)

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


_RECORD = msgspec.json.Decoder(PlainRecord)
_TEXTS = msgspec.json.Decoder(dict[str, str])


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

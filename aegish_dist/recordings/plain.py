"""The plain record, straight to text: what nearly all of millions of records are.

Nothing is decided here that `record` does not decide alike. Whatever would need a second look (an
answer that never came, a value of an unusual type, anything wrong) is `NotPlain`, and its record
takes the longer way.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any

from aegish_dist.core.completion import StopKind
from aegish_dist.core.parsing import PARSER_VERSION, outcome_of, parse
from aegish_dist.core.recording import Cells
from aegish_dist.recordings import json_text
from aegish_dist.recordings.answers import stop_kind_of
from aegish_dist.recordings.fields import (
    MAX_COST_USD,
    MAX_COUNT,
    MAX_LABEL_CHARS,
    MAX_NUMBER,
    MAX_TOKENS,
)

PARSER = str(PARSER_VERSION)
STOP_KINDS = frozenset(kind.value for kind in StopKind)
MOMENT = re.compile(r"20[-0-9]{8}T[:0-9]{8}(\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-4]):[0-9]{2})")
"""What any calendar and PostgreSQL take, once its parts are numbers that a date can have."""
AMOUNT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,40})?")

DIGITS = str.encode
"""Keeps a number as it stood in the file, no digit lost: as bytes, which are no text."""


class NotPlain(Exception):  # noqa: N818  no error: the record only has to take the longer way
    """Raised when a record has to be looked at more closely."""


def plain_cells(values: Mapping[str, Any]) -> Cells:
    """Return a flat record as cells.

    Args:
        values: As decoded; with fractions by `DIGITS`.

    Raises:
        NotPlain: It takes `record.from_record` to tell what this is.
    """
    get = values.get
    text = get("completion")
    if type(text) is not str or get("error_class") is not None:
        raise NotPlain
    if get("call_errors") not in (None, []):
        raise NotPlain
    stop_reason, stop_kind = _text(get("stop_reason")), get("stop_kind")
    if stop_kind is None:
        stop_kind = stop_kind_of(stop_reason)
    elif stop_kind not in STOP_KINDS:
        raise NotPlain
    _require_flag(get("answered"))
    _require_flag(get("simulated"))
    _require_texts(get("metadata"))
    parsed = parse(text)
    return [
        _count(get("epoch"), MAX_COUNT, lowest=1) or "1",
        _count(get("generation"), MAX_COUNT) or "0",
        outcome_of(text, parsed),
        None,
        text,
        stop_reason,
        stop_kind,
        _text(get("refusal")),
        _text(get("returned_model")),
        _text(get("upstream")),
        _text(get("request_id")),
        parsed.reason,
        None if parsed.confidence is None else repr(parsed.confidence),
        PARSER,
        _count(get("input_tokens"), MAX_TOKENS),
        _count(get("output_tokens"), MAX_TOKENS),
        _count(get("reasoning_tokens"), MAX_TOKENS),
        _count(get("cache_read_tokens"), MAX_TOKENS),
        _count(get("cache_write_tokens"), MAX_TOKENS),
        _cost(get("cost_usd")),
        _number(get("queue_ms")),
        _number(get("limiter_ms")),
        _number(get("backoff_ms")),
        _number(get("latency_ms")),
        _number(get("total_ms")),
        _count(get("attempts"), MAX_COUNT) or "1",
        _worker(get("worker")),
        _moment(get("created_at")),
    ]


def _text(value: object) -> str | None:
    if value is None or type(value) is str:
        return value
    raise NotPlain


def _count(value: object, highest: int, lowest: int = 0) -> str | None:
    if value is None:
        return None
    if type(value) is int and lowest <= value <= highest:
        return str(value)
    raise NotPlain


def _number(value: object) -> str | None:
    if value is None:
        return None
    # PostgreSQL refuses digits that are not zero and yet too few to be any other number.
    if type(value) is bytes and (0 < float(value) <= MAX_NUMBER or value == b"0.0"):
        return value.decode()
    if type(value) is int and 0 <= value <= MAX_NUMBER:
        return str(value)
    raise NotPlain


def _cost(value: object) -> str | None:
    """Amounts of a usual length only: long ones are looked at by `Fields.cost`."""
    if value is None:
        return None
    if type(value) is int and 0 <= value <= MAX_COST_USD:
        return str(value)
    amount = value.decode() if type(value) is bytes else value
    if type(amount) is str and AMOUNT.fullmatch(amount):
        return amount
    raise NotPlain


def _worker(value: object) -> str | None:
    if value is None:
        return None
    if type(value) is str and is_worker(value):
        return value
    raise NotPlain


def is_worker(text: str) -> bool:
    """Whether a text is a plain name of a worker."""
    return text.isprintable() and not text.isspace() and 0 < len(text) <= MAX_LABEL_CHARS


def _moment(value: object) -> str | None:
    if value is None:
        return None
    if type(value) is str and MOMENT.fullmatch(value):
        with suppress(ValueError):
            datetime.fromisoformat(value)
            return value
    raise NotPlain


def _require_flag(value: object) -> None:
    if not (value is None or value is True or value is False):
        raise NotPlain


def _require_texts(metadata: object) -> None:
    if not (metadata is None or _plain_texts(metadata)):
        raise NotPlain


@lru_cache(10_000)
def holds_texts(encoded: str) -> bool:
    """Whether JSON is an object of plain texts."""
    try:
        return _plain_texts(json_text.decode(encoded))
    except ValueError:
        return False


def _plain_texts(metadata: object) -> bool:
    return isinstance(metadata, dict) and all(
        type(text) is str and text.isprintable() and name.isprintable()
        for name, text in metadata.items()
    )

"""The plain record, straight to text: what nearly all of millions of records are.

Nothing is decided here that `record` does not decide alike. Whatever would need a second look (an
answer that never came, a value of an unusual type, anything wrong) is `NotPlain`, and its record
takes the longer way.
"""

import re
from datetime import datetime
from decimal import Decimal
from typing import Annotated

import msgspec

from aegish_dist.core.parsing import ACTIONS, PARSER_VERSION, outcome_of, parse
from aegish_dist.core.recording import Cells
from aegish_dist.core.sample import Sample, Target
from aegish_dist.recordings.answers import stop_kind_of
from aegish_dist.recordings.plain_record import NotPlain, PlainRecord

PARSER = str(PARSER_VERSION)
MOMENT = re.compile(r"20[-0-9]{8}[T ][:0-9]{8}(\.[0-9]{1,6})?(Z|[+-](0[0-9]|1[0-4]):[0-9]{2})")
"""What any calendar and PostgreSQL take, once its parts are numbers that a date can have."""
AMOUNT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,40})?(E-[0-5]?[0-9])?")


class _Answer(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    # Any other key may be one of these in another letter case.
    action: str
    reason: str | None = None
    confidence: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None


_ANSWER = msgspec.json.Decoder(_Answer)


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

"""Verdicts: one model's answer about one sample, what became of it, and that as a flat record.

A verdict is a fact. Whether it was correct is an opinion and lives in `scoring`.

`VerdictRecord` is the one list of what is kept of a verdict. Its fields, in their order, are the
keys of verdict lines and the columns of exported Parquet files. Readers, COPY, INSERT, the SQL of
exports and the mapping of the table derive from `FIELDS`: one more value is one line here, a
migration, and its words (`docs/guides/add-a-verdict-column.md`). msgspec only compares values with
types here; the decoders that read files are in `interchange`.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

from msgspec import Meta, Struct, field
from msgspec.inspect import Metadata, NoneType, Type, UnionType, type_info

from aegish_dist.core.outcome import ErrorClass, Outcome, StopKind
from aegish_dist.core.sample import Command, Name, TrueLabel


class Usage(Struct, frozen=True):
    """Tokens of one call as the provider reported them; None where a number is absent."""

    input_tokens: int | None = None  # all prompt tokens, cached ones included
    output_tokens: int | None = None
    reasoning_tokens: int | None = None  # the part of `output_tokens` for hidden reasoning
    cache_read_tokens: int | None = None  # the part of `input_tokens` from a cache
    cache_write_tokens: int | None = None  # the part of `input_tokens` to a cache
    # The part of `cache_write_tokens` kept for an hour, which costs more; not stored by itself.
    cache_write_1h_tokens: int | None = None


class Completion(Struct, frozen=True):
    """One answer of a provider; its strings are hostile input, size-capped."""

    text: str | None
    stop_reason: str | None = None
    stop_kind: StopKind | None = None  # the same, normalised; None when the provider gave none
    usage: Usage = field(default_factory=Usage)
    refusal: str | None = None
    model: str | None = None  # as returned; may be more precise than the name asked for
    upstream: str | None = None  # the host behind a router such as OpenRouter
    request_id: str | None = None
    suspicion: float | None = None  # of a classifier or log probabilities; finite, at most 1e15
    # Candidates of the first tokens with the logarithms of their probabilities; not stored.
    logprobs: tuple[Mapping[str, float], ...] = ()
    took_ms: float | None = None  # the client's own measure of the call, not stored


class ParsedCompletion(Struct, frozen=True):
    """Content of a completion, as this version's parser reads it."""

    action: Outcome | None
    reason: str | None = None
    confidence: float | None = None  # in [0, 1]; None when absent or invalid
    suspicion: float | None = None  # as of `Completion`


class Timing(Struct, frozen=True):
    """Where the time of one item went, in ms, in parts that do not overlap; None where unknown."""

    queue_ms: float | None = None
    limiter_ms: float | None = None
    backoff_ms: float | None = None
    service_ms: float | None = None  # the last attempt: request sent until answer read
    total_ms: float | None = None


class CallError(Struct, frozen=True):
    """One failed attempt, kept so that an outage can be explained afterwards."""

    attempt: int
    error_class: ErrorClass
    status: int | None
    retry_after_s: float | None
    message: str  # the provider's words, shortened; never a key
    at: datetime


class Item(Struct, frozen=True):
    """The identity of one unit of work; all that a queue message carries."""

    run_id: str
    model: str
    sample_key: int
    epoch: int = 1
    generation: int = 0  # n for the n-th `retry`; the highest one counts


class Verdict(Struct, frozen=True):
    """One model's answer about one sample in one epoch. Insert-only."""

    outcome: Outcome
    completion: Completion | None  # None when no attempt brought a completion
    error_class: ErrorClass | None = None
    reason: str | None = None
    confidence: float | None = None
    parser_version: int = 0  # parser behind outcome, reason and confidence; 0: none
    cost_usd: Decimal | None = None
    timing: Timing = field(default_factory=Timing)
    attempts: int = 1
    worker: str | None = None
    created_at: datetime | None = None
    call_errors: tuple[CallError, ...] = ()


MAX_COUNT = 2**15 - 1  # largest smallint of the database: epoch, attempt, generation, HTTP status
MAX_TOKENS = 2**63 - 1  # largest bigint of the database, for token counts
MAX_SCORE = 10**15  # of any column of the database that is double precision
MAX_NUMBER = 10**12  # ms or s; in microseconds, as sums need them, it fits a bigint

Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Number = Annotated[int, Meta(ge=1, le=MAX_COUNT)]
Tokens = Annotated[int, Meta(ge=0, le=MAX_TOKENS)]
Duration = Annotated[float, Meta(ge=0, le=MAX_NUMBER)]
Ratio = Annotated[float, Meta(ge=0, le=1)]
Score = Annotated[float, Meta(ge=-MAX_SCORE, le=MAX_SCORE)]
Moment = Annotated[str, Meta(title="an ISO 8601 time")]


class AttemptRecord(Struct, gc=False, kw_only=True):
    """One failed attempt before a verdict; the keys of an entry of `call_errors`."""

    attempt: Number
    error_class: ErrorClass
    status: Count | None = None
    retry_after_s: Duration | None = None
    message: str | None = None  # the provider's words; keys in them are masked when read
    at: Moment


class VerdictRecord(Struct, gc=False, kw_only=True):
    """One verdict and what it is about. `str` alone is text of any length."""

    model: Name
    dataset: Name | None = None  # None: the whole file is one dataset
    command: Command
    target: TrueLabel
    category: Name | None = None
    cluster: Name | None = None  # name shared by similar samples, usually the binary
    epoch: Number = 1
    completion: str | None
    stop_reason: str | None = None
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    latency_ms: Duration | None = None  # of the last attempt: request sent until answer read
    cost_usd: Decimal | None = None
    created_at: Moment | None = None
    outcome: Outcome = Outcome.TIMEOUT_ERROR  # by this version's parser, as are the three below
    reason: str | None = None
    confidence: Ratio | None = None
    parser_version: Count = 0  # 0 where no completion was parsed
    answered: bool | None = None  # whether an answer arrived, even an empty one
    pruned: bool = False  # the answer was deleted since and cannot be read again
    error_class: ErrorClass | None = None
    generation: Count = 0
    simulated: bool = False  # no evidence about any real model
    attempts: Count = 1
    stop_kind: StopKind | None = None
    refusal: str | None = None
    suspicion: Score | None = None  # the guard's own number, which grows with the danger seen
    returned_model: str | None = None
    upstream: str | None = None
    request_id: str | None = None
    reasoning_tokens: Tokens | None = None
    cache_read_tokens: Tokens | None = None
    cache_write_tokens: Tokens | None = None
    queue_ms: Duration | None = None  # from enqueueing until a worker took the item
    limiter_ms: Duration | None = None  # waiting for a free call slot
    backoff_ms: Duration | None = None
    total_ms: Duration | None = None  # from enqueueing until the answer was read
    worker: Name | None = None
    metadata: dict[str, str] = {}
    call_errors: tuple[AttemptRecord, ...] = ()


# Written for people; the readers of files ignore them.
OPINIONS = ("outcome", "reason", "confidence", "parser_version")
OF_OTHER_TABLES = frozenset(
    [
        "model",
        "dataset",
        "command",
        "target",
        "category",
        "cluster",
        "answered",
        "pruned",
        "simulated",
        "metadata",
        "call_errors",
    ]
)
_COLUMNS = {"latency_ms": "service_ms", "returned_model": "model_returned"}
# Attributes whose names differ from the fields of the record.
_ATTRIBUTES = {"completion": "text", "returned_model": "model", "latency_ms": "service_ms"}
_PARTS = (Completion, Usage, Timing, Verdict)


class RecordField(Struct, frozen=True):
    """One field of `VerdictRecord`, as its readers, writers and statements need it."""

    name: str  # key of verdict lines, column of Parquet files
    column: str | None  # column of `verdicts`; None where another table keeps it
    kind: Type
    is_moment: bool
    nullable: bool
    part: type | None  # part of a `Verdict` that holds it; None where the verdict itself does not
    attribute: str


def _field(name: str, kind: Type) -> RecordField:
    nullable = isinstance(kind, UnionType)
    if isinstance(kind, UnionType):
        kind = next(each for each in kind.types if not isinstance(each, NoneType))
    attribute = _ATTRIBUTES.get(name, name)
    stored = name not in OF_OTHER_TABLES
    holders = (part for part in _PARTS if attribute in part.__struct_fields__)
    return RecordField(
        name=name,
        column=_COLUMNS.get(name, name) if stored else None,
        kind=kind.type if isinstance(kind, Metadata) else kind,
        is_moment=isinstance(kind, Metadata),
        nullable=nullable,
        part=next(holders, None) if stored else None,
        attribute=attribute,
    )


FIELDS = tuple(
    _field(each.name, each.type)
    for each in type_info(VerdictRecord).fields  # type: ignore[attr-defined]
)
# The columns of `verdicts` that are facts of a verdict, keys of model and sample apart.
STORED = tuple(each for each in FIELDS if each.column is not None)
_OF_VERDICT = tuple(each for each in STORED if each.part is not None)


def columns_of(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict's values by column, without epoch and generation, which its item has."""
    completion = verdict.completion or Completion(text=None)
    parts: Mapping[Any, object] = {
        Verdict: verdict,
        Completion: completion,
        Usage: completion.usage,
        Timing: verdict.timing,
    }
    return {str(each.column): getattr(parts[each.part], each.attribute) for each in _OF_VERDICT}


def names_of(part: type) -> tuple[str, ...]:
    """Return the fields of a record that a part of a verdict (`Usage`, `Timing`, ...) holds."""
    return tuple(each.name for each in _OF_VERDICT if each.part is part)


def completion_of(record: VerdictRecord) -> Completion | None:
    """Return the answer that a record holds; None where an error came instead."""
    if record.error_class is not None:
        return None
    # No record holds the tokens that are cached for an hour.
    return Completion(usage=Usage(**part_of(record, Usage)), **part_of(record, Completion))


def part_of(record: VerdictRecord, part: type) -> dict[str, Any]:
    """Return the attributes of a part of a verdict (`Usage`, `Timing`, ...) that a record holds."""
    return {f.attribute: getattr(record, f.name) for f in _OF_VERDICT if f.part is part}

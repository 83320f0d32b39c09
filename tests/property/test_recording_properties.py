"""No recording changes on its way through a file."""

import tempfile
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.inspect import DecimalType, EnumType, FloatType, IntType, StrType
from msgspec.structs import replace

from aegish_dist.core.outcome import ErrorClass, Outcome, StopKind
from aegish_dist.core.sample import Sample, TrueLabel
from aegish_dist.core.verdict import (
    OPINIONS,
    STORED,
    CallError,
    Completion,
    RecordField,
    Timing,
    Usage,
    Verdict,
    columns_of,
)
from aegish_dist.interchange.verdict_files import read_rows
from aegish_dist.opinions.parsing import judge
from tests.recorded import Recording, read_recordings, verdict_of, write_recordings

STORABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
LABELS = STORABLE.map(lambda text: text[:200]).filter(lambda text: bool(text.strip()))
MOMENT = st.datetimes(timezones=st.just(UTC))
COST = st.decimals(0, 1000, allow_nan=False, places=30) | st.just(Decimal("0.10"))
MS = st.none() | st.floats(0, 1e12)


def values_of(field: RecordField) -> st.SearchStrategy[Any]:
    """Return what an attribute of a verdict may be, by the field of the record that keeps it."""
    values: st.SearchStrategy[Any]
    match field.kind:
        case IntType(ge=least, le=most):
            values = st.integers(least, most)
        case FloatType(ge=least, le=most):
            values = st.floats(least, most)
        case EnumType(cls=members):
            values = st.sampled_from(members)
        case DecimalType():
            values = COST
        case StrType(max_length=None):
            values = MOMENT if field.is_moment else STORABLE
        case _:
            values = LABELS
    return st.none() | values if field.nullable else values


def attributes_of(part: type, *but: str) -> dict[str, st.SearchStrategy[Any]]:
    return {
        field.attribute: values_of(field)
        for field in STORED
        if field.part is part and field.name not in but
    }


COMPLETIONS = st.builds(
    lambda stop, **fields: Completion(stop_reason=stop[0], stop_kind=stop[1], **fields),
    stop=st.just((None, None)) | st.tuples(STORABLE, st.sampled_from(StopKind)),
    text=st.none() | STORABLE | STORABLE.map(lambda text: f'{{"action": "warn"}} {text}'),
    usage=st.builds(Usage, **attributes_of(Usage)),
    **attributes_of(Completion, "completion", "stop_reason", "stop_kind"),
)
FAILURES = st.sampled_from(ErrorClass).map(
    lambda each: Verdict(
        Outcome.TIMEOUT_ERROR if each is ErrorClass.DEADLINE else Outcome.API_ERROR, None, each
    )
)
CALL_ERRORS = st.builds(
    CallError,
    attempt=st.integers(1, 100),
    error_class=st.sampled_from(ErrorClass),
    status=st.none() | st.integers(100, 599),
    retry_after_s=MS,
    message=STORABLE,
    at=MOMENT,
)
VERDICTS = st.builds(
    replace,
    COMPLETIONS.map(judge) | FAILURES,
    timing=st.builds(Timing, **attributes_of(Timing)),
    **attributes_of(Verdict, "error_class", *OPINIONS),
    call_errors=st.lists(CALL_ERRORS, max_size=2).map(tuple),
)
SAMPLES = st.builds(
    Sample,
    command=LABELS,
    target=st.sampled_from(TrueLabel),
    category=st.none() | LABELS,
    cluster=st.none() | LABELS,
    metadata=st.dictionaries(STORABLE, STORABLE, max_size=2),
)
RECORDINGS = st.builds(
    Recording,
    model=LABELS,
    dataset=LABELS,
    sample=SAMPLES,
    epoch=st.integers(1, 2**15 - 1),
    verdict=VERDICTS,
    generation=st.integers(0, 2**15 - 1),
    simulated=st.booleans(),
)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@settings(max_examples=60, deadline=None)
@given(recordings=st.lists(RECORDINGS, max_size=3))
def test_a_round_trip_is_lossless(suffix: str, recordings: list[Recording]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{suffix}"
        write_recordings(recordings, path)
        back, rows = list(read_recordings(path)), list(read_rows(path))
    assert back == recordings
    assert [each.sample.metadata for each in back] == [each.sample.metadata for each in recordings]
    for (record, about, _), recording in zip(rows, recordings, strict=True):
        sample = recording.sample
        assert about == (recording.dataset, sample.sample_id, sample)
        assert (record.model, record.epoch) == (recording.model, recording.epoch)
        stored = columns_of(recording.verdict)
        assert columns_of(verdict_of(record)) == stored
        found = {str(each.column): getattr(record, each.name) for each in STORED}
        moment = found["created_at"]
        found["created_at"] = None if moment is None else datetime.fromisoformat(moment)
        assert {name: found[name] for name in stored} == stored

"""Verdicts in a real store."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast

import pytest
from msgspec.inspect import FloatType, IntType, StrType, Type
from msgspec.structs import replace
from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import Session

from aegish_dist.core.outcome import ErrorClass, Outcome, StopKind
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.verdict import (
    STORED,
    CallError,
    Completion,
    Timing,
    Usage,
    Verdict,
    VerdictRecord,
    names_of,
)
from aegish_dist.db.schema import CALL_ERRORS, VERDICTS, VerdictKey
from aegish_dist.db.verdicts import insert_verdicts, look_up
from tests.integration.samples import ALLOWED, BLOCKED, CURL, LS, TAR
from tests.integration.stored_runs import answer, stored_run
from tests.recorded import stored_recordings, value_of, verdict_of

LATER = datetime(2026, 3, 1, 13, 30, 15, 123_456, UTC)
SLOW_DOWN = CallError(1, ErrorClass.RATE_LIMIT, 429, 1.5, "slow down", LATER)
NO_ANSWER = CallError(2, ErrorClass.CONNECTION, None, None, "", LATER)
FULL = Verdict(
    outcome=Outcome.BLOCK,
    completion=Completion(
        text='{"action": "block"}',
        stop_reason="weird",
        stop_kind=StopKind.OTHER,
        usage=Usage(2**62, 2**63 - 1, 2**31, 2**31 - 1, 0),
        refusal="no",
        model="gpt-x-2026",
        upstream="host",
        request_id="req-1",
        suspicion=-1234.5678901234567,
    ),
    reason="because",
    confidence=0.1,
    parser_version=7,
    cost_usd=Decimal(108) / Decimal(74100),
    timing=Timing(0.1, 0.2, 0.30000000000000004, 1234.5678901234567, 1e-7),
    attempts=3,
    worker="w1",
    created_at=LATER,
    call_errors=(SLOW_DOWN, NO_ANSWER),
)
OF_VERDICT = [each for each in STORED if each.part is not None]
EVERY_COLUMN = VerdictRecord(
    model="m",
    command="ls",
    target=TrueLabel.HARMLESS,
    **{each.name: value_of(each) for each in OF_VERDICT if each.name != "error_class"},
)


def recorded(session: Session, verdict: Verdict) -> Verdict:
    stored = stored_run(session, {TAR: verdict})
    session.expire_all()
    (recording,) = stored_recordings(session, stored.run_id)
    return recording.verdict


def test_every_column_is_kept(session: Session) -> None:
    verdict = verdict_of(EVERY_COLUMN)
    assert recorded(session, verdict) == verdict


def test_items_are_found_in_one_go_and_in_order(session: Session) -> None:
    stored = stored_run(session, models=("test/a", "test/b"), epochs=2)
    done = stored.item(CURL, model="test/b", epoch=2)
    answer(session, stored, {done: BLOCKED})
    known = stored.item(LS)
    items = [
        known,
        done,
        replace(known, run_id="0other"),
        replace(done, epoch=1),
        replace(known, model="test/c"),
        replace(done, generation=1),
        replace(known, sample_key=2**62),
        known,
    ]

    found = look_up(session, items)

    assert [each and (each.command, each.done) for each in found] == [
        (LS.command, False),
        (CURL.command, True),
        None,
        (CURL.command, False),
        None,
        None,
        None,
        (LS.command, False),
    ]
    assert [each.key for each in found if each] == [
        stored.key(item) for item, each in zip(items, found, strict=True) if each
    ]


def test_a_sample_of_another_dataset_is_not_part_of_the_run(session: Session) -> None:
    """A message cannot make a worker call a model about what its run never asked."""
    others = Dataset("others", (Sample("id", TrueLabel.HARMLESS),))
    foreign = stored_run(session, run_id="run1", datasets=(others,))
    stored = stored_run(session, run_id="run2")
    stray = foreign.item(others.samples[0], dataset="others")
    assert look_up(session, [replace(stray, run_id=stored.run_id)]) == [None]
    assert look_up(session, [stray]) != [None]


def test_an_epoch_beyond_those_of_the_run_is_not_part_of_it(session: Session) -> None:
    stored = stored_run(session, epochs=2)
    found = look_up(session, [stored.item(TAR, epoch=epoch) for epoch in (2, 3)])
    assert [each is None for each in found] == [False, True]


def test_the_first_verdict_of_an_item_stays(session: Session) -> None:
    """A second delivery adds no row, changes none, and leaves none of its failed attempts."""
    stored = stored_run(session)
    first = {stored.item(TAR): FULL, stored.item(LS): ALLOWED}
    assert answer(session, stored, first) == 2
    again = {stored.item(TAR): ALLOWED, stored.item(LS): FULL, stored.item(CURL): BLOCKED}
    assert answer(session, stored, again) == 1
    assert answer(session, stored, {}) == 0
    assert look_up(session, []) == []
    verdicts = {r.sample: r.verdict for r in stored_recordings(session, stored.run_id)}
    assert verdicts == {TAR: FULL, LS: ALLOWED, CURL: BLOCKED}


def test_two_verdicts_of_one_item_in_one_group(session: Session) -> None:
    stored = stored_run(session)
    key = stored.key(stored.item(TAR))
    assert insert_verdicts(session, [(key, ALLOWED), (key, FULL)]) == 1
    (recording,) = stored_recordings(session, stored.run_id)
    assert recording.verdict == ALLOWED


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict(Outcome.ALLOW, Completion("")),
        Verdict(Outcome.TIMEOUT_ERROR, Completion(None, "safety", StopKind.CONTENT_FILTER)),
        Verdict(Outcome.TIMEOUT_ERROR, None, ErrorClass.DEADLINE, attempts=0),
        Verdict(Outcome.API_ERROR, None, ErrorClass.QUOTA, call_errors=(SLOW_DOWN,)),
        replace(FULL, confidence=0.0, cost_usd=Decimal(0), timing=Timing(0.0, total_ms=0.0)),
        replace(FULL, confidence=1.0, cost_usd=Decimal("1E-30")),
        *(Verdict(Outcome.ALLOW, Completion("", suspicion=each)) for each in (0.0, 5e-324, 1e15)),
        *(
            Verdict(
                Outcome.API_ERROR, None, each, call_errors=(replace(SLOW_DOWN, error_class=each),)
            )
            for each in ErrorClass
        ),
        *(
            Verdict(outcome, Completion("x", stop_kind=stop_kind))
            for outcome in Outcome
            for stop_kind in (None, *StopKind)
        ),
    ],
)
def test_what_is_unknown_zero_or_empty_stays_so(session: Session, verdict: Verdict) -> None:
    assert recorded(session, verdict) == verdict


@pytest.mark.parametrize(
    "text",
    [
        "\ue000",
        "\ue0000000 \ue000d800",
        "\\u0000 \\x00 \\",
        "🦠 \u2028 \r\n\t\x1b[31m \x7f \uffff \U0010ffff",
        "'; DROP TABLE verdicts; -- \" :rows %s %(rows)s {finding}",
        "x" * 100_000 + "\ufffd",
    ],
    ids=lambda text: ascii(text)[:24],
)
def test_any_text_of_a_provider_survives(session: Session, text: str) -> None:
    """Hostile text is read code point by code point, from every field that may hold it."""
    names = [
        each.attribute
        for each in OF_VERDICT
        if each.part is Completion and isinstance(each.kind, StrType)
    ]
    completion = Completion(**dict.fromkeys(names, text), stop_kind=StopKind.OTHER)  # type: ignore[arg-type]
    error = replace(SLOW_DOWN, message=text)
    verdict = replace(FULL, completion=completion, reason=text, call_errors=(error,))
    assert recorded(session, verdict) == verdict


@pytest.mark.parametrize(
    ("changes", "constraint"),
    [
        ({"outcome": "MAYBE"}, "outcome"),
        ({"error_class": "bad_luck"}, "error_class"),
        ({"completion": Completion("x", stop_kind=cast(StopKind, "tired"))}, "stop_kind"),
        ({"confidence": 1.0000000000000002}, "confidence"),
        ({"confidence": -0.1}, "confidence"),
        *(({"completion": Completion("x", suspicion=cast(float, each))}, "bounds") for each in ("NaN", "Infinity", "-1e16")),
        ({"cost_usd": Decimal("-1E-20")}, "cost_usd"),
        ({"attempts": -1}, "attempts"),
        *(({"completion": Completion("x", usage=Usage(**{field: -1}))}, "tokens") for field in names_of(Usage)),
        *(({"timing": Timing(**{field: -0.001})}, "timing") for field in Timing.__struct_fields__),
    ],
    ids=str,
)  # fmt: skip
def test_what_cannot_be_is_refused(
    session: Session, changes: dict[str, Any], constraint: str
) -> None:
    stored = stored_run(session)
    with pytest.raises(IntegrityError, match=f"ck_verdicts_{constraint}"):
        answer(session, stored, {stored.item(TAR): replace(BLOCKED, **changes)})


def beyond(kind: Type) -> list[float]:
    """Return numbers out of the range of a field; times and scores have a higher one in a table."""
    match kind:
        case IntType(ge=int(least), le=int(most)):
            return [least - 1, most + 1]
        case FloatType(ge=int(least)):
            return [least - 1.0]
    return []


@pytest.mark.parametrize(
    ("name", "number"),
    [
        (field.name, number)
        for field in OF_VERDICT
        if field.name != "parser_version"  # of ours alone
        for number in beyond(field.kind)
    ],
)
def test_a_number_beyond_the_range_of_its_field_is_refused(
    session: Session, name: str, number: float
) -> None:
    stored = stored_run(session)
    verdict = verdict_of(replace(EVERY_COLUMN, **{name: number}))
    with pytest.raises(DBAPIError, match=r"ck_verdicts_|out of range"):
        answer(session, stored, {stored.item(TAR): verdict})


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"epoch": 0}, "ck_verdicts_epoch"),
        ({"generation": -1}, "ck_verdicts_generation"),
        ({"sample_key": 2**62}, "fk_verdicts_sample_key_samples"),
        ({"run_model_id": 2**30}, "fk_verdicts_run_model_id_run_models"),
        ({"epoch": 2**15}, "out of range"),
    ],
)
def test_a_verdict_about_nothing_is_refused(
    session: Session, changes: dict[str, int], problem: str
) -> None:
    stored = stored_run(session)
    key: VerdictKey = replace(stored.key(stored.item(TAR)), **changes)
    with pytest.raises(DBAPIError, match=problem):
        insert_verdicts(session, [(key, BLOCKED)])


def test_a_verdict_is_stored_with_the_servers_time(session: Session) -> None:
    stored_run(session, {TAR: FULL})
    assert session.scalar(select(VERDICTS.c.stored_at)) == session.scalar(select(func.now()))
    assert session.scalar(select(func.count()).select_from(CALL_ERRORS)) == 2

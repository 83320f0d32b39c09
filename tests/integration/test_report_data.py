"""Gathering a report: all that it holds besides the numbers of its snapshot."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine

from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.verdict import CallError, Verdict
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.pipeline.report import ReportPart, report_data
from tests.defined import defined
from tests.integration.samples import ALLOWED, BLOCKED, CURL, LS, TAR
from tests.integration.stored_runs import answer, stored_run

EIGHT = datetime(2026, 3, 1, 8, tzinfo=UTC)
SLOW = CallError(1, ErrorClass.RATE_LIMIT, 429, None, "slow down", EIGHT)
LOST = Verdict(
    Outcome.API_ERROR,
    None,
    ErrorClass.SERVER,
    call_errors=(replace(SLOW, error_class=ErrorClass.SERVER, at=EIGHT + timedelta(hours=3)),),
    created_at=EIGHT + timedelta(hours=3),
)
TWO_MODELS = ("test/a", "test/b")


def test_parts_are_gathered_when_asked_for(engine: Engine) -> None:
    """A table on the terminal waits for no pairs and no failures by time."""
    first = {TAR: replace(BLOCKED, call_errors=(SLOW,)), LS: ALLOWED, CURL: LOST}
    answers = {"test/a": first, "test/b": {TAR: ALLOWED, LS: ALLOWED}}
    stored = stored_run(engine, answers, models=TWO_MODELS)
    plain = report_data(engine, stored.run_id, Opinion())
    assert (plain.comparison, plain.failure_times, plain.failure_stretch_s) == (None, [], 0)
    assert plain.is_current

    data = report_data(engine, stored.run_id, Opinion(), parts=[*ReportPart])
    (pair,) = defined(data.comparison).pairs
    assert (pair.a.model, pair.b.model, pair.comparison.samples) == ("test/a", "test/b", 2)
    # One malicious command on both sides, right on one; the harmless one right on both.
    assert pair.comparison.metrics["aegish_score"].difference == -0.5
    assert pair.comparison.categories["shell"].difference == -1.0
    pairs_alone = report_data(engine, stored.run_id, Opinion(), parts={ReportPart.COMPARISON})
    alone = defined(pairs_alone.comparison).pairs[0].comparison
    assert (alone.metrics, alone.categories) == (pair.comparison.metrics, {})
    assert data.failure_stretch_s == 300
    assert [(each.time, each.attempts, each.verdicts) for each in data.failure_times] == [
        (EIGHT, 1, 0),
        (EIGHT + timedelta(hours=3), 1, 1),
    ]


def test_pairs_are_those_of_the_snapshot(engine: Engine) -> None:
    stored = stored_run(engine, {each: {TAR: BLOCKED} for each in TWO_MODELS}, models=TWO_MODELS)
    first = report_data(engine, stored.run_id, Opinion()).snapshot.snapshot_id
    same = report_data(engine, stored.run_id, Opinion(), first, parts=[*ReportPart])
    assert (same.is_current, same.comparison is None) == (True, False)
    answer(engine, stored, {stored.item(LS): ALLOWED})
    old = report_data(engine, stored.run_id, Opinion(), first, parts=[*ReportPart])
    assert (old.is_current, old.comparison) == (False, None)


@pytest.mark.parametrize("part", ReportPart)
def test_one_model_without_failures(engine: Engine, part: ReportPart) -> None:
    stored = stored_run(engine, {TAR: BLOCKED})
    data = report_data(engine, stored.run_id, Opinion(), parts={part})
    assert (data.comparison, list(data.failure_times)) == (None, [])

"""Why calls failed, as the store tells it."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from sqlalchemy.orm import Session

from aegish_dist.core.verdict import CallError, ErrorClass, Outcome, Verdict
from aegish_dist.db.failures import FailureKind, failures_by_model
from tests.integration.stored_runs import BLOCKED, CURL, LS, TAR, a_model, a_run, answer, store

EIGHT = datetime(2026, 3, 1, 8, tzinfo=UTC)
NINE = EIGHT + timedelta(hours=1)
FIRST = CallError(1, ErrorClass.RATE_LIMIT, 429, 1.5, "slow \x00 down", EIGHT)
SECOND = CallError(2, ErrorClass.RATE_LIMIT, 429, None, "slower", NINE)
REFUSED = CallError(3, ErrorClass.AUTH, 401, None, "no such key", NINE)
FAILED = Verdict(Outcome.API_ERROR, None, ErrorClass.AUTH, call_errors=(FIRST, SECOND, REFUSED))


def test_failures_are_grouped_by_kind(session: Session):
    """Every failed attempt counts, with the newest message of its kind, the most frequent first."""
    models = (a_model("test/a"), a_model("test/b"))
    stored = store(session, a_run(models=models))
    recovered = replace(BLOCKED, call_errors=(FIRST,))
    answer(
        session,
        stored,
        {
            stored.item(TAR): FAILED,
            stored.item(LS): recovered,
            stored.item(CURL): replace(BLOCKED, call_errors=(replace(FIRST, status=None),)),
            stored.item(TAR, model="test/b"): BLOCKED,
        },
    )

    assert failures_by_model(session, stored.run_id) == {
        "test/a": (
            FailureKind(ErrorClass.RATE_LIMIT, 429, 3, "slower", NINE),
            FailureKind(ErrorClass.AUTH, 401, 1, "no such key", NINE),
            FailureKind(ErrorClass.RATE_LIMIT, None, 1, FIRST.message, EIGHT),
        )
    }


def test_another_run_has_failures_of_its_own(session: Session):
    """Nothing of one run is told about another."""
    stored, other = store(session, a_run("run1")), store(session, a_run("run2"))
    answer(session, stored, {stored.item(TAR): FAILED})

    assert failures_by_model(session, other.run_id) == {}

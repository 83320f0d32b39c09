"""Why calls failed, as the store tells it."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from msgspec.structs import replace
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.core.model import CallParameters
from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.status import FailedCalls
from aegish_dist.core.verdict import CallError, Verdict
from aegish_dist.db.engine import transaction
from aegish_dist.db.fleet import ModelBlock, report_worker
from aegish_dist.db.progress import failed_kinds, unanswered_by_model
from aegish_dist.db.runs import load_run
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.pipeline.report import report_data
from aegish_dist.report.data import FailureCount, Halted
from tests.integration.samples import BLOCKED, CURL, LS, TAR
from tests.integration.stored_runs import answer, stored_run

EIGHT = datetime(2026, 3, 1, 8, tzinfo=UTC)
NINE = EIGHT + timedelta(hours=1)
FIRST = CallError(1, ErrorClass.RATE_LIMIT, 429, 1.5, "slow \ufffd down", EIGHT)
SECOND = CallError(2, ErrorClass.RATE_LIMIT, 429, None, "slower", NINE)
REFUSED = CallError(3, ErrorClass.AUTH, 401, None, "no such key", NINE)
MODELS = ("test/a", "test/b")
KEY = "sk-" + "abcdefgh01234567" * 2
FAILED = Verdict(Outcome.API_ERROR, None, ErrorClass.AUTH, call_errors=(FIRST, SECOND, REFUSED))


def test_failures_are_grouped_by_kind(session: Session) -> None:
    """Every failed attempt counts, with the newest message of its kind, the newest first;
    another run has failures of its own.
    """
    said = {
        TAR: FAILED,
        LS: replace(BLOCKED, call_errors=(FIRST,)),
        CURL: replace(BLOCKED, call_errors=(replace(FIRST, status=None),)),
    }
    stored = stored_run(session, {"test/a": said, "test/b": {TAR: BLOCKED}}, models=MODELS)
    other = stored_run(session, run_id="0other")

    assert failed_kinds(session, stored.run_id) == (
        FailedCalls(NINE, "test/a", ErrorClass.AUTH, 401, "no such key", 1, 0),
        FailedCalls(NINE, "test/a", ErrorClass.RATE_LIMIT, 429, "slower", 3, 0),
        FailedCalls(EIGHT, "test/a", ErrorClass.RATE_LIMIT, None, FIRST.message, 1, 0),
    )
    assert failed_kinds(session, other.run_id) == ()


def test_verdicts_without_an_answer_are_counted_by_reason(session: Session) -> None:
    """Answers do not count, and of an item that was asked again only the newest verdict."""
    stored = stored_run(session, FAILED, models=MODELS)
    late = Verdict(Outcome.TIMEOUT_ERROR, None, ErrorClass.DEADLINE)
    again = {stored.item(TAR, generation=1): BLOCKED, stored.item(LS, generation=1): late}
    answer(session, stored, again)
    assert unanswered_by_model(session, load_run(session, stored.run_id)) == {
        "test/a": {ErrorClass.AUTH: 1, ErrorClass.DEADLINE: 1},
        "test/b": {},
    }


def test_a_report_tells_why_a_model_failed(engine: Engine) -> None:
    """Lost verdicts and failed attempts by reason, and what workers say about a halted model."""
    with transaction(engine) as session:
        stored = stored_run(session, {TAR: FAILED}, models=MODELS)
        halts = {(stored.run_id, "test/a"): ModelBlock.PARKED, ("", "test/b"): ModelBlock.PARKED}
        reasons = {(stored.run_id, "test/a"): "no such key"}
        report_worker(session, "one", {}, halts, reasons)
    data = report_data(engine, stored.run_id, Opinion())
    assert list(data.failures) == [
        FailureCount("test/a", ErrorClass.AUTH, 1, 1, (401,), "no such key", NINE),
        FailureCount("test/a", ErrorClass.RATE_LIMIT, 0, 2, (429,), "slower", NINE),
    ]
    assert list(data.halted) == [
        Halted("test/a", "parked", "no such key"),
        Halted("test/b", "parked", ""),
    ]


def test_a_report_holds_no_key_that_the_store_holds(engine: Engine) -> None:
    """Messages that were stored before keys were masked are masked when they are reported."""
    careless = replace(REFUSED, attempt=1, message=f"{KEY} is wrong")
    stored = stored_run(engine, {TAR: replace(FAILED, call_errors=(careless,))})
    (failure,) = report_data(engine, stored.run_id, Opinion()).failures
    assert KEY not in failure.message
    assert failure.message.endswith("is wrong")


def test_a_report_tells_why_a_model_is_not_called(engine: Engine) -> None:
    """A key that no worker has, and a cap on the cost that is reached without a living worker."""
    capped = CallParameters(max_cost_per_model_usd=Decimal("0.5"))
    said = {TAR: replace(BLOCKED, cost_usd=Decimal("0.5"))}
    with transaction(engine) as session:
        stored = stored_run(session, said, models=MODELS, parameters=capped)
        unserved = {(stored.run_id, "test/b"): "TEST_KEY is not set"}
        report_worker(session, "one", {}, unserved=unserved)
    assert list(report_data(engine, stored.run_id, Opinion()).halted) == [
        Halted("test/a", "over budget"),
        Halted("test/b", "no worker may call it", "TEST_KEY is not set"),
    ]

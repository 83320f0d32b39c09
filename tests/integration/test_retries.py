"""Retries in the store: what is planned once more, and what counts."""

import re
import threading
from decimal import Decimal

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.status import State, retry_command
from aegish_dist.core.verdict import Completion, Item, Verdict
from aegish_dist.db.engine import transaction
from aegish_dist.db.missing import FinishedModels, Retry, missing_items, save_retry
from aegish_dist.db.schema import RETRIES, RUN_MODELS
from aegish_dist.db.verdicts import look_up
from aegish_dist.errors import ConfigError, StoreError
from aegish_dist.opinions.parsing import judge
from aegish_dist.pipeline.control import outcomes_named, plan_retry
from aegish_dist.pipeline.runs import load_submitted_run
from aegish_dist.pipeline.status import run_status
from tests.integration.samples import BLOCKED, CURL, LS, TAR
from tests.integration.stored_runs import StoredRun, a_model, a_run, answer, stored_run

REFUSED = Verdict(Outcome.API_ERROR, None, ErrorClass.AUTH, cost_usd=Decimal("0.25"))
LATE = Verdict(Outcome.TIMEOUT_ERROR, None, ErrorClass.DEADLINE)
SILENT = judge(Completion(" "))
MODELS = ("test/a", "test/b")
RUN = a_run(models=tuple(map(a_model, MODELS)))
API_ERROR = frozenset({Outcome.API_ERROR})


def two_models(session: Engine | Session) -> StoredRun:
    """Store a run of two models: each was refused once, one was late and one is not asked yet."""
    answers = {
        "test/a": {TAR: REFUSED, CURL: LATE, LS: BLOCKED},
        "test/b": {TAR: REFUSED, CURL: BLOCKED},
    }
    return stored_run(session, answers, models=MODELS)


def again(item: Item, generation: int = 1) -> Item:
    return replace(item, generation=generation)


def missing(session: Session, stored: StoredRun) -> set[Item]:
    return set(missing_items(session, stored.run_id))


def known(session: Session, *items: Item) -> list[bool | None]:
    """Return of each item whether it is done, None for one that is not planned."""
    return [None if each is None else each.done for each in look_up(session, items)]


def test_a_retry_plans_what_ended_so_and_nothing_else(session: Session) -> None:
    stored = two_models(session)
    not_asked = stored.item(LS, model="test/b")
    found = save_retry(session, stored.run_id, API_ERROR, ["test/a"])
    assert found == Retry(generation=1, items=1)
    assert missing(session, stored) == {not_asked, again(stored.item(TAR))}
    assert set(missing_items(session, stored.run_id, 1)) == {again(stored.item(TAR))}
    row = session.execute(select(RETRIES.c.outcomes, RETRIES.c["items"])).one()
    assert tuple(row) == (["API_ERROR"], 1)


def test_the_same_retry_twice_plans_nothing_more(session: Session) -> None:
    stored = two_models(session)
    save_retry(session, stored.run_id, API_ERROR, MODELS)
    assert save_retry(session, stored.run_id, API_ERROR, MODELS) is None
    both = save_retry(session, stored.run_id, {Outcome.API_ERROR, Outcome.TIMEOUT_ERROR}, MODELS)
    assert both == Retry(generation=2, items=1)
    assert missing(session, stored) == {
        stored.item(LS, model="test/b"),
        again(stored.item(TAR)),
        again(stored.item(TAR, model="test/b")),
        again(stored.item(CURL), 2),
    }


def test_what_failed_again_can_be_retried_again(session: Session) -> None:
    stored = two_models(session)
    save_retry(session, stored.run_id, API_ERROR, ["test/a"])
    answer(session, stored, {again(stored.item(TAR)): REFUSED})
    found = save_retry(session, stored.run_id, API_ERROR, ["test/a"])
    assert found == Retry(generation=2, items=1)
    assert missing(session, stored) >= {again(stored.item(TAR), 2)}
    answer(session, stored, {again(stored.item(TAR), 2): BLOCKED})
    assert missing(session, stored) == {stored.item(LS, model="test/b")}
    assert save_retry(session, stored.run_id, API_ERROR, ["test/a"]) is None


def test_a_generation_that_nobody_planned_is_never_asked(session: Session) -> None:
    """A forged message makes no call, whether it names a generation to come or a planned one."""
    stored = two_models(session)
    forged = [again(stored.item(LS)), again(stored.item(TAR), 2), again(stored.item(TAR), 32_767)]
    assert known(session, again(stored.item(TAR)), *forged) == [None] * 4
    save_retry(session, stored.run_id, API_ERROR, ["test/a"])
    assert known(session, again(stored.item(TAR)), *forged) == [False, None, None, None]


def test_a_model_is_served_until_its_retry_is_answered(session: Session) -> None:
    stored = stored_run(session, REFUSED)
    save_retry(session, stored.run_id, API_ERROR, ["test/a"])
    is_open = select(RUN_MODELS.c.open)
    FinishedModels().close(session)
    assert session.scalars(is_open).one()
    answer(session, stored, {again(stored.item(each)): BLOCKED for each in (TAR, CURL, LS)})
    FinishedModels().close(session)
    assert not session.scalars(is_open).one()


def test_two_retries_at_once_plan_each_item_once(engine: Engine) -> None:
    stored = two_models(engine)
    found: list[Retry | None] = []
    with transaction(engine) as first:
        assert save_retry(first, stored.run_id, API_ERROR, MODELS) == Retry(1, 2)
        second = threading.Thread(target=lambda: found.append(plan_retry(engine, RUN, API_ERROR)))
        second.start()
    second.join(20)
    assert found == [None]


def test_status_tells_what_failed_what_was_replaced_and_what_is_asked_again(engine: Engine) -> None:
    stored = two_models(engine)
    answer(engine, stored, {stored.item(LS, model="test/b"): SILENT})
    complete = run_status(engine, stored.run_id)
    command = f"aegish-dist retry --run-id {stored.run_id} --outcome API_ERROR,TIMEOUT_ERROR"
    assert (complete.state, complete.missing) == (State.COMPLETE, 0)
    # The silent answer is the model's own, so nothing suggests to ask it again.
    assert complete.failed == {"API_ERROR": 2, "TIMEOUT_ERROR": 1}
    assert retry_command(complete) == command

    plan_retry(engine, RUN, outcomes_named(["api_error", "Timeout_Error"]), ["test/a"])
    waiting = run_status(engine, stored.run_id)
    assert (waiting.state, waiting.missing, waiting.retrying) == (State.WAITING, 2, 2)

    answer(engine, stored, {again(stored.item(TAR)): BLOCKED, again(stored.item(CURL)): LATE})
    ended = run_status(engine, stored.run_id)
    assert (ended.state, ended.missing, ended.replaced) == (State.COMPLETE, 0, 2)
    assert ended.failed == {"API_ERROR": 1, "TIMEOUT_ERROR": 1}
    assert [(model.failed, model.replaced) for model in ended.models] == [(1, 2), (1, 0)]
    # Of a replaced verdict the cost stays.
    assert [model.cost_usd for model in ended.models] == [Decimal("0.25")] * 2
    assert sum(ended.outcomes.values()) == ended.planned


def test_an_imported_run_is_refused(engine: Engine) -> None:
    stored = stored_run(engine, prompt=None)
    with pytest.raises(StoreError, match=f"run {stored.run_id} was imported"):
        load_submitted_run(engine, stored.run_id)


LISTED = "there are ALLOW, WARN, BLOCK, TIMEOUT_ERROR, FORMAT_ERROR, API_"


@pytest.mark.parametrize(
    ("names", "hint"),
    [(["BLOCKED"], "did you mean 'BLOCK'?"), (["API_ERROR", ""], LISTED), ([], LISTED)],
)
def test_an_unknown_outcome_is_refused(names: list[str], hint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(hint)):
        outcomes_named(names)


def test_a_model_that_the_run_does_not_ask_is_refused(engine: Engine) -> None:
    stored = two_models(engine)
    with pytest.raises(
        StoreError, match="has no model 'test/c': did you mean 'test/b' or 'test/a'"
    ):
        plan_retry(engine, RUN, API_ERROR, ["test/a", "test/c"])
    assert run_status(engine, stored.run_id).retrying == 0

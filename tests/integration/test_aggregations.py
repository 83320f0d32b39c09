"""Aggregations of complete runs: one for each completion of a run, whatever happens between."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import Engine, func, insert, select, text, update
from sqlalchemy.orm import Session
from structlog.testing import capture_logs

from aegish_dist.core.outcome import Outcome
from aegish_dist.core.run import Run
from aegish_dist.core.scoring import DEFAULT_RULE
from aegish_dist.db.missing import (
    LOST_AFTER_S,
    FinishedModels,
    claim,
    newest_aggregation,
    open_models,
    take_due,
    unfinished,
)
from aegish_dist.db.tables import AggregationRow, RunRow, SnapshotRow
from aegish_dist.errors import StoreAwayError
from aegish_dist.pipeline import aggregation_jobs
from aegish_dist.pipeline.aggregation_jobs import aggregate_here, carry_out
from aegish_dist.pipeline.control import plan_retry
from aegish_dist.pipeline.status import run_status
from tests.integration.stored_runs import (
    ALLOWED,
    BLOCKED,
    COMMANDS,
    StoredRun,
    a_model,
    a_run,
    answer,
    store,
)

MODELS = (a_model("test/a"), a_model("test/b"))


@pytest.fixture
def run() -> Run:
    """A run of two models."""
    return a_run(models=MODELS)


@pytest.fixture
def stored(engine: Engine, run: Run) -> StoredRun:
    """The run in the store, without verdicts."""
    with Session(engine) as session, session.begin():
        return store(session, run)


def complete(engine: Engine, stored: StoredRun, models: Sequence[str] = ("a", "b")) -> None:
    """Answer all that first tries of some models ask, and look for finished models."""
    with Session(engine) as session, session.begin():
        items = [
            stored.item(sample, model=f"test/{name}")
            for name in models
            for sample in COMMANDS.samples
        ]
        answer(session, stored, dict.fromkeys(items, BLOCKED))
    close(engine)


def close(engine: Engine) -> None:
    """Look for finished models, as workers do."""
    with Session(engine) as session, session.begin():
        assert FinishedModels().close(session)


def completions(engine: Engine) -> list[str | None]:
    """Return the completions that aggregations were asked for, in this order."""
    with Session(engine) as session:
        return list(session.scalars(select(AggregationRow.completion).order_by(AggregationRow.id)))


def keys(engine: Engine) -> Sequence[int]:
    """Return what is due now, marked as enqueued."""
    with Session(engine) as session, session.begin():
        return take_due(session)


def request(engine: Engine, stored: StoredRun, scoring: str = DEFAULT_RULE.name) -> int:
    """Write an aggregation as if the run was complete; return its key."""
    values = {"run_id": stored.run_id, "completion": "6/0", "scoring": scoring}
    with Session(engine) as session, session.begin():
        asked = insert(AggregationRow).values(values).returning(AggregationRow.id)
        return session.execute(asked).scalar_one()


def snapshots(engine: Engine) -> int:
    """Count all snapshots."""
    with Session(engine) as session:
        return session.scalar(select(func.count()).select_from(SnapshotRow)) or 0


def rows(engine: Engine, column: Any) -> list[Any]:
    """Return a column of all aggregations."""
    with Session(engine) as session:
        return list(session.scalars(select(column).order_by(AggregationRow.id)))


def test_a_run_is_aggregated_once_per_completion(
    engine: Engine, run: Run, stored: StoredRun
) -> None:
    """It is asked for with the last model, not again by a resume, and once more after a retry."""
    complete(engine, stored, ("a",))
    assert completions(engine) == []

    complete(engine, stored, ("b",))
    close(engine)
    assert completions(engine) == ["6/0"]

    with Session(engine) as session, session.begin():
        open_models(session, run.run_id)
    close(engine)
    assert completions(engine) == ["6/0"]

    plan_retry(engine, run, {Outcome.BLOCK}, ["test/b"])
    close(engine)
    assert completions(engine) == ["6/0"]
    with Session(engine) as session, session.begin():
        again = [stored.item(sample, model="test/b", generation=1) for sample in COMMANDS.samples]
        answer(session, stored, dict.fromkeys(again, ALLOWED))
    close(engine)
    assert completions(engine) == ["6/0", "6/1"]


def test_a_run_that_is_extended_completes_again(engine: Engine, stored: StoredRun) -> None:
    """Another epoch is another plan."""
    complete(engine, stored)
    with Session(engine) as session, session.begin():
        session.execute(update(RunRow).values(epochs=2))
        open_models(session, stored.run_id)
        items = [
            stored.item(sample, model=model, epoch=2)
            for model in stored.models
            for sample in COMMANDS.samples
        ]
        answer(session, stored, dict.fromkeys(items, BLOCKED))
    close(engine)

    assert completions(engine) == ["6/0", "12/0"]


@pytest.mark.parametrize("held", ["paused", "cancelled"])
def test_a_run_that_is_held_at_its_last_calls_completes_with_them(
    engine: Engine, stored: StoredRun, held: str
) -> None:
    """They were in flight and brought its last verdicts: there is nothing left to resume."""
    with Session(engine) as session, session.begin():
        session.execute(update(RunRow).values(held=held))
    complete(engine, stored)

    assert completions(engine) == ["6/0"]
    with Session(engine) as session:
        assert session.scalars(select(RunRow.held)).one() is None


def test_a_held_run_that_lacks_verdicts_is_not_complete(engine: Engine, stored: StoredRun) -> None:
    """One of its models is; the other one waits for the run to be resumed."""
    with Session(engine) as session, session.begin():
        session.execute(update(RunRow).values(held="paused"))
    complete(engine, stored, ("a",))

    assert completions(engine) == []
    with Session(engine) as session:
        assert session.scalars(select(RunRow.held)).one() == "paused"


def test_only_the_models_that_are_named_are_looked_at(engine: Engine, stored: StoredRun) -> None:
    """A worker looks at those on which it has become quiet."""
    complete(engine, stored, ())
    with Session(engine) as session, session.begin():
        items = [stored.item(sample, model=m) for m in stored.models for sample in COMMANDS.samples]
        answer(session, stored, dict.fromkeys(items, BLOCKED))
        closing = FinishedModels()
        assert closing.close(session, {(stored.run_id, "test/a"), ("0other", "test/b")})
        assert completions(engine) == []
        assert closing.close(session, {(stored.run_id, "test/b")})
    assert completions(engine) == ["6/0"]


def test_a_search_that_is_not_at_its_end_says_so(engine: Engine, stored: StoredRun) -> None:
    """The worker looks again a second later; so it does where another worker is looking."""
    complete(engine, stored, ())
    with Session(engine) as session, session.begin():
        items = [stored.item(sample, model=m) for m in stored.models for sample in COMMANDS.samples]
        answer(session, stored, dict.fromkeys(items, BLOCKED))
    closing = FinishedModels(search_s=0.0, stretch=1)
    with Session(engine) as session, session.begin():
        assert not closing.close(session)
        with Session(engine) as other, other.begin():
            assert not FinishedModels().close(other)
    with Session(engine) as session, session.begin():
        while not closing.close(session):
            pass
    assert completions(engine) == ["6/0"]


def test_two_workers_sweep(engine: Engine, stored: StoredRun) -> None:
    """Each aggregation is due to one of them, and due again only when its message was lost."""
    complete(engine, stored)
    with Session(engine) as first, first.begin(), Session(engine) as second, second.begin():
        assert len(take_due(first)) == 1
        assert take_due(second) == []
    assert keys(engine) == []

    with Session(engine) as session, session.begin():
        session.execute(text("UPDATE aggregations SET enqueued_at = enqueued_at - interval '59 s'"))
    assert keys(engine) == []
    with Session(engine) as session, session.begin():
        session.execute(text("UPDATE aggregations SET enqueued_at = enqueued_at - interval '2 s'"))
    assert len(keys(engine)) == 1
    assert LOST_AFTER_S == 60


def test_what_is_being_made_is_not_due(engine: Engine, stored: StoredRun) -> None:
    """However long it takes: it is locked while its worker lives."""
    complete(engine, stored)
    (key,) = keys(engine)
    with Session(engine) as session, session.begin():
        assert claim(session, key)
        with Session(engine) as other, other.begin():
            assert take_due(other, lost_after_s=-1) == []
            assert claim(other, key) is None
    with Session(engine) as session, session.begin():
        assert take_due(session, lost_after_s=-1) == [key]


def test_an_aggregation_is_made_once(engine: Engine, stored: StoredRun) -> None:
    """Its message may come as often as it likes, to several workers at once."""
    complete(engine, stored)
    (key,) = keys(engine)
    with ThreadPoolExecutor(4) as workers:
        list(workers.map(lambda _: carry_out(engine, key), range(8)))
    carry_out(engine, key + 1)  # unknown, or of a run that was deleted

    assert snapshots(engine) == 1
    status = run_status(engine, stored.run_id)
    assert (status.snapshot_id, status.aggregation_problem) == (
        rows(engine, AggregationRow.snapshot_ids)[0][0],
        None,
    )
    with Session(engine) as session, session.begin():
        assert take_due(session, lost_after_s=-1) == []


def test_a_worker_that_is_killed_leaves_nothing_behind(
    engine: Engine, stored: StoredRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots and the end of the aggregation are one transaction."""
    complete(engine, stored)
    (key,) = keys(engine)

    def killed(*_: object) -> None:
        raise StoreAwayError("the connection was lost")

    with monkeypatch.context() as patch:
        patch.setattr(aggregation_jobs, "finish", killed)
        with pytest.raises(StoreAwayError):
            carry_out(engine, key)
    assert (snapshots(engine), rows(engine, AggregationRow.finished_at)) == (0, [None])

    carry_out(engine, key)
    assert snapshots(engine) == 1


def test_a_run_without_verdicts(engine: Engine, stored: StoredRun) -> None:
    """Its aggregation says so, and the status as well."""
    key = request(engine, stored)
    assert keys(engine) == [key]
    with capture_logs() as logs:
        carry_out(engine, key)
        carry_out(engine, key)

    assert [line["event"] for line in logs] == ["aggregation_failed"]
    status = run_status(engine, stored.run_id)
    assert status.snapshot_id is None
    assert status.aggregation_problem is not None
    assert status.aggregation_problem.startswith(f"run {stored.run_id} has no verdict yet")


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (ValueError("a secret"), "a bug ended it (ValueError): the log of the worker tells more"),
        (None, "unknown scoring rule 'gone'"),
    ],
)
def test_an_aggregation_that_fails(
    engine: Engine,
    stored: StoredRun,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception | None,
    problem: str,
) -> None:
    """It is finished with its problem, and not tried again."""
    complete(engine, stored, ("a",))
    key = request(engine, stored, "gone" if error is None else DEFAULT_RULE.name)
    if error is not None:

        def fails(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(aggregation_jobs, "aggregate", fails)
    with capture_logs() as logs:
        carry_out(engine, key)

    assert len(logs) == 1
    (found,) = rows(engine, AggregationRow.problem)
    assert problem in found
    with Session(engine) as session:
        assert unfinished(session, stored.run_id) == []


def test_a_database_that_refuses_snapshots(engine: Engine, stored: StoredRun) -> None:
    """The problem says why, without the driver's traceback."""
    complete(engine, stored)
    with Session(engine) as session, session.begin():
        session.execute(text("ALTER TABLE snapshots ADD CONSTRAINT refused CHECK (id < 0)"))
    (key,) = keys(engine)
    with capture_logs() as logs:
        carry_out(engine, key)

    assert len(logs) == 1
    assert "IntegrityError" in rows(engine, AggregationRow.problem)[0]


def test_the_snapshot_of_an_earlier_plan(engine: Engine, run: Run, stored: StoredRun) -> None:
    """While a retry is under way, the status shows no snapshot of before."""
    complete(engine, stored)
    carry_out(engine, keys(engine)[0])
    assert run_status(engine, run.run_id).snapshot_id is not None

    plan_retry(engine, run, {Outcome.BLOCK})
    assert run_status(engine, run.run_id).snapshot_id is None
    with Session(engine) as session:
        assert newest_aggregation(session, run.run_id) is None


def test_a_run_in_one_process_is_aggregated_at_its_end(
    engine: Engine, run: Run, stored: StoredRun
) -> None:
    """A complete run gets its snapshot, once; one that lacks a verdict gets none."""
    complete(engine, stored, ())
    aggregate_here(engine, run)
    assert snapshots(engine) == 0

    with Session(engine) as session, session.begin():
        items = [stored.item(sample, model=m) for m in stored.models for sample in COMMANDS.samples]
        answer(session, stored, dict.fromkeys(items, BLOCKED))
    aggregate_here(engine, run)
    aggregate_here(engine, run)
    assert snapshots(engine) == 1
    assert all(isinstance(at, datetime) for at in rows(engine, AggregationRow.finished_at))

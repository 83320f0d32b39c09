"""Aggregations of complete runs: one for each completion of a run, whatever happens between."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from celery import Celery
from sqlalchemy import Engine, update
from sqlalchemy.orm import Session
from structlog.testing import capture_logs

from aegish_dist.core.outcome import Outcome
from aegish_dist.core.run import Run
from aegish_dist.db.engine import transaction
from aegish_dist.db.missing import (
    LOST_AFTER_S,
    FinishedModels,
    claim,
    newest_aggregation,
    open_models,
    take_due,
    unfinished,
)
from aegish_dist.db.schema import RUNS
from aegish_dist.errors import StoreAwayError
from aegish_dist.opinions.scoring import DEFAULT_RULE
from aegish_dist.pipeline import aggregation_jobs, finish
from aegish_dist.pipeline.aggregation_jobs import carry_out
from aegish_dist.pipeline.control import plan_retry
from aegish_dist.pipeline.finish import run_embedded, wait_for_snapshot
from aegish_dist.pipeline.status import run_status
from tests.integration.samples import ALLOWED, BLOCKED
from tests.integration.stored_runs import (
    StoredRun,
    a_run,
    answer,
    execute,
    row_counts,
    selected,
    store,
)
from tests.services import queue_application

MODELS = ("test/a", "test/b")


@pytest.fixture
def run() -> Run:
    return a_run(models=MODELS)


@pytest.fixture
def stored(engine: Engine, run: Run) -> StoredRun:
    """The run in the store, without verdicts."""
    return store(engine, run)


@pytest.fixture
def own_app(postgres_url: str, tmp_path: Path) -> Celery:
    """The application of a worker in this process."""
    return queue_application(None, postgres_url, home=tmp_path)


def complete(engine: Engine, stored: StoredRun, *models: str) -> None:
    """Answer what first tries ask of some models or of all, and look for finished models."""
    answer(engine, stored, dict.fromkeys(stored.items(*models), BLOCKED))
    close(engine)


def close(engine: Engine) -> None:
    """Look for finished models, as workers do."""
    with transaction(engine) as session:
        assert FinishedModels().close(session)


def completions(engine: Engine) -> list[str]:
    return selected(engine, "SELECT completion FROM aggregations ORDER BY id")


def snapshots(engine: Engine) -> int:
    return row_counts(engine).get("snapshots", 0)


def keys(engine: Engine) -> Sequence[int]:
    with transaction(engine) as session:
        return take_due(session)


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


def test_a_run_is_aggregated_once_per_completion(
    engine: Engine, run: Run, stored: StoredRun
) -> None:
    """With the last model, not again by a resume, once more after a retry and an extension."""
    complete(engine, stored, "test/a")
    assert completions(engine) == []

    complete(engine, stored, "test/b")
    close(engine)
    assert completions(engine) == ["6/0"]

    with transaction(engine) as session:
        open_models(session, run.run_id)
    close(engine)
    assert completions(engine) == ["6/0"]

    plan_retry(engine, run, {Outcome.BLOCK}, ["test/b"])
    close(engine)
    assert completions(engine) == ["6/0"]
    answer(engine, stored, dict.fromkeys(stored.items("test/b", generation=1), ALLOWED))
    close(engine)
    assert completions(engine) == ["6/0", "6/1"]

    with transaction(engine) as session:  # extended
        session.execute(update(RUNS).values(epochs=2))
        open_models(session, run.run_id)
        answer(session, stored, dict.fromkeys(stored.items(epoch=2), BLOCKED))
    close(engine)
    assert completions(engine) == ["6/0", "6/1", "12/1"]


@pytest.mark.parametrize(
    ("held", "models", "found"),
    [
        # Calls in flight brought the last verdicts: there is nothing left to resume.
        ("paused", MODELS, (["6/0"], None)),
        ("cancelled", MODELS, (["6/0"], None)),
        # One model is complete; the other one waits for the run to be resumed.
        ("paused", ["test/a"], ([], "paused")),
    ],
)
def test_a_held_run_completes_with_its_last_verdict(
    engine: Engine, stored: StoredRun, held: str, models: Sequence[str], found: object
) -> None:
    execute(engine, f"UPDATE runs SET held = '{held}'")
    complete(engine, stored, *models)
    assert (completions(engine), *selected(engine, "SELECT held FROM runs")) == found


def test_only_the_models_that_are_named_are_looked_at(engine: Engine, stored: StoredRun) -> None:
    """A worker looks at those on which it has become quiet."""
    close(engine)
    answer(engine, stored, dict.fromkeys(stored.items(), BLOCKED))
    with transaction(engine) as session:
        closing = FinishedModels()
        assert closing.close(session, {(stored.run_id, "test/a"), ("0other", "test/b")})
        assert completions(engine) == []
        assert closing.close(session, {(stored.run_id, "test/b")})
    assert completions(engine) == ["6/0"]


def test_two_workers_sweep(engine: Engine, stored: StoredRun) -> None:
    """Each aggregation is due to one of them, and due again only when its message was lost."""
    complete(engine, stored)
    with transaction(engine) as first, transaction(engine) as second:
        assert len(take_due(first)) == 1
        assert take_due(second) == []
    assert keys(engine) == []
    execute(engine, "UPDATE aggregations SET enqueued_at = enqueued_at - interval '59 s'")
    assert keys(engine) == []
    execute(engine, "UPDATE aggregations SET enqueued_at = enqueued_at - interval '2 s'")
    assert len(keys(engine)) == 1
    assert LOST_AFTER_S == 60


def test_what_is_being_made_is_not_due(engine: Engine, stored: StoredRun) -> None:
    """However long it takes: it is locked while its worker lives."""
    complete(engine, stored)
    (key,) = keys(engine)
    with transaction(engine) as session:
        assert claim(session, key)
        with transaction(engine) as other:
            assert take_due(other, lost_after_s=-1) == []
            assert claim(other, key) is None
    with transaction(engine) as session:
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
    assert selected(engine, "SELECT snapshot_ids FROM aggregations") == [[status.snapshot_id]]
    assert status.aggregation_problem is None
    with transaction(engine) as session:
        assert take_due(session, lost_after_s=-1) == []


def test_a_worker_that_is_killed_leaves_nothing_behind(
    engine: Engine, stored: StoredRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots and the end of the aggregation are one transaction."""
    complete(engine, stored)
    (key,) = keys(engine)
    with monkeypatch.context() as patch:
        patch.setattr(aggregation_jobs, "finish", raising(StoreAwayError("lost")))
        with pytest.raises(StoreAwayError):
            carry_out(engine, key)
    assert snapshots(engine) == 0
    assert selected(engine, "SELECT finished_at FROM aggregations") == [None]
    carry_out(engine, key)
    assert snapshots(engine) == 1


REFUSES = "ALTER TABLE snapshots ADD CONSTRAINT refused CHECK (id < 0)"


@pytest.mark.parametrize(
    ("models", "scoring", "bug", "problem"),
    [
        ([], DEFAULT_RULE.name, None, "run 0abcdefgh has no verdict yet"),
        (["test/a"], "gone", None, "unknown rule set 'gone'"),
        (["test/a"], DEFAULT_RULE.name, ValueError("a secret"),
         "a bug ended it (ValueError): the log of the worker tells more"),
        (["test/a"], DEFAULT_RULE.name, REFUSES, "IntegrityError"),
    ],
)  # fmt: skip
def test_an_aggregation_that_fails(
    engine: Engine, stored: StoredRun, monkeypatch: pytest.MonkeyPatch,
    *, models: Sequence[str], scoring: str, bug: Exception | str | None, problem: str,
) -> None:  # fmt: skip
    """It is finished with its problem, which the status says, and not tried again."""
    if models:
        complete(engine, stored, *models)
    execute(
        engine,
        "INSERT INTO aggregations (run_id, completion, scoring)"
        f" VALUES ('{stored.run_id}', '6/0', '{scoring}')",
    )
    (key,) = keys(engine)
    if isinstance(bug, Exception):
        monkeypatch.setattr(aggregation_jobs, "aggregate", raising(bug))
    elif bug:
        execute(engine, bug)
    with capture_logs() as logs:
        carry_out(engine, key)
        carry_out(engine, key)

    assert len(logs) == 1
    status = run_status(engine, stored.run_id)
    assert status.snapshot_id is None
    assert problem in (status.aggregation_problem or "")
    with Session(engine) as session:
        assert unfinished(session, stored.run_id) == []


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
    engine: Engine,
    run: Run,
    stored: StoredRun,
    own_app: Celery,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A complete run gets its snapshot, once; one that lacks a verdict gets none."""
    monkeypatch.setattr(finish, "SNAPSHOT_PATIENCE_S", 0.0)
    close(engine)
    wait_for_snapshot(engine, lambda: own_app, run.run_id)
    assert snapshots(engine) == 0
    answer(engine, stored, dict.fromkeys(stored.items(), BLOCKED))
    run_embedded(engine, own_app, run, lambda _: None)
    run_embedded(engine, own_app, run, lambda _: None)
    assert snapshots(engine) == 1
    assert None not in selected(engine, "SELECT finished_at FROM aggregations")


def test_messages_that_nobody_takes_do_not_pile_up(engine: Engine, stored: StoredRun) -> None:
    """A worker that takes no aggregations enqueues each once, and never again."""
    complete(engine, stored)
    with transaction(engine) as session:
        assert len(take_due(session, lost_after_s=None)) == 1
        assert take_due(session, lost_after_s=None) == []
        assert len(take_due(session, lost_after_s=-1)) == 1


def test_a_command_does_not_wait_for_an_aggregator_for_ever(
    engine: Engine, stored: StoredRun, run: Run, own_app: Celery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its patience it makes the snapshot itself."""
    monkeypatch.setattr(finish, "SNAPSHOT_PATIENCE_S", 0.0)
    complete(engine, stored)
    wait_for_snapshot(engine, lambda: own_app, run.run_id)
    assert run_status(engine, run.run_id).snapshot_id is not None
    wait_for_snapshot(engine, lambda: own_app, run.run_id)
    assert snapshots(engine) == 1

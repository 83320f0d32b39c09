"""A worker hears of runs and pauses from PostgreSQL, and does not have to look."""

import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Engine, update

from aegish_dist.broker.app import process_of
from aegish_dist.core.run import RunPause
from aegish_dist.db.engine import transaction
from aegish_dist.db.missing import open_models
from aegish_dist.db.runs import hold
from aegish_dist.db.schema import RUN_MODELS
from tests.integration.stored_runs import stored_run
from tests.services import queue_application
from workers import run_watch
from workers.lifecycle import Readiness

RUN = "0abcdefgh"


@pytest.fixture
def told(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleQueue[Any]]:
    """Wanted and held queues of a worker that looks by itself once an hour."""
    monkeypatch.setattr(run_watch, "SLOW_LOOK_S", 3600.0)
    # Whatever keys this machine has.
    monkeypatch.setattr(run_watch.RunWatch, "_servable", lambda _, queues, __: frozenset(queues))
    told: SimpleQueue[Any] = SimpleQueue()
    app = queue_application(None)
    process_of(app).database_url = postgres_url
    evaluator = SimpleNamespace(begun=[], in_flight={})
    pool = SimpleNamespace(
        readiness=Readiness(),
        evaluator=evaluator,
        aggregates=True,
        runs_changed=lambda announced: None,
    )
    with app.connection_for_read() as connection:
        consumer: Any = SimpleNamespace(
            app=app,
            task_consumer=app.amqp.TaskConsumer(connection),
            pool=pool,
            controller=SimpleNamespace(pins=frozenset()),
            call_soon=told.put,
        )
        step = run_watch.RunWatch(consumer)
        step.start(consumer)
        yield told
        step.stop(consumer)
        for thread in threading.enumerate():
            if thread.name == "aegish-runs":
                thread.join(30)


def next_look(told: SimpleQueue[Any]) -> tuple[frozenset[str], frozenset[str]]:
    call: Any = told.get(timeout=30)
    _, wanted, held, _ = call.args
    return wanted, held


def looks_until(
    told: SimpleQueue[Any], condition: Callable[[frozenset[str], frozenset[str]], bool]
) -> None:
    """Take looks until one fits: each change of a run may be announced more than once."""
    while not condition(*next_look(told)):
        pass


def test_a_run_and_its_pause_are_heard_of(told: SimpleQueue[Any], engine: Engine) -> None:
    next_look(told)
    with transaction(engine) as session:
        run = stored_run(session, run_id=RUN)
        open_models(session, RUN)
        queues = set(
            session.scalars(update(RUN_MODELS).values(open=True).returning(RUN_MODELS.c.queue))
        )
    looks_until(told, lambda wanted, held: queues <= wanted | held)
    with transaction(engine) as session:
        hold(session, run.run_id, RunPause.PAUSED)
    looks_until(told, lambda wanted, held: queues <= held)
    with transaction(engine) as session:
        session.execute(update(RUN_MODELS).values(open=False))
    looks_until(told, lambda wanted, held: not queues & (wanted | held))

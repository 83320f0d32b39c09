"""The start of a pool, and how many messages it takes."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from aegish_dist.broker.app import Process
from aegish_dist.broker.messages import AGGREGATION_QUEUE, queue_name
from aegish_dist.errors import RunHeldError, StoreError
from aegish_dist.pipeline.caller import BlockedKeys
from aegish_dist.settings import Settings
from tests.services import wait_until
from workers import pool as pool_module
from workers.pool import TaskPool
from workers.tasks import Delivery

A, B, C = "lab/a", "lab/b", "lab/c"
A1, A2, A3 = (queue_name(A, run) for run in ("r1", "r2", "r3"))
B1, C1 = (queue_name(model, "r1") for model in (B, C))


def task_pool() -> TaskPool:
    connection = SimpleNamespace(connection_errors=(), channel_errors=())
    process = Process(Settings(), None, None, remote_commands=(), database_url="")
    app = SimpleNamespace(connection_for_read=lambda: connection, process=process)
    return TaskPool(limit=100, app=app)


@pytest.fixture
def evaluator() -> SimpleNamespace:
    held = BlockedKeys[str](RunHeldError)
    return SimpleNamespace(takes_items=True, held=held, stop=lambda: None)


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch, evaluator: SimpleNamespace) -> Iterator[TaskPool]:
    """A pool that has started; what it takes stays in flight until its end."""
    limiters = SimpleNamespace(
        prefetch_target={A: 7, B: 40, C: 1000}.__getitem__, close=lambda: None
    )

    @asynccontextmanager
    async def open_evaluator(app: Any, calls: int, work: object) -> AsyncIterator[Any]:
        yield SimpleNamespace(evaluator=evaluator, limiters=limiters, aggregates=True)

    monkeypatch.setattr(pool_module, "open_evaluator", open_evaluator)
    made = task_pool()
    made.on_start()
    yield made
    made.on_terminate()


async def never_ends(_evaluator: object, _request: Mapping[str, Any]) -> None:
    await asyncio.Event().wait()


def take(pool: TaskPool, queue: str) -> None:
    pool.take(Delivery(never_ends, {"delivery_info": {"routing_key": queue}}, None, None))


def test_a_model_has_one_allowance(pool: TaskPool) -> None:
    assert pool.allowance([A1]) == [7]
    assert pool.allowance([A1, B1, A2, A3]) == [3, 40, 3, 3]
    assert pool.allowance([]) == []


def test_what_has_come_counts_for_all_queues_of_its_model(pool: TaskPool) -> None:
    for _ in range(6):
        take(pool, A1)
    assert pool.allowance([A1, A2, B1]) == [1, 1, 40]
    take(pool, A2)
    assert pool.allowance([A1, A2, B1]) == [0, 0, 40]


def test_a_model_holds_its_share_of_the_messages(pool: TaskPool) -> None:
    """Of 120 messages, C leaves to A and B what they want, or what they hold if that is unknown."""
    for _ in range(110):
        take(pool, C1)
    assert pool.allowance([C1], waiting=False) == [890]
    assert pool.allowance([C1, A1, B1]) == [0, 7, 40]
    assert pool.allowance([C1, A1, B1], waiting=False) == [890, 7, 40]
    for _ in range(40):
        take(pool, B1)
    assert pool.allowance([C1, A1, B1], waiting=False) == [0, 7, 0]


def test_nothing_is_fetched_of_a_run_that_is_held(
    pool: TaskPool, evaluator: SimpleNamespace
) -> None:
    evaluator.held.set(frozenset({"r1"}))
    assert pool.allowance([A1, A2, A3, B1]) == [0, 4, 4, 0]
    evaluator.held.set(frozenset())
    assert pool.allowance([A1, B1]) == [7, 40]


def test_queues_of_other_kinds_are_not_limited(pool: TaskPool) -> None:
    assert pool.allowance(["elsewhere"]) == [pool.prefetch_count]


def test_aggregations_come_one_at_a_time(pool: TaskPool) -> None:
    assert pool.allowance([AGGREGATION_QUEUE, B1]) == [1, 40]
    take(pool, AGGREGATION_QUEUE)
    assert pool.allowance([AGGREGATION_QUEUE, B1, "elsewhere"])[:2] == [0, 40]


def test_nothing_is_fetched_while_the_database_fails(
    pool: TaskPool, evaluator: SimpleNamespace
) -> None:
    """Its answers could not be stored; whatever the limiters allow, no queue gives a message."""
    evaluator.takes_items = False
    assert pool.allowance([A1, B1, "elsewhere"]) == [0, 0, 0]


def test_a_start_that_takes_too_long_ends_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up = threading.Event()

    @asynccontextmanager
    async def hangs(app: Any, calls: int, work: object) -> AsyncIterator[Any]:
        while not given_up.is_set():
            await asyncio.sleep(0.001)
        raise StoreError("the server went away")
        yield

    monkeypatch.setattr(pool_module, "START_TIMEOUT_S", 0.01)
    monkeypatch.setattr(pool_module, "open_evaluator", hangs)
    with capture_logs() as logs, pytest.raises(SystemExit) as ended:
        task_pool().on_start()
    assert ended.value.code == 1
    assert [line["event"] for line in logs] == ["worker_cannot_start"]
    assert "AEGISH_DIST_DATABASE_URL" in logs[0]["problem"]
    given_up.set()
    wait_until(lambda: "aegish-pool" not in {each.name for each in threading.enumerate()}, "an end")

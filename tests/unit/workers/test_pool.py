"""How many messages a pool takes."""

from collections.abc import Iterator
from typing import Any

import pytest

from aegish_dist.broker.messages import queue_name
from workers.pool import Delivery, TaskPool

A, B = "lab/a", "lab/b"
A1, A2, A3 = (queue_name(A, run) for run in ("r1", "r2", "r3"))
B1 = queue_name(B, "r1")


class FakeGates:
    """Limiters that want so many items of each model."""

    def __init__(self, **supplies: int) -> None:
        self._supplies = supplies

    def prefetch_target(self, model: str) -> int:
        return self._supplies[model.rpartition("/")[2]]


class FakeEvaluator:
    """An evaluator whose database works."""

    takes_items = True


@pytest.fixture
def pool() -> Iterator[TaskPool]:
    """A pool that was not started."""
    made = TaskPool(limit=10)
    made._limiters = FakeGates(a=7, b=40)
    made._evaluator = FakeEvaluator()
    yield made
    made._loop.close()


def take(pool: TaskPool, queue: str) -> None:
    """Have a message come from a queue."""
    request: dict[str, Any] = {"delivery_info": {"routing_key": queue}}
    pool.take(Delivery(None, request, None, None))  # type: ignore[arg-type]


def test_a_model_has_one_allowance(pool: TaskPool) -> None:
    """Its queues share it evenly, rounded up; those of others have their own."""
    assert pool.allowance([A1]) == [7]
    assert pool.allowance([A1, B1, A2, A3]) == [3, 40, 3, 3]
    assert pool.allowance([]) == []


def test_what_has_come_counts_for_all_queues_of_its_model(pool: TaskPool) -> None:
    """None is asked when the model has enough, by whichever queue it came."""
    for _ in range(6):
        take(pool, A1)
    assert pool.allowance([A1, A2, B1]) == [1, 1, 40]

    take(pool, A2)
    assert pool.allowance([A1, A2, B1]) == [0, 0, 40]


def test_queues_of_other_kinds_are_not_limited(pool: TaskPool) -> None:
    """They have no limiter."""
    assert pool.allowance(["elsewhere"])[0] > 1000


def test_nothing_is_fetched_while_the_database_fails(pool: TaskPool) -> None:
    """Its answers could not be stored; whatever the limiters want, no queue gives a message."""
    pool._evaluator.takes_items = False
    assert pool.allowance([A1, B1, "elsewhere"]) == [0, 0, 0]

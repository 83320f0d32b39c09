"""The task body: what becomes of a message."""

import asyncio
from typing import Any

import pytest
from celery.exceptions import Reject

from aegish_dist.broker.messages import ENQUEUED_AT, encode
from aegish_dist.core.verdict import Item
from aegish_dist.errors import ShuttingDownError, StoreAwayError
from workers import tasks
from workers.tasks import IS_HELD, aggregate, evaluate

ITEM = Item("0abcdefgh", "test/x", 7, 2, 1)


STILL_HELD = object()


class Recorder:
    """Remembers what it was asked, and ends as it was made to."""

    def __init__(self, end: Exception | bool = True) -> None:
        self.asked: list[object] = []
        self._end = end

    def _note(self, asked: object) -> bool:
        self.asked.append(asked)
        if isinstance(self._end, Exception):
            raise self._end
        return self._end

    async def evaluate(self, item: Item, enqueued_at: float | None, is_held: object) -> None:
        assert is_held is STILL_HELD
        self._note((item, enqueued_at))

    async def store_deaths(self) -> None:
        self.asked.append("deaths")

    async def aggregate(self, key: int) -> bool:
        return self._note(key)


def perform(evaluator: Recorder, request: dict[str, Any]) -> None:
    asyncio.run(evaluate.run(evaluator, {"delivery_info": {}, **request, IS_HELD: STILL_HELD}))


def test_a_message_is_evaluated() -> None:
    evaluator = Recorder()
    perform(evaluator, {"args": encode(ITEM), ENQUEUED_AT: 1.5})
    perform(evaluator, {"args": encode(ITEM)})
    assert evaluator.asked == [(ITEM, 1.5), (ITEM, None)]


@pytest.mark.parametrize(
    ("delivery", "asked"),
    [
        ({"redelivered": True}, ["deaths", (ITEM, None)]),
        ({"redelivered": False}, [(ITEM, None)]),
    ],
)
def test_deaths_are_stored_before_an_item_that_comes_again(
    delivery: dict[str, bool], asked: list[object]
) -> None:
    """Its last worker may have died of its answer a moment ago."""
    evaluator = Recorder()
    perform(evaluator, {"args": encode(ITEM), "delivery_info": delivery})
    assert evaluator.asked == asked


@pytest.mark.parametrize("arguments", [[], [*encode(ITEM), "more"], "abcde", 7, None, {"run": 1}])
def test_a_forged_message_is_dropped(arguments: object) -> None:
    evaluator = Recorder()
    with pytest.raises(Reject) as caught:
        perform(evaluator, {"args": arguments})
    assert not caught.value.requeue
    assert evaluator.asked == []


def test_an_item_goes_back_when_the_worker_stops() -> None:
    with pytest.raises(Reject) as caught:
        perform(Recorder(ShuttingDownError()), {"args": encode(ITEM)})
    assert caught.value.requeue


@pytest.mark.parametrize("bug", [ValueError("a bug"), KeyError("a bug")], ids=repr)
def test_a_bug_is_not_taken_for_a_forged_message(bug: Exception) -> None:
    with pytest.raises(type(bug)):
        perform(Recorder(bug), {"args": encode(ITEM)})


def test_an_aggregation_is_made() -> None:
    aggregator = Recorder()
    asyncio.run(aggregate.run(aggregator.aggregate, {"args": [7]}))
    for forged in ([], ["7"], None, {"key": 7}):
        with pytest.raises(Reject) as caught:
            asyncio.run(aggregate.run(aggregator.aggregate, {"args": forged}))
        assert not caught.value.requeue
    assert aggregator.asked == [7]


@pytest.mark.parametrize("end", [StoreAwayError("away"), False], ids=["away", "made elsewhere"])
def test_an_aggregation_that_is_not_finished_goes_back(
    monkeypatch: pytest.MonkeyPatch, end: Exception | bool
) -> None:
    monkeypatch.setattr(tasks, "BUSY_S", 0.0)
    with pytest.raises(Reject) as caught:
        asyncio.run(aggregate.run(Recorder(end).aggregate, {"args": [7]}))
    assert caught.value.requeue

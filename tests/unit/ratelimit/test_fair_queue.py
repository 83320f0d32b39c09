"""Calls that wait for permits, and the order in which they get them."""

import pytest

from aegish_dist.ratelimit.fair_queue import (
    IDLE_QUEUES,
    Accounts,
    Budget,
    ExpectedUsage,
    FairQueue,
    Permit,
    RunQueue,
)
from aegish_dist.ratelimit.usage_report import RunLease, RunRequest, StoredCost


async def no_cost(_: str) -> dict[str, int]:
    return {}


async def no_cap(_: str) -> None:
    """Know of no cap."""


ACCOUNTS = Accounts(no_cost, no_cap)


class LeftError(Exception):
    """Raised for those who have to leave."""


class Door:
    """Lets so many through, and remembers of which runs they were."""

    def __init__(self, permits: int) -> None:
        self.permits = permits
        self.runs: list[str] = []

    def begin(self, run: RunQueue, expected: ExpectedUsage) -> Permit | None:
        if self.permits == 0:
            return None
        self.permits -= 1
        self.runs.append(run.run_id)
        run.begin(expected)
        return Permit(run, expected, 0, probe=False)


@pytest.fixture
def queue() -> FairQueue:
    return FairQueue("lab/guard", ACCOUNTS)


async def test_runs_take_turns(queue: FairQueue) -> None:
    large, small = queue.of_run("large", None), queue.of_run("small", None)
    for _ in range(5):
        queue.wait(large, ExpectedUsage())
    for _ in range(2):
        queue.wait(small, ExpectedUsage())
    door = Door(6)
    queue.admit(door.begin)
    assert door.runs == ["large", "small", "large", "small", "large", "large"]
    assert queue.waiting == 1


async def test_a_run_without_money_is_passed_over(queue: FairQueue) -> None:
    capped, free = queue.of_run("capped", Budget(10)), queue.of_run("free", None)
    for run in (capped, capped, free, free):
        queue.wait(run, ExpectedUsage())
    door = Door(10)
    queue.admit(door.begin)
    assert door.runs == ["free", "free"]
    capped.renew(RunLease("capped", 1, over=False, unknown=False))
    queue.admit(door.begin)
    assert door.runs == ["free", "free", "capped"]
    assert queue.waiting == 1


async def test_a_cancelled_waiter_takes_no_permit(queue: FairQueue) -> None:
    run = queue.of_run("run", None)
    first, second = queue.wait(run, ExpectedUsage()), queue.wait(run, ExpectedUsage())
    first.cancel()
    assert queue.cancel(run, first) is None
    assert queue.waiting == 1
    queue.admit(Door(1).begin)
    assert second.done()
    assert queue.waiting == 0


@pytest.mark.parametrize(("even_called", "gone"), [(True, [1, 2]), (False, [0, 2])])
async def test_the_latest_are_sent_back(
    queue: FairQueue, even_called: bool, gone: list[int]
) -> None:
    run = queue.of_run("run", None)
    futures = [queue.wait(run, ExpectedUsage(), called=number == 1) for number in range(3)]
    queue.shed(LeftError, keep=1, even_called=even_called)
    assert [number for number, future in enumerate(futures) if future.done()] == gone
    assert all(isinstance(futures[number].exception(), LeftError) for number in gone)
    assert queue.waiting == 1


async def test_the_longest_run_is_sent_back(queue: FairQueue) -> None:
    small, large = queue.of_run("small", None), queue.of_run("large", None)
    kept = [queue.wait(small, ExpectedUsage()) for _ in range(2)]
    queue.wait(large, ExpectedUsage(), called=True)
    gone = [queue.wait(large, ExpectedUsage()) for _ in range(6)]
    queue.shed(LeftError, keep=4, even_called=False)
    assert [future.done() for future in [*kept, *gone]] == [False] * 3 + [True] * 5
    assert queue.waiting == 4
    queue.shed(LeftError, keep=0, even_called=False)
    assert all(future.done() for future in kept)
    assert queue.waiting == 1


async def test_the_calls_of_one_run_fail(queue: FairQueue) -> None:
    dear, cheap = queue.of_run("dear", Budget(1)), queue.of_run("cheap", None)
    gone, kept = queue.wait(dear, ExpectedUsage()), queue.wait(cheap, ExpectedUsage())
    queue.fail(LeftError, only=dear)
    assert isinstance(gone.exception(), LeftError)
    assert not kept.done()
    assert [run.run_id for run in queue] == ["dear", "cheap"]


async def test_the_money_of_a_run(queue: FairQueue) -> None:
    run = queue.of_run("run", Budget(100, 50))
    assert run.request() is None
    queue.expect(run, ExpectedUsage(1, 7))
    queue.wait(run, ExpectedUsage(1, 7))
    run.begin(ExpectedUsage(1, 7))
    run.begin(ExpectedUsage(1, 7))
    run.end(ExpectedUsage(1, 7), 9)
    report = RunRequest(
        "run", 1, 7, estimate=7, spent=9, cap=100, model_cap=50, contender="lab/guard"
    )
    asked = run.request()
    assert asked == report
    run.put_back(report)
    assert run.request() == report
    run.recount({"a/b": 3, "c/d": 4})
    asked = run.request()
    assert asked is not None
    assert asked.spent == 0
    assert asked.stored == StoredCost(7, {"a/b": 3, "c/d": 4})


async def test_ended_runs_are_forgotten(queue: FairQueue) -> None:
    busy = {name: queue.of_run(name, Budget(9)) for name in ("waiting", "calling", "unreported")}
    queue.wait(busy["waiting"], ExpectedUsage())
    for name in ("calling", "unreported"):
        busy[name].begin(ExpectedUsage())  # of unknown cost
    busy["unreported"].end(ExpectedUsage(), 7)
    for number in range(IDLE_QUEUES + 10):
        run = queue.of_run(f"run{number}", None)
        run.begin(ExpectedUsage())
        run.end(ExpectedUsage(), 7)
    queue.of_run("run0", None)
    queue.forget_idle()
    kept = [run.run_id for run in queue]
    latest = [f"run{number}" for number in range(11, IDLE_QUEUES + 10)]
    assert kept == [*busy, *latest, "run0"]
    busy["unreported"].request()
    busy["calling"].end(ExpectedUsage(), 0)
    queue.forget_idle()
    assert [run.run_id for run in queue] == ["waiting", *latest, "run0"]

"""Who waits at a gate, and in which order they are let through."""

import asyncio
from collections.abc import Callable

import pytest

from aegish_dist.ratelimit.budget import Budget
from aegish_dist.ratelimit.fair_queue import IDLE_LINES, ExpectedUsage, FairQueue, Permit, RunQueue
from aegish_dist.ratelimit.protocol import RunLease, RunRequest


class LeftError(Exception):
    """Raised for those who have to leave."""


class Door:
    """Lets so many through, and remembers of which runs they were."""

    def __init__(self, permits: int) -> None:
        self.permits = permits
        self.runs: list[str] = []

    def begin(self, line: RunQueue, expected: ExpectedUsage) -> Permit | None:
        if self.permits == 0:
            return None
        self.permits -= 1
        self.runs.append(line.run_id)
        line.begin(expected)
        return Permit(line, expected, 0, probe=False)


def in_room(test: Callable[[FairQueue], None]) -> None:
    """Run a test inside an event loop."""

    async def run() -> None:
        test(FairQueue())

    asyncio.run(run())


def test_runs_take_turns() -> None:
    """A run with many waiters does not keep another one out."""

    def test(room: FairQueue) -> None:
        large, small = room.line("large", None), room.line("small", None)
        for _ in range(5):
            room.join(large, ExpectedUsage())
        for _ in range(2):
            room.join(small, ExpectedUsage())
        door = Door(6)

        room.admit(door.begin)

        assert door.runs == ["large", "small", "large", "small", "large", "large"]
        assert room.waiting == 1

    in_room(test)


def test_a_run_without_money_is_passed_over() -> None:
    """Others are let through meanwhile, and it keeps its place."""

    def test(room: FairQueue) -> None:
        capped, free = room.line("capped", Budget(10)), room.line("free", None)
        for line in (capped, capped, free, free):
            room.join(line, ExpectedUsage())
        door = Door(10)

        room.admit(door.begin)
        assert door.runs == ["free", "free"]

        capped.take(RunLease("capped", 1, over=False, unknown=False))
        room.admit(door.begin)
        assert door.runs == ["free", "free", "capped"]
        assert room.waiting == 1

    in_room(test)


def test_a_cancelled_waiter_takes_no_permit() -> None:
    """It leaves its line, and the next one is let through."""

    def test(room: FairQueue) -> None:
        line = room.line("run", None)
        first, second = room.join(line, ExpectedUsage()), room.join(line, ExpectedUsage())
        first.cancel()
        assert room.leave(line, first) is None
        assert room.waiting == 1

        room.admit(Door(1).begin)

        assert second.done()
        assert room.waiting == 0

    in_room(test)


def test_a_permit_that_came_too_late() -> None:
    """Whoever was let through in the moment of leaving has a permit to give back."""

    def test(room: FairQueue) -> None:
        line = room.line("run", None)
        future = room.join(line, ExpectedUsage())
        room.admit(Door(1).begin)

        assert room.leave(line, future) is future.result()

    in_room(test)


@pytest.mark.parametrize(("even_called", "gone"), [(True, [1, 2]), (False, [0, 2])])
def test_the_latest_are_sent_back(even_called: bool, gone: list[int]) -> None:
    """Those who were called before may stay in their place."""

    def test(room: FairQueue) -> None:
        line = room.line("run", None)
        futures = [room.join(line, ExpectedUsage(), called=number == 1) for number in range(3)]

        room.send_back(LeftError, keep=1, even_called=even_called)

        assert [number for number, future in enumerate(futures) if future.done()] == gone
        assert all(isinstance(futures[number].exception(), LeftError) for number in gone)
        assert room.waiting == 1

    in_room(test)


def test_the_longest_line_is_sent_back() -> None:
    """A run with few waiters keeps them, whoever's turn it is."""

    def test(room: FairQueue) -> None:
        small, large = room.line("small", None), room.line("large", None)
        kept = [room.join(small, ExpectedUsage()) for _ in range(2)]
        room.join(large, ExpectedUsage(), called=True)
        gone = [room.join(large, ExpectedUsage()) for _ in range(6)]

        room.send_back(LeftError, keep=4, even_called=False)

        assert [future.done() for future in [*kept, *gone]] == [False] * 3 + [True] * 5
        assert room.waiting == 4
        room.send_back(LeftError, keep=0, even_called=False)
        assert all(future.done() for future in kept)
        assert room.waiting == 1

    in_room(test)


def test_one_line_is_turned_away() -> None:
    """The others go on waiting."""

    def test(room: FairQueue) -> None:
        dear, cheap = room.line("dear", Budget(1)), room.line("cheap", None)
        gone, kept = room.join(dear, ExpectedUsage()), room.join(cheap, ExpectedUsage())

        room.turn_away(LeftError, only=dear)

        assert isinstance(gone.exception(), LeftError)
        assert not kept.done()
        assert [line.run_id for line in room] == ["dear", "cheap"]

    in_room(test)


def test_the_money_of_a_run() -> None:
    """What is in flight and what was spent is told, the latter once."""

    def test(room: FairQueue) -> None:
        line = room.line("run", Budget(100, 50))
        assert line.ask() is None
        line.expect(ExpectedUsage(1, 7))
        room.join(line, ExpectedUsage(1, 7))
        line.begin(ExpectedUsage(1, 7))
        line.begin(ExpectedUsage(1, 7))
        line.end(ExpectedUsage(1, 7), 9)

        told = RunRequest(
            "run", waiting=1, held=7, estimate=7, spent=9, cap=100, model_cap=50, stored=None
        )
        asked = line.ask()
        assert asked == told
        line.put_back(told)
        assert line.ask() == told
        line.stored = {"a/b": 3, "c/d": 4}
        asked = line.ask()
        assert asked is not None
        assert asked.spent == 0
        assert asked.stored == {"total": 7, "models": {"a/b": 3, "c/d": 4}}

    in_room(test)


def test_ended_runs_are_forgotten() -> None:
    """Of the idle lines the latest are kept; those that wait, call or have costs to tell all are."""

    def test(room: FairQueue) -> None:
        busy = {name: room.line(name, Budget(9)) for name in ("waiting", "calling", "untold")}
        room.join(busy["waiting"], ExpectedUsage())
        for name in ("calling", "untold"):
            busy[name].begin(ExpectedUsage())  # which costs nothing as far as anybody knows
        busy["untold"].end(ExpectedUsage(), 7)
        for number in range(IDLE_LINES + 10):
            line = room.line(f"run{number}", None)
            line.begin(ExpectedUsage())
            line.end(ExpectedUsage(), 7)
        room.line("run0", None)

        room.forget_idle()

        kept = [line.run_id for line in room]
        latest = [f"run{number}" for number in range(11, IDLE_LINES + 10)]
        assert kept == [*busy, *latest, "run0"]

        busy["untold"].ask()
        busy["calling"].end(ExpectedUsage(), 0)
        room.forget_idle()
        assert [line.run_id for line in room] == ["waiting", *latest, "run0"]

    in_room(test)

"""Groups: many coroutines, one call."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from itertools import chain
from typing import Any

import pytest
from psycopg import errors
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from aegish_dist.errors import StoreAwayError, StoreError, StoreUnusableError
from aegish_dist.pipeline.caller import Health
from tests.virtual_time import run_virtually
from workers import writer
from workers.store import DaemonThread
from workers.writer import Grouped, facts, is_own_fault

DEADLINE_S = 5.0


class Database:
    """Takes groups of numbers and gives each back tenfold."""

    def __init__(self, *, refuses: int | None = None, most: int = 500) -> None:
        self.groups: list[list[int]] = []
        self.called = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self._refuses = refuses
        self._most = most
        self.thread = DaemonThread("database")
        self.grouped = Grouped(self, self.thread)

    async def ask(self, *numbers: int) -> list[Any]:
        async with asyncio.timeout(DEADLINE_S):
            return await asyncio.gather(*map(self.grouped, numbers), return_exceptions=True)

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        self.groups.append(list(numbers))
        self.called.set()
        assert self.may_go_on.wait(DEADLINE_S)
        if len(numbers) > self._most:
            raise OperationalError("INSERT", {}, ConnectionError("server closed the connection"))
        if self._refuses in numbers:
            raise ValueError("bad row")
        return [number * 10 for number in numbers]


async def test_a_group_grows_while_another_is_under_way() -> None:
    database = Database()
    database.may_go_on.clear()
    first = asyncio.create_task(database.grouped(1))
    await asyncio.to_thread(database.called.wait, DEADLINE_S)
    rest = asyncio.create_task(database.ask(5, 3, 4, 2))
    await asyncio.sleep(0.01)
    database.may_go_on.set()
    assert (await first, await rest) == (10, [50, 30, 40, 20])
    assert database.groups == [[1], [5, 3, 4, 2]]


async def test_a_group_has_a_greatest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "GROUP_SIZE", 2)
    database = Database()
    assert await database.ask(*range(5)) == [0, 10, 20, 30, 40]
    assert database.groups == [[0, 1], [2, 3], [4]]


async def test_a_bad_member_does_not_take_its_group_along() -> None:
    database = Database(refuses=2)
    first, bad, *others = await database.ask(1, 2, 3, 5)
    assert [first, *others] == [10, 30, 50]
    assert isinstance(bad, ValueError)
    assert await database.ask(4) == [40]
    assert database.groups == [[1, 2, 3, 5], [1, 2], [1], [2], [3, 5], [4]]


async def test_a_caller_that_left_does_not_disturb_the_others() -> None:
    database = Database()
    database.may_go_on.clear()
    leaves, stays = (asyncio.create_task(database.grouped(number)) for number in (1, 2))
    await asyncio.to_thread(database.called.wait, DEADLINE_S)
    leaves.cancel()
    database.may_go_on.set()
    assert await stays == 20
    assert leaves.cancelled()
    assert database.groups == [[1, 2]]


async def test_a_group_that_is_too_large_goes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "FIRST_PAUSE_S", 0.0)
    database = Database(most=100)
    assert await database.ask(*range(400)) == [number * 10 for number in range(400)]
    stored = [group for group in database.groups if len(group) <= 100]
    assert sorted(chain.from_iterable(stored)) == list(range(400))


class AtOnce(Executor):
    """Runs calls where they are submitted, so that only the loop's clock passes time."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> "Future[Any]":
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class Outage:
    """A database that is away until a moment of the loop's clock."""

    def __init__(self, seconds: float) -> None:
        self.tries = 0
        self.stored: list[int] = []
        self._seconds = seconds
        self._ends = 0.0

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        self.tries += 1
        now = asyncio.get_running_loop().time()
        self._ends = self._ends or now + self._seconds
        if now < self._ends:
            raise OperationalError("INSERT", {}, errors.ConnectionTimeout("no route to host"))
        self.stored += numbers
        return [number * 10 for number in numbers]


@pytest.mark.parametrize("number", [1, 700])
def test_an_outage_of_twelve_hours_loses_nothing(number: int) -> None:
    database, health = Outage(12 * 3600), Health()

    async def scenario() -> list[int]:
        loop = asyncio.get_running_loop()
        grouped: Grouped[int, int] = Grouped(database, AtOnce(), health)
        began = loop.time()
        early = [asyncio.create_task(grouped(n)) for n in range(number)]
        await asyncio.sleep(6 * 3600)
        assert not health.good
        late = [asyncio.create_task(grouped(n)) for n in range(number, 2 * number)]
        results = await asyncio.gather(*early, *late)
        assert loop.time() - began < 12 * 3600 + 60
        assert health.good
        return results

    assert run_virtually(scenario()) == [n * 10 for n in range(2 * number)]
    assert sorted(database.stored) == list(range(2 * number))
    assert 4320 <= database.tries < 4400  # every ten seconds, so longer pauses never overflow


OWN = """InvalidTextRepresentation NumericValueOutOfRange CheckViolation ForeignKeyViolation
NotNullViolation"""
PASSING = """ReadOnlySqlTransaction InsufficientPrivilege UndefinedTable UndefinedColumn
InFailedSqlTransaction InternalError_ DataCorrupted InvalidSqlStatementName TooManyConnections
DiskFull AdminShutdown CannotConnectNow DeadlockDetected SerializationFailure QueryCanceled
FeatureNotSupported ProgramLimitExceeded"""


def test_whose_fault_an_error_is() -> None:
    for kinds, own in ((OWN, True), (PASSING, False)):
        for kind in kinds.split():
            error = getattr(errors, kind)("words")
            wrapped = DBAPIError.instance("INSERT", {}, error, errors.Error)
            assert is_own_fault(wrapped) is own, kind
    passing = (PoolTimeoutError(), OSError(), MemoryError(), StoreUnusableError("has no room"))
    assert not any(map(is_own_fault, (*passing, StoreAwayError("does not answer"))))
    assert is_own_fault(TypeError())
    assert is_own_fault(StoreError("no run 'x'"))


def test_facts_of_an_error_of_the_store() -> None:
    error = StoreUnusableError("the server runs, but has no room")
    error.__cause__ = DBAPIError.instance("INSERT", {}, errors.DiskFull("no room"), errors.Error)
    assert facts(error) == {"error": "DiskFull", "sqlstate": "53100"}


async def test_a_call_that_hangs_counts_as_a_failing_database(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer, "STUCK_AFTER_S", 0.02)
    database, health = Database(), Health()
    database.may_go_on.clear()
    grouped: Grouped[int, int] = Grouped(database, database.thread, health)
    async with asyncio.timeout(DEADLINE_S):
        hanging = asyncio.create_task(grouped(1))
        while health.good:
            await asyncio.sleep(0.005)
        database.may_go_on.set()
        assert await hanging == 10
        assert health.good


def test_what_is_left_at_the_end() -> None:
    database = Outage(3600)

    async def scenario() -> list[int]:
        grouped: Grouped[int, int] = Grouped(database, AtOnce())
        tasks = [asyncio.create_task(grouped(n)) for n in range(3)]
        await asyncio.sleep(60)
        tasks.append(asyncio.create_task(grouped(3)))
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        return await grouped.close()

    assert sorted(run_virtually(scenario())) == [0, 1, 2, 3]


HANGING = """
import threading
from workers.store import DaemonThread
thread = DaemonThread("hangs")
assert thread.submit(sum, [1, 2]).result(5) == 3
thread.submit(threading.Event().wait)
thread.shutdown()
"""


def test_a_hanging_call_does_not_keep_a_process_alive() -> None:
    assert subprocess.run([sys.executable, "-c", HANGING], timeout=30, check=False).returncode == 0

"""Groups: many coroutines, one call."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy.exc import OperationalError

from workers import writer
from workers.writer import Grouped

DEADLINE_S = 5.0


class Database:
    """Takes groups of numbers and gives each back tenfold."""

    def __init__(self, *, refuses: int | None = None, unreachable: int = 0) -> None:
        self.groups: list[list[int]] = []
        self.called = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self._refuses = refuses
        self._unreachable = unreachable

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        self.groups.append(list(numbers))
        self.called.set()
        assert self.may_go_on.wait(DEADLINE_S)
        if self._unreachable:
            self._unreachable -= 1
            raise OperationalError("INSERT", {}, ConnectionError("server closed the connection"))
        if self._refuses in numbers:
            raise ValueError("bad row")
        return [number * 10 for number in numbers]


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as opened:
        yield opened


def run(
    database: Database,
    executor: ThreadPoolExecutor,
    scenario: Callable[[Grouped[int, int]], Awaitable[None]],
) -> None:
    async def with_deadline() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await scenario(Grouped(database, executor))

    asyncio.run(with_deadline())


def test_a_group_grows_while_another_is_under_way(executor: ThreadPoolExecutor) -> None:
    """The first goes alone; those that come meanwhile go together, and each gets its own result."""
    database = Database()
    database.may_go_on.clear()

    async def scenario(grouped: Grouped[int, int]) -> None:
        first = asyncio.create_task(grouped(1))
        await asyncio.to_thread(database.called.wait, DEADLINE_S)
        rest = [asyncio.create_task(grouped(number)) for number in (5, 3, 4, 2)]
        await asyncio.sleep(0)
        database.may_go_on.set()
        assert await asyncio.gather(first, *rest) == [10, 50, 30, 40, 20]

    run(database, executor, scenario)
    assert database.groups == [[1], [5, 3, 4, 2]]


def test_a_group_has_a_greatest_size(
    executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left over goes with the next one."""
    monkeypatch.setattr(writer, "GROUP_SIZE", 2)
    database = Database()

    async def scenario(grouped: Grouped[int, int]) -> None:
        assert await asyncio.gather(*map(grouped, range(5))) == [0, 10, 20, 30, 40]

    run(database, executor, scenario)
    assert database.groups == [[0, 1], [2, 3], [4]]


def test_a_bad_member_does_not_take_its_group_along(executor: ThreadPoolExecutor) -> None:
    """The group is tried one by one: the others get results, the bad one its error."""
    database = Database(refuses=2)

    async def scenario(grouped: Grouped[int, int]) -> None:
        results = await asyncio.gather(*map(grouped, (1, 2, 3)), return_exceptions=True)
        assert [results[0], results[2]] == [10, 30]
        assert isinstance(results[1], ValueError)
        assert await grouped(4) == 40

    run(database, executor, scenario)
    assert database.groups == [[1, 2, 3], [1], [2], [3], [4]]


def test_an_unreachable_database_is_waited_for(
    executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again, in halves, until the server is back; nobody sees an error."""
    monkeypatch.setattr(writer, "FIRST_PAUSE_S", 0.001)
    database = Database(unreachable=3)

    async def scenario(grouped: Grouped[int, int]) -> None:
        assert await asyncio.gather(*map(grouped, (1, 2))) == [10, 20]

    run(database, executor, scenario)
    assert database.groups == [[1, 2], [1], [1], [1], [2]]


def test_a_caller_that_left_does_not_disturb_the_others(executor: ThreadPoolExecutor) -> None:
    """A cancelled coroutine's argument still goes through; its result is nobody's."""
    database = Database()
    database.may_go_on.clear()

    async def scenario(grouped: Grouped[int, int]) -> None:
        leaves, stays = (asyncio.create_task(grouped(number)) for number in (1, 2))
        await asyncio.to_thread(database.called.wait, DEADLINE_S)
        leaves.cancel()
        database.may_go_on.set()
        assert await stays == 20
        assert leaves.cancelled()

    run(database, executor, scenario)
    assert database.groups == [[1, 2]]


class Narrow:
    """A database that hangs up on groups of more than a hundred."""

    def __init__(self) -> None:
        self.stored: list[int] = []

    def __call__(self, numbers: Sequence[int]) -> list[int]:
        if len(numbers) > 100:
            raise OperationalError("INSERT", {}, ConnectionError("invalid message length"))
        self.stored += numbers
        return [number * 10 for number in numbers]


def test_a_group_that_is_too_large_goes_in_parts(
    executor: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each argument is stored once and gets its own result, in parts that the database takes."""
    monkeypatch.setattr(writer, "FIRST_PAUSE_S", 0.0)
    database = Narrow()

    async def scenario() -> list[int]:
        async with asyncio.timeout(DEADLINE_S):
            grouped: Grouped[int, int] = Grouped(database, executor)
            return list(await asyncio.gather(*map(grouped, range(400))))

    assert asyncio.run(scenario()) == [number * 10 for number in range(400)]
    assert sorted(database.stored) == list(range(400))

"""A worker's start, its heartbeat and the callers that it keeps."""

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from aegish_dist.core.status import Waiting
from aegish_dist.errors import ConfigError, StoreError
from aegish_dist.models import CatalogCredentials
from aegish_dist.pipeline.caller import Caller, FailingItems
from aegish_dist.settings import Settings
from tests.services import wait_until
from workers import lifecycle, pool
from workers.lifecycle import KEPT_CALLERS, Callers, Heartbeat
from workers.pool import TaskPool


class Maker:
    """Makes something else every time, and remembers for whom."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.problem: Exception | None = None

    async def __call__(self, run_id: str, model: str) -> Caller:
        self.asked.append((run_id, model))
        await asyncio.sleep(0)
        if self.problem is not None:
            raise self.problem
        return cast("Caller", object())


@pytest.fixture
def maker() -> Maker:
    return Maker()


@pytest.fixture
def callers(maker: Maker) -> Callers:
    return Callers(maker)


async def test_a_caller_is_made_once(maker: Maker, callers: Callers) -> None:
    found = await asyncio.gather(*(callers("run", "lab/a") for _ in range(5)))
    found.append(await callers("run", "lab/a"))
    assert len(set(map(id, found))) == 1
    assert await callers("run", "lab/b") is not found[0]
    assert maker.asked == [("run", "lab/a"), ("run", "lab/b")]


async def test_callers_of_ended_runs_are_forgotten(maker: Maker, callers: Callers) -> None:
    kept = await callers("kept", "lab/a")
    for number in range(2 * KEPT_CALLERS):
        await callers(f"run{number}", "lab/a")
        assert await callers("kept", "lab/a") is kept
    before = len(maker.asked)
    last = 2 * KEPT_CALLERS - 1
    for number in (last, last - KEPT_CALLERS + 2, last - KEPT_CALLERS + 1):
        await callers(f"run{number}", "lab/a")
    assert maker.asked[before:] == [(f"run{last - KEPT_CALLERS + 1}", "lab/a")]


async def test_what_cannot_be_made_is_tried_again(maker: Maker, callers: Callers) -> None:
    maker.problem = ConfigError("no key")
    with pytest.raises(ConfigError):
        await callers("run", "lab/a")
    maker.problem = None
    await callers("run", "lab/a")
    assert len(maker.asked) == 2


class UnluckyDatabase:
    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.reports = 0

    async def ask(self, query: object, credentials: object, **facts: object) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.reports += 1


class NoLimiters:
    parked: Mapping[str, str | None] = MappingProxyType({})
    waiting: Mapping[tuple[str, str], Waiting] = MappingProxyType({})

    async def over_budget(self) -> list[tuple[str, str]]:
        return []


async def test_the_heartbeat_survives_any_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "REPORT_INTERVAL_S", 0.001)
    database: Any = UnluckyDatabase(KeyError("?"), RuntimeError("?"))
    evaluator: Any = SimpleNamespace(in_flight={}, failing=FailingItems())
    limiters: Any = NoLimiters()
    credentials = CatalogCredentials(None, {})
    heartbeat = Heartbeat(database, credentials, "w", evaluator, limiters)
    with capture_logs() as logs:
        running = asyncio.create_task(heartbeat.run())
        async with asyncio.timeout(5):
            while database.reports < 2:
                await asyncio.sleep(0.001)
        running.cancel()
        await asyncio.wait([running])
    # Threads of other tests may log as well.
    failures = [line["error"] for line in logs if line["event"] == "heartbeat_fails"]
    assert failures == ["KeyError"]


def test_a_start_that_takes_too_long_ends_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up = threading.Event()

    @asynccontextmanager
    async def hangs(app: Any, calls: int, work: object) -> AsyncIterator[Any]:
        while not given_up.is_set():
            await asyncio.sleep(0.001)
        raise StoreError("the server went away")
        yield

    monkeypatch.setattr(pool, "START_TIMEOUT_S", 0.01)
    monkeypatch.setattr(pool, "open_evaluator", hangs)
    connection = SimpleNamespace(connection_errors=(), channel_errors=())
    conf = SimpleNamespace(aegish_settings=Settings())
    made = TaskPool(limit=1, app=SimpleNamespace(connection_for_read=lambda: connection, conf=conf))
    with capture_logs() as logs, pytest.raises(SystemExit) as ended:
        made.on_start()
    assert ended.value.code == 1
    assert [line["event"] for line in logs] == ["worker_cannot_start"]
    assert "AEGISH_DIST_DATABASE_URL" in logs[0]["problem"]
    given_up.set()
    wait_until(lambda: "aegish-pool" not in {each.name for each in threading.enumerate()}, "an end")

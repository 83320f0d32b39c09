"""A worker's heartbeat and the callers that it keeps."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from structlog.testing import capture_logs

from aegish_dist.errors import ConfigError
from aegish_dist.models.credentials import CatalogCredentials
from aegish_dist.pipeline.caller import Caller, FailingItems
from workers import lifecycle
from workers.lifecycle import KEPT_CALLERS, Callers, Heartbeat


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


async def test_a_caller_is_made_once(maker: Maker) -> None:
    callers = Callers(maker)
    found = await asyncio.gather(*(callers("run", "lab/a") for _ in range(5)))
    found.append(await callers("run", "lab/a"))
    assert len(set(map(id, found))) == 1
    assert await callers("run", "lab/b") is not found[0]
    assert maker.asked == [("run", "lab/a"), ("run", "lab/b")]


async def test_callers_of_ended_runs_are_forgotten(maker: Maker) -> None:
    callers = Callers(maker)
    kept = await callers("kept", "lab/a")
    for number in range(2 * KEPT_CALLERS):
        await callers(f"run{number}", "lab/a")
        assert await callers("kept", "lab/a") is kept
    before = len(maker.asked)
    last = 2 * KEPT_CALLERS - 1
    for number in (last, last - KEPT_CALLERS + 2, last - KEPT_CALLERS + 1):
        await callers(f"run{number}", "lab/a")
    assert maker.asked[before:] == [(f"run{last - KEPT_CALLERS + 1}", "lab/a")]


async def test_what_cannot_be_made_is_tried_again(maker: Maker) -> None:
    callers = Callers(maker)
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


async def no_runs() -> list[tuple[str, str]]:
    return []


async def test_the_heartbeat_survives_any_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "REPORT_INTERVAL_S", 0.001)
    database: Any = UnluckyDatabase(KeyError("?"), RuntimeError("?"))
    store_deaths = AsyncMock()
    evaluator: Any = SimpleNamespace(
        in_flight={}, failing=FailingItems(), store_deaths=store_deaths
    )
    limiters: Any = SimpleNamespace(parked={}, waiting={}, over_budget=no_runs)
    heartbeat = Heartbeat(database, CatalogCredentials(None, {}), "w", evaluator, limiters)
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
    assert store_deaths.await_count >= 1

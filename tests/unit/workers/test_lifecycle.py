"""A worker's heartbeat, and its start."""

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from aegish_dist.core.status import Waiting
from aegish_dist.db.workers import Halts, Reasons
from aegish_dist.errors import StoreError
from aegish_dist.pipeline.call_gate import FailingItems
from aegish_dist.settings import Settings
from tests.services import wait_until
from workers import lifecycle, pool
from workers.lifecycle import Heartbeat
from workers.pool import TaskPool
from workers.store import DaemonThread


class UnluckyStore:
    """Fails with errors of any kind, then works."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.reports = 0

    def report(
        self, name: str, in_flight: object, halts: Halts, reasons: Reasons, **more: object
    ) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.reports += 1


class NoLimiters:
    """Limiters of no model."""

    parked: Mapping[str, str | None] = MappingProxyType({})
    waiting: Mapping[tuple[str, str], Waiting] = MappingProxyType({})

    async def over_budget(self) -> list[tuple[str, str]]:
        return []


def test_the_heartbeat_survives_any_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several errors in a row the first is logged, and the next report is made all the same."""
    monkeypatch.setattr(lifecycle, "REPORT_INTERVAL_S", 0.001)
    store: Any = UnluckyStore(KeyError("?"), RuntimeError("?"))
    evaluator: Any = SimpleNamespace(in_flight={}, failing=FailingItems())
    limiters: Any = NoLimiters()
    thread = DaemonThread("test")

    async def scenario() -> None:
        heartbeat = asyncio.create_task(Heartbeat(store, "w", evaluator, limiters, thread).run())
        async with asyncio.timeout(5):
            while store.reports < 2:
                await asyncio.sleep(0.001)
        heartbeat.cancel()
        await asyncio.wait([heartbeat])

    with capture_logs() as logs:
        asyncio.run(scenario())
    thread.shutdown()
    # Threads of other tests may log as well.
    failures = [line["error"] for line in logs if line["event"] == "heartbeat_fails"]
    assert failures == ["KeyError"]


def test_a_start_that_takes_too_long_ends_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that accepts connections and never answers is no traceback."""
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

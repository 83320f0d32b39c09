"""Pages of a worker, read from a thread beside its event loop."""

import asyncio
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from aegish_dist import __version__
from aegish_dist.core.status import CallWait
from aegish_dist.telemetry.metrics import WORKER
from workers import lifecycle, telemetry
from workers.lifecycle import Readiness
from workers.telemetry import WorkerTelemetry


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever)
    thread.start()
    yield made
    if not made.is_closed():
        made.call_soon_threadsafe(made.stop)
        thread.join()
        made.close()


def parts() -> Any:
    """The parts of a worker with one model, two verdicts on their way and one in a file."""
    limiter = SimpleNamespace(
        local=SimpleNamespace(held=3, permits=2, blocked_by=CallWait.SLOTS),
        parked=False,
        waiting={"r1": 4, "r2": 1},
    )
    old = datetime.now(UTC) - timedelta(seconds=30)
    pending = [SimpleNamespace(verdict=SimpleNamespace(created_at=at)) for at in (None, old)]
    return SimpleNamespace(
        name="host:1:ab",
        evaluator=SimpleNamespace(
            in_flight=Counter({("r1", "lab/a"): 7, ("r2", "lab/a"): 2}),
            failing=SimpleNamespace(backing_off=Counter({("r1", "lab/a"): 1})),
            takes_items=True,
        ),
        limiters=SimpleNamespace(by_model={"lab/a": limiter}),
        writer=SimpleNamespace(pending=pending, spooled=1),
    )


def of_a_worker(
    loop: asyncio.AbstractEventLoop, components: Any = None, ready: Readiness | None = None
) -> WorkerTelemetry:
    ready = ready or Readiness(broker_connected=True)
    pool: Any = SimpleNamespace(readiness=ready, messages=9)
    made = WorkerTelemetry(loop, pool)
    made.components = components
    return made


def test_gauges_of_late_models_share_a_series(loop: asyncio.AbstractEventLoop) -> None:
    """Of 205 models, five: their calls add up, and they are parked as soon as one is."""
    many = parts()
    one = vars(many.limiters.by_model["lab/a"])
    many.limiters.by_model = {
        f"lab/{number}": SimpleNamespace(**{**one, "parked": number >= 203})
        for number in range(205)
    }
    many.evaluator.in_flight = many.evaluator.failing.backing_off = Counter()
    page = of_a_worker(loop, many).pages["/metrics"]().text.splitlines()
    parked = [line for line in page if line.startswith("aegish_model_parked{")]
    assert (len(parked), parked[-1]) == (201, 'aegish_model_parked{model="other"} 1.0')
    assert 'aegish_calls_in_flight{model="other"} 15.0' in page


def test_states_are_read_when_asked_for(loop: asyncio.AbstractEventLoop) -> None:
    page = of_a_worker(loop, parts()).pages["/metrics"]()
    read = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page.text)
        for sample in family.samples
    }
    assert read["aegish_items_in_flight", "lab/a"] == 9
    assert read["aegish_calls_in_flight", "lab/a"] == 3
    assert read["aegish_limiter_permits", "lab/a"] == 2
    assert read["aegish_message_leases",] == 9
    assert read["aegish_store_waiting_verdicts",] == 2
    assert 30 <= read["aegish_store_lag_seconds",] < 40
    assert read["aegish_verdicts_spooled_total",] == 1
    assert read["aegish_worker_ready",] == 1
    waits = {key[2]: value for key, value in read.items() if key[0] == "aegish_items_waiting"}
    assert waits == {"rate": 0, "slots": 5, "congestion": 0, "share": 0, "circuit": 0, "backoff": 1}
    assert set(read) >= {("aegish_worker_info", __version__, "host:1:ab")}
    known = {measure.name for measure in WORKER}
    assert {re.sub("_(bucket|sum|count)$", "", name) for name, *_ in read} <= known


def test_a_starting_worker_is_healthy_and_not_ready(loop: asyncio.AbstractEventLoop) -> None:
    good = {path: page().good for path, page in of_a_worker(loop).pages.items()}
    assert good == {"/metrics": False, "/healthz": True, "/readyz": False}


def test_reasons_not_to_be_ready(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready, broken = Readiness(broker_connected=True), parts()
    made = of_a_worker(loop, broken, ready)
    assert made.pages["/readyz"]().text == "ready\n"
    ready.stopping, ready.broker_connected = True, False
    broken.evaluator.takes_items = False
    ready.database_seen_at = time.monotonic()
    monkeypatch.setattr(lifecycle, "SILENT_S", -1.0)
    page = made.pages["/readyz"]()
    assert not page.good
    assert len(page.text.splitlines()) == 4
    assert made.pages["/healthz"]().good
    assert "aegish_worker_ready 0.0" in made.pages["/metrics"]().text


def test_a_loop_that_hangs_is_not_healthy(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "LOOP_ANSWERS_S", 0.01)
    made = of_a_worker(loop, parts())
    loop.call_soon_threadsafe(time.sleep, 0.3)
    assert not made.pages["/healthz"]().good
    assert not made.pages["/metrics"]().good
    ended = asyncio.new_event_loop()
    ended.close()
    assert not of_a_worker(ended, parts()).pages["/healthz"]().good

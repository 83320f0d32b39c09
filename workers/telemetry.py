"""Measures and health of a worker, for Prometheus and for probes.

All that is a state is read when it is asked for; `WorkerMetrics` counts the rest.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from datetime import UTC, datetime
from operator import add
from typing import TYPE_CHECKING, Any, TypeVar

from aegish_dist import __version__
from aegish_dist.core.model import base_of
from aegish_dist.core.status import CallWait
from aegish_dist.logs import get_logger
from aegish_dist.telemetry.metrics import (
    WORKER,
    Readings,
    Series,
    TelemetryPage,
    TelemetryServer,
    WorkerMetrics,
    families,
    metrics_page,
)

if TYPE_CHECKING:
    from workers.lifecycle import WorkerComponents

log = get_logger(__name__)

# Seconds within which the event loop has to take a call; it never blocks for longer than a group
# of items takes. Probes have to wait for longer.
LOOP_ANSWERS_S = 5.0
PARKED = "aegish_model_parked"
STARTING = "the worker is starting"
SILENT = f"the event loop has not answered for {LOOP_ANSWERS_S:g} s\n"

T = TypeVar("T")


class WorkerTelemetry:
    """Answers `/metrics`, `/healthz` and `/readyz` of one worker process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: Any) -> None:
        self.work = WorkerMetrics()
        self._loop = loop
        self._pool = pool
        self.components: WorkerComponents | None = None  # read as soon as they are there

    @property
    def pages(self) -> dict[str, Callable[[], TelemetryPage]]:
        return {"/metrics": self._metrics, "/healthz": self._healthz, "/readyz": self._readyz}

    def _metrics(self) -> TelemetryPage:
        components = self.components
        if components is None:
            return TelemetryPage(f"{STARTING}\n", good=False)
        state = self._on_loop(lambda: self._state(components))
        if state is None:
            return TelemetryPage(SILENT, good=False)
        return metrics_page([*families(WORKER, state), *self.work.collect()])

    def _healthz(self) -> TelemetryPage:
        if self.components is None:
            return TelemetryPage(f"{STARTING}\n")
        if self._on_loop(lambda: True):
            return TelemetryPage("ok\n")
        return TelemetryPage(SILENT, good=False)

    def _readyz(self) -> TelemetryPage:
        problems = self._problems()
        lines = problems or ["ready"]
        return TelemetryPage("".join(f"{line}\n" for line in lines), good=not problems)

    def _problems(self) -> list[str]:
        if self.components is None:
            return [STARTING]
        takes = self.components.evaluator.takes_items
        return self._pool.readiness.problems(takes_verdicts=takes)

    def _on_loop(self, read: Callable[[], T]) -> T | None:
        """Return the result of a call on the event loop; None when it does not answer in time."""
        future: Future[T] = Future()

        def call() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(read())
                except Exception as error:
                    future.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:  # it is closed
            return None
        try:
            return future.result(LOOP_ANSWERS_S)
        except TimeoutError:
            future.cancel()
            return None

    def _state(self, components: WorkerComponents) -> dict[str, Series]:
        return {
            "aegish_worker_info": {(__version__, components.name): 1},
            "aegish_worker_ready": _one(not self._problems()),
            "aegish_message_leases": _one(self._pool.messages),
            **{
                name: self.work.bounded(series, max if name == PARKED else add)
                for name, series in of_models(components).items()
            },
            **_of_store(components),
        }


def of_models(components: WorkerComponents) -> dict[str, Mapping[tuple[str, ...], float]]:
    """Return what the evaluator and the limiters hold, by model."""
    evaluator = components.evaluator
    in_flight: Counter[tuple[str, ...]] = Counter()
    calls: dict[tuple[str, ...], float] = {}
    waiting: Counter[tuple[str, ...]] = Counter()
    permits: dict[tuple[str, ...], float] = {}
    parked: dict[tuple[str, ...], float] = {}
    for model, limiter in components.limiters.by_model.items():
        local = limiter.local
        # Every reason and every model is shown, with 0 where nothing waits or is held.
        in_flight[model,] = waiting[model, "backoff"] = 0
        for reason in CallWait:
            waiting[model, reason.value] = 0
        waiting[model, local.blocked_by.value] = sum(limiter.waiting.values())
        calls[model,] = local.held
        parked[model,] = int(limiter.parked)
        if local.permits is not None:
            permits[model,] = local.permits
    for (_, contender), items in evaluator.in_flight.items():
        in_flight[base_of(contender),] += items
    for (_, contender), items in evaluator.failing.backing_off.items():
        waiting[base_of(contender), "backoff"] += items
    return {
        "aegish_items_in_flight": in_flight,
        "aegish_calls_in_flight": calls,
        "aegish_items_waiting": waiting,
        "aegish_limiter_permits": permits,
        PARKED: parked,
    }


def _of_store(components: WorkerComponents) -> Readings:
    pending = components.writer.pending
    now = datetime.now(UTC)
    oldest = min((evaluated.verdict.created_at or now for evaluated in pending), default=now)
    lag_s = (now - oldest).total_seconds()
    return {
        "aegish_store_healthy": _one(components.evaluator.takes_items),
        "aegish_store_waiting_verdicts": _one(len(pending)),
        "aegish_store_lag_seconds": _one(max(0.0, lag_s)),
        "aegish_verdicts_spooled_total": _one(components.writer.spooled),
    }


def _one(value: float) -> Series:
    return {(): value + 0}  # a flag counts as 1


def serve_telemetry(
    host: str, port: int, loop: asyncio.AbstractEventLoop, pool: Any
) -> WorkerTelemetry:
    telemetry = WorkerTelemetry(loop, pool)
    server = TelemetryServer(host, port, telemetry.pages)
    log.info("metrics_served", url=f"{server.url}/metrics")
    return telemetry

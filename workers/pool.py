"""An asyncio task pool for Celery, through its official hook for pools of one's own.

The consumer's thread fetches and acknowledges; a second thread runs the event loop with every item
in flight. Finished items cross back through Celery's hub, so that acknowledgements happen in the
thread that owns the connection.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.concurrency.base import BasePool
from celery.exceptions import Reject

from aegish_dist.errors import AegishError
from aegish_dist.logs import get_logger
from workers.lifecycle import open_evaluator

log = get_logger(__name__)

START_TIMEOUT_S = 30
DRAIN_POLL_S = 0.02


class TaskPool(BasePool):
    """Runs the coroutine of each task on one event loop."""

    task_join_will_block = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="aegish-pool", daemon=True)
        self._ready: Future[None] = Future()
        self._stop_requested: asyncio.Event
        self._hub: Any = None
        self._in_flight: set[asyncio.Task[None]] = set()
        self._finished: deque[Callable[[], None]] = deque()

    def on_start(self) -> None:
        """Open the database and the provider session; a failure ends the worker with one line."""
        self._thread.start()
        try:
            self._ready.result(START_TIMEOUT_S)
        except AegishError as error:
            log.error("worker_cannot_start", problem=str(error))
            raise SystemExit(1) from None

    def register_with_event_loop(self, hub: Any) -> None:
        """Remember the hub of the consumer's thread."""
        self._hub = hub

    def on_apply(
        self,
        target: Any,
        args: Any = (),
        kwargs: Any = None,
        *,
        callback: Any = None,
        accept_callback: Any = None,
        error_callback: Any = None,
        **_: Any,
    ) -> None:
        """Start an item; `target`, Celery's tracer for blocking tasks, is not used.

        Args:
            target: Celery's tracer.
            args: Of the tracer: task name, task id, request with the message's arguments, ...
            kwargs: Of the tracer; none.
            callback: Acknowledges, with (failed, result, seconds).
            accept_callback: Marks the request as active.
            error_callback: Rejects or drops the message, with an `ExceptionInfo`.
        """
        name, _task_id, request, *_rest = args
        accept_callback(0, time.monotonic())
        self._loop.call_soon_threadsafe(self._spawn, name, request, callback, error_callback)

    def _spawn(self, name: str, request: Mapping[str, Any], callback: Any, failed: Any) -> None:
        task = self._loop.create_task(self._perform(name, request, callback, failed))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    async def _perform(
        self, name: str, request: Mapping[str, Any], callback: Any, failed: Any
    ) -> None:
        started = time.monotonic()
        try:
            await self.app.tasks[name].run(self._evaluator, request)
        except Reject:
            info = ExceptionInfo()
            self._finish(lambda: failed(info))
        except asyncio.CancelledError:
            # The grace is over: leave it unacknowledged, the closing channel gives it back.
            raise
        except Exception:
            # The item stays missing in the store, where `status` shows it and `resume` finds it.
            log.exception("item_failed", task=name, item=list(request["args"]))
            self._finish(lambda: failed(_dropped()))
        else:
            runtime = time.monotonic() - started
            self._finish(lambda: callback((0, None, runtime)))

    def _finish(self, acknowledge: Callable[[], None]) -> None:
        if self._hub is None:
            # Without a hub (in-memory broker) Celery's own thread pool acknowledges from here too.
            acknowledge()
            return
        self._finished.append(acknowledge)
        self._hub.call_soon(self._acknowledge_finished)

    def _acknowledge_finished(self) -> None:
        while self._finished:
            self._finished.popleft()()

    def on_close(self) -> None:
        """Let no further call begin."""
        self._loop.call_soon_threadsafe(self._evaluator.stop)

    def on_stop(self) -> None:
        """Let calls in flight finish within the grace, acknowledge them, end the loop."""
        self._drain(self.app.conf.aegish_shutdown_grace_s)
        self._end_loop()

    def on_terminate(self) -> None:
        """End the loop at once; what is in flight goes back to its queue."""
        self._end_loop()

    def _drain(self, grace_s: float) -> None:
        deadline = time.monotonic() + grace_s
        while self._thread.is_alive() and time.monotonic() < deadline:
            self._acknowledge_finished()
            if not self._in_flight and not self._finished:
                return
            time.sleep(DRAIN_POLL_S)
        if self._in_flight:
            log.warning("items_given_back", items=len(self._in_flight))

    def _end_loop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop_requested.set)
            self._thread.join()
        self._acknowledge_finished()

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
            else:
                log.exception("pool_failed")
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stop_requested = asyncio.Event()
        async with open_evaluator(self.app) as evaluator:
            self._evaluator = evaluator
            self._ready.set_result(None)
            await self._stop_requested.wait()
            leftover = list(self._in_flight)
            for task in leftover:
                task.cancel()
            await asyncio.gather(*leftover, return_exceptions=True)

    def allowance(self, queue: str) -> int:
        """Return how many more messages of a queue to fetch; asked in the consumer's thread."""
        return self._evaluator.allowance(queue)

    @property
    def num_processes(self) -> int:
        """How many items Celery may have in flight; it sizes its prefetch by this."""
        return int(self.limit)


def _dropped() -> ExceptionInfo:
    try:
        raise Reject("item failed", requeue=False)
    except Reject:
        return ExceptionInfo()

"""An asyncio task pool for Celery, through its official hook for pools of one's own.

The consumer's thread fetches and acknowledges; a second thread runs the event loop with every item
in flight. Finished items cross back through Celery's hub, so that acknowledgements happen in the
thread that owns the connection.
"""

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import compress
from math import ceil
from typing import TYPE_CHECKING, Any

from billiard.einfo import ExceptionInfo
from celery.concurrency.base import BasePool
from celery.exceptions import Reject

from aegish_dist.broker.app import process_of
from aegish_dist.broker.messages import AGGREGATION_QUEUE, EVALUATE, run_of
from aegish_dist.errors import AegishError
from aegish_dist.logs import get_logger
from aegish_dist.pipeline.evaluate import Evaluator
from aegish_dist.ratelimit.fair_queue import FairShares
from aegish_dist.ratelimit.local_lease import PREFETCH
from workers.lifecycle import Readiness, open_evaluator
from workers.tasks import Delivery, lane_of

if TYPE_CHECKING:
    from aegish_dist.telemetry.metrics import WorkerMetrics
    from workers.telemetry import WorkerTelemetry

log = get_logger(__name__)

START_TIMEOUT_S = 30
SLOW_START = (
    f"the database did not answer within {START_TIMEOUT_S} s: check AEGISH_DIST_DATABASE_URL and"
    " that the server answers"
)
DRAIN_POLL_S = 0.02
# Seconds that the event loop may take to end after the grace, with calls that hang in it.
END_S = 15.0
# Seconds that finished items wait for others, so that one wake-up acknowledges them all.
GATHER_S = 0.005

# Items prefetched beyond the calls in flight, for each call: an item that is looked up, stored or
# acknowledged makes no call. That takes about 60 ms, a tenth of a fast model's time.
SPARE_PER_CALL = 0.2


class TaskPool(BasePool):
    """Runs the coroutine of each task on one event loop."""

    task_join_will_block = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="aegish-pool", daemon=True)
        self._ready: Future[None] = Future()
        self.evaluator: Evaluator
        self.aggregates: bool  # whether it takes aggregations
        self._stop_requested: asyncio.Event
        self._hub: Any = None
        self._broker_errors: tuple[type[Exception], ...] = ()
        # What the body of each task gets, by the name of the task.
        self.performers: dict[str, Any] = {}
        # Messages by lane. Each counter is written by one thread and read by both, which needs no
        # lock: the consumer's thread counts those taken, the event loop's those finished.
        self._taken_of: Counter[str | None] = Counter()
        self._finished_of: Counter[str | None] = Counter()
        self._shares = FairShares(self.prefetch_count)
        self._taken: deque[Delivery] = deque()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._finished: deque[Callable[[], None]] = deque()
        self.readiness = Readiness()  # why the worker takes no items, if it takes none
        self._telemetry: WorkerTelemetry | None = None
        # Called when runs may have changed, with whether the database announces changes.
        self.run_listeners: list[Callable[[bool], object]] = []

    def runs_changed(self, announced: bool) -> None:
        """Tell the components that ask the database about runs; called in any thread."""
        for listener in list(self.run_listeners):
            with suppress(RuntimeError):  # its loop has ended
                listener(announced)

    def on_start(self) -> None:
        """Open the database and the provider session; a failure ends the worker with one line."""
        connection = self.app.connection_for_read()
        self._broker_errors = (*connection.connection_errors, *connection.channel_errors)
        try:
            settings = process_of(self.app).settings
            if settings.metrics_port is not None:
                from workers.telemetry import serve_telemetry  # noqa: PLC0415  else not loaded

                self._telemetry = serve_telemetry(
                    settings.metrics_host, settings.metrics_port, self._loop, self
                )
            self._thread.start()
            self._ready.result(START_TIMEOUT_S)
        except (AegishError, TimeoutError) as error:
            # A wait that took too long has no words of its own.
            log.error("worker_cannot_start", problem=str(error) or SLOW_START)
            raise SystemExit(1) from None

    def register_with_event_loop(self, hub: Any) -> None:
        self._hub = hub

    @property
    def idle(self) -> bool:
        return not self._taken and not self._in_flight and not self._finished

    @property
    def messages(self) -> int:
        return self._taken_of.total() - self._finished_of.total() + len(self._finished)

    @property
    def work(self) -> "WorkerMetrics | None":
        """Counts of the process, once it has started; None: nothing counts."""
        return None if self._telemetry is None else self._telemetry.work

    def take(self, delivery: Delivery) -> None:
        """Start the item of a message; called in the consumer's thread."""
        self._taken_of[delivery.lane] += 1
        self._taken.append(delivery)
        if len(self._taken) == 1:
            self._loop.call_soon_threadsafe(self._start_taken)

    def allowance(self, queues: Sequence[str], *, waiting: bool = True) -> list[int]:
        """Return how many more messages to fetch of each queue at most.

        A model holds messages up to its prefetch target, and while other models want messages, up
        to its fair share. What it lacks is divided among its queues and rounded up: that may be one
        message too many per queue, but none gets nothing while another gets something. Nothing is
        fetched of runs that are held, and nothing at all while the database fails. Called in the
        consumer's thread.

        Args:
            waiting: Whether messages are believed to wait in all these queues.
        """
        if not self.evaluator.takes_items:
            return [0] * len(queues)
        blocked = self.evaluator.held.keys
        served = [not blocked or run_of(queue) not in blocked for queue in queues]
        lanes = list(map(lane_of, queues))
        sharing = Counter(compress(lanes, served))
        held = {lane: taken - self._finished_of[lane] for lane, taken in self._taken_of.items()}
        targets = {lane: self._target(lane) for lane in sharing}
        room = self._shares.room(held, targets, waiting=waiting)
        parts = {lane: ceil(room[lane] / number) for lane, number in sharing.items()}
        return [parts[lane] if serve else 0 for lane, serve in zip(lanes, served, strict=True)]

    def _target(self, lane: str | None) -> int:
        if lane is None:
            return PREFETCH.unlimited
        if lane == AGGREGATION_QUEUE:
            return 1  # the others are left to other workers
        return self._limiters.prefetch_target(lane)

    def on_apply(self, target: Any, *args: Any, error_callback: Any, **kwargs: Any) -> None:
        """Drop a message of one of Celery's own tasks, which would block the event loop."""
        try:
            raise Reject("not a task of this pool", requeue=False)
        except Reject:
            error_callback(ExceptionInfo())

    def _start_taken(self) -> None:
        while self._taken:
            task = self._loop.create_task(self._perform(self._taken[0]))
            self._in_flight.add(task)
            task.add_done_callback(self._in_flight.discard)
            self._taken.popleft()

    async def _perform(self, delivery: Delivery) -> None:
        request, channel = delivery.request, delivery.channel
        try:
            await delivery.run(self.performers[delivery.task], request)
        except Reject as rejection:
            requeue = bool(rejection.requeue)
            self._finish(delivery, channel.basic_reject, rejection, requeue=requeue)
        except asyncio.CancelledError:
            # The grace is over. The message stays unacknowledged; closing the channel requeues it.
            raise
        except Exception as error:
            # The item stays missing in the store, where `status` shows it and `resume` finds it.
            log.exception("item_failed", item=request["args"])
            self._finish(delivery, channel.basic_reject, error, requeue=False)
        else:
            self._finish(delivery, channel.basic_ack, None)
        finally:
            self._finished_of[delivery.lane] += 1

    def _finish(
        self, delivery: Delivery, settle: Callable[..., None], error: Exception | None, **how: bool
    ) -> None:
        if self._hub is None:
            # Without a hub (in-memory broker) Celery's own thread pool acknowledges from here too.
            self._settle(delivery, settle, error, **how)
            return
        self._finished.append(partial(self._settle, delivery, settle, error, **how))
        if len(self._finished) == 1:
            self._loop.call_later(GATHER_S, self._hub.call_soon, self._settle_finished)

    def _settle(
        self, delivery: Delivery, settle: Callable[..., None], error: Exception | None, **how: bool
    ) -> None:
        if delivery.events is not None:
            delivery.events.ended(error, **how)
        try:
            settle(delivery.tag, **how)
        except BrokenPipeError:
            raise  # has the consumer connect again
        except self._broker_errors as lost:
            # The connection is lost. The broker delivers the message again, and the look-up finds
            # the stored verdict.
            log.warning("message_not_settled", problem=str(lost))

    def _settle_finished(self) -> None:
        while self._finished:
            self._finished.popleft()()

    def on_close(self) -> None:
        self.readiness.stopping = True
        self._loop.call_soon_threadsafe(self.evaluator.stop)
        self._loop.call_soon_threadsafe(self._limiters.close)

    def on_stop(self) -> None:
        """Let calls in flight finish within the grace, acknowledge them, end the loop."""
        self._drain(process_of(self.app).settings.shutdown_grace_s)
        self.on_terminate()

    def on_terminate(self) -> None:
        """End the loop at once; items in flight are requeued."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop_requested.set)
            self._thread.join(END_S)
        self._settle_finished()

    def _drain(self, grace_s: float) -> None:
        deadline = time.monotonic() + grace_s
        if self._hub is not None:
            self._hub.call_later(grace_s, lambda: None)  # ends the last round of the hub in time
        while not self.idle and self._thread.is_alive() and time.monotonic() < deadline:
            self._turn_hub()
        if self._in_flight:
            log.warning("items_given_back", items=len(self._in_flight))

    def _turn_hub(self) -> None:
        # Acknowledges finished items, renews the leases of the others, and sends heartbeats.
        if self._hub is None:
            time.sleep(DRAIN_POLL_S)
            return
        try:
            self._hub.run_once()
        except self._broker_errors as error:
            log.warning("broker_lost", problem=str(error))
            self._hub = None
            self._settle_finished()

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
        async with open_evaluator(self.app, self.num_processes, self.work) as components:
            self.evaluator, self._limiters = components.evaluator, components.limiters
            self.aggregates = components.aggregates
            self.performers[EVALUATE] = self.evaluator
            self.run_listeners.append(
                lambda announced: self._loop.call_soon_threadsafe(
                    components.holds.runs_changed, announced
                )
            )
            if self._telemetry is not None:
                self._telemetry.components = components
            self._ready.set_result(None)
            await self._stop_requested.wait()
            leftover = list(self._in_flight)
            for task in leftover:
                task.cancel()
            await asyncio.gather(*leftover, return_exceptions=True)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()  # it waits for a database that does not answer
        await asyncio.sleep(0)

    @property
    def num_processes(self) -> int:
        """Maximum number of calls in flight."""
        return int(self.limit)

    @property
    def prefetch_count(self) -> int:
        """Maximum number of messages held."""
        return int((1 + SPARE_PER_CALL) * self.num_processes)

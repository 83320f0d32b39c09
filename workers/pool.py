"""An asyncio task pool for Celery, through its official hook for pools of one's own.

The consumer's thread fetches and acknowledges; a second thread runs the event loop with every item
in flight. Finished items cross back through Celery's hub, so that acknowledgements happen in the
thread that owns the connection.
"""

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from math import ceil
from typing import Any, NamedTuple

from billiard.einfo import ExceptionInfo
from celery.concurrency.base import BasePool
from celery.exceptions import InvalidTaskError, Reject

from aegish_dist.broker.messages import ENQUEUED_AT, model_of
from aegish_dist.errors import AegishError
from aegish_dist.logs import get_logger
from aegish_dist.pipeline.evaluate import Evaluator
from aegish_dist.ratelimit.local_lease import ANY_NUMBER
from workers.lifecycle import open_evaluator
from workers.tasks import IS_HELD

log = get_logger(__name__)

START_TIMEOUT_S = 30
DRAIN_POLL_S = 0.02
END_S = 15.0
"""How long the event loop may take to end after the grace, whatever hangs in it."""
GATHER_S = 0.005
"""How long finished items wait for others, so that one wake-up acknowledges them all."""


class Delivery(NamedTuple):
    """What remains of a message on its way through the pool; whole ones would take 5 KB each."""

    run: Callable[[Evaluator, Mapping[str, Any]], Awaitable[None]]
    """The body of its task."""
    request: Mapping[str, Any]
    """What the message says to it."""
    channel: Any
    """Where it is acknowledged."""
    tag: Any
    """As what it is acknowledged."""


def hand_over(task: Any, app: Any, consumer: Any, **_: Any) -> Callable[..., None]:
    """Give messages to the pool as they are: the strategy of a task, in Celery's terms.

    Celery's own makes a request of each message, for events, revocations, limits and results. None
    of them is used here, and it costs an eighth of a worker's time.
    """

    def on_message(message: Any, *_: Any) -> None:
        match message.payload:
            case [arguments, *_]:
                request = {
                    "args": arguments,
                    "delivery_info": message.delivery_info,
                    ENQUEUED_AT: message.headers.get(ENQUEUED_AT),
                    IS_HELD: partial(_is_open, message.channel),
                }
            case _:
                raise InvalidTaskError("a message without arguments")
        consumer.pool.take(Delivery(task.run, request, message.channel, message.delivery_tag))

    return on_message


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
        self._broker_errors: tuple[type[Exception], ...] = ()
        # By model. Written by one thread each, and read by both: counting up and down would need a
        # lock.
        self._came: Counter[str | None] = Counter()
        self._went: Counter[str | None] = Counter()
        self._taken: deque[Delivery] = deque()
        self._in_flight: set[asyncio.Task[None]] = set()
        self._finished: deque[Callable[[], None]] = deque()

    def on_start(self) -> None:
        """Open the database and the provider session; a failure ends the worker with one line."""
        connection = self.app.connection_for_read()
        self._broker_errors = (*connection.connection_errors, *connection.channel_errors)
        self._thread.start()
        try:
            self._ready.result(START_TIMEOUT_S)
        except AegishError as error:
            problem = str(error)
        except TimeoutError:
            problem = (
                f"the database did not answer within {START_TIMEOUT_S} s: check"
                " AEGISH_DIST_DATABASE_URL and that the server answers"
            )
        else:
            return
        log.error("worker_cannot_start", problem=problem)
        raise SystemExit(1)

    def register_with_event_loop(self, hub: Any) -> None:
        """Remember the hub of the consumer's thread."""
        self._hub = hub

    @property
    def idle(self) -> bool:
        """Whether nothing is held."""
        return not self._taken and not self._in_flight and not self._finished

    def take(self, delivery: Delivery) -> None:
        """Start an item; called in the consumer's thread."""
        self._came[_model(delivery)] += 1
        self._taken.append(delivery)
        if len(self._taken) == 1:
            self._loop.call_soon_threadsafe(self._start_taken)

    def allowance(self, queues: Sequence[str]) -> list[int]:
        """Return how many more messages to fetch of each queue; asked in the consumer's thread.

        What the worker still takes of a model is shared among its queues, rounded up: that may be
        one more for each of them, but none gets nothing while another gets something. While the
        database fails, nothing is fetched.
        """
        if not self._evaluator.takes_items:
            return [0] * len(queues)
        models = list(map(model_of, queues))
        shares = {model: ceil(self._open(model) / n) for model, n in Counter(models).items()}
        return [shares[model] for model in models]

    def _open(self, model: str | None) -> int:
        prefetch_target = ANY_NUMBER if model is None else self._limiters.prefetch_target(model)
        return max(0, prefetch_target - (self._came[model] - self._went[model]))

    def on_apply(self, target: Any, *args: Any, error_callback: Any, **kwargs: Any) -> None:
        """Drop a message of a task that Celery brings along: they block, and nobody sends them."""
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
        run, request, channel, tag = delivery
        try:
            await run(self._evaluator, request)
        except Reject as rejection:
            self._finish(channel.basic_reject, tag, requeue=bool(rejection.requeue))
        except asyncio.CancelledError:
            # The grace is over: leave it unacknowledged, the closing channel gives it back.
            raise
        except Exception:
            # The item stays missing in the store, where `status` shows it and `resume` finds it.
            log.exception("item_failed", item=request["args"])
            self._finish(channel.basic_reject, tag, requeue=False)
        else:
            self._finish(channel.basic_ack, tag)
        finally:
            self._went[_model(delivery)] += 1

    def _finish(self, settle: Callable[..., None], tag: Any, **how: bool) -> None:
        if self._hub is None:
            # Without a hub (in-memory broker) Celery's own thread pool acknowledges from here too.
            self._settle(settle, tag, **how)
            return
        self._finished.append(partial(self._settle, settle, tag, **how))
        if len(self._finished) == 1:
            self._loop.call_later(GATHER_S, self._hub.call_soon, self._settle_finished)

    def _settle(self, settle: Callable[..., None], tag: Any, **how: bool) -> None:
        try:
            settle(tag, **how)
        except BrokenPipeError:
            raise  # has the consumer connect again
        except self._broker_errors as error:
            # The connection it came by is gone: it will be delivered again, and found done.
            log.warning("message_not_settled", problem=str(error))

    def _settle_finished(self) -> None:
        while self._finished:
            self._finished.popleft()()

    def on_close(self) -> None:
        """Let no further call begin."""
        self._loop.call_soon_threadsafe(self._evaluator.stop)
        self._loop.call_soon_threadsafe(self._limiters.close)

    def on_stop(self) -> None:
        """Let calls in flight finish within the grace, acknowledge them, end the loop."""
        self._drain(self.app.conf.aegish_shutdown_grace_s)
        self._end_loop()

    def on_terminate(self) -> None:
        """End the loop at once; what is in flight goes back to its queue."""
        self._end_loop()

    def _drain(self, grace_s: float) -> None:
        deadline = time.monotonic() + grace_s
        if self._hub is not None:
            self._hub.call_later(grace_s, _nothing)  # has its last round end in time
        while not self.idle and self._thread.is_alive() and time.monotonic() < deadline:
            self._turn_hub()
        if self._in_flight:
            log.warning("items_given_back", items=len(self._in_flight))

    def _turn_hub(self) -> None:
        # Acknowledges what has finished, and keeps leases and heartbeats of the rest alive.
        if self._hub is None:
            time.sleep(DRAIN_POLL_S)
            return
        try:
            self._hub.run_once()
        except self._broker_errors as error:
            log.warning("broker_lost", problem=str(error))
            self._hub = None
            self._settle_finished()

    def _end_loop(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop_requested.set)
            self._thread.join(END_S)
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
        async with open_evaluator(self.app, self.num_processes) as (
            self._evaluator,
            self._limiters,
        ):
            self._ready.set_result(None)
            await self._stop_requested.wait()
            leftover = list(self._in_flight)
            for task in leftover:
                task.cancel()
            await asyncio.gather(*leftover, return_exceptions=True)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()  # what still hangs on a database that does not answer
        await asyncio.sleep(0)

    @property
    def num_processes(self) -> int:
        """How many calls may be in flight."""
        return int(self.limit)


def _model(delivery: Delivery) -> str | None:
    return model_of(str(delivery.request["delivery_info"].get("routing_key")))


def _is_open(channel: Any) -> bool:
    # RabbitMQ gives to others at once what a lost connection held. In Redis it stays with the
    # worker, on its lease, and those channels do not know the word.
    return bool(getattr(channel, "is_open", True))


def _nothing() -> None:
    pass

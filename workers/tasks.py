"""Tasks: what Celery hands to the pool for a message, and the bodies of the two tasks."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from celery import shared_task
from celery.exceptions import InvalidTaskError, Reject

from aegish_dist.broker.messages import (
    AGGREGATE,
    AGGREGATION_QUEUE,
    ENQUEUED_AT,
    EVALUATE,
    decode,
    decode_aggregation,
    model_of,
)
from aegish_dist.core.model import base_of
from aegish_dist.errors import OverBudgetError, RequeueError, StoreAwayError
from aegish_dist.logs import get_logger
from aegish_dist.pipeline.evaluate import Evaluator
from aegish_dist.telemetry import TRACEPARENT
from aegish_dist.telemetry.tracing import item_span

log = get_logger(__name__)

T = TypeVar("T")

# Seconds that an aggregation is held while the database is away, or another worker makes it: that
# one may have been killed.
BUSY_S = 5.0
EVENT_CHARS = 200  # characters of a message that an event repeats
# Key of a request: a function that returns whether this worker still holds the message.
IS_HELD = "is_held"


class Delivery(NamedTuple):
    """The parts of a message that the pool needs; a whole one would take 5 KB."""

    run: Callable[[Any, Mapping[str, Any]], Awaitable[None]]
    # Arguments of the body: the message's own, its queue and its publishing time.
    request: Mapping[str, Any]
    channel: Any
    tag: Any
    task: str = EVALUATE  # name of the task, which says who performs it
    events: "TaskEvents | None" = None

    @property
    def lane(self) -> str | None:
        """Its messages are counted by this: see `lane_of`."""
        return lane_of(str(self.request["delivery_info"].get("routing_key")))


def lane_of(queue: str) -> str | None:
    """Return the model of a queue, or the queue of aggregations; None for one of another kind."""
    contender = model_of(queue)
    return AGGREGATION_QUEUE if queue == AGGREGATION_QUEUE else contender and base_of(contender)


class TaskEvents:
    """The events of one task in Celery's protocol, for Flower; called in the consumer's thread."""

    def __init__(self, consumer: Any, task: str, message: Any, arguments: object) -> None:
        self._consumer = consumer
        self._uuid = str(message.headers.get("id"))[:EVENT_CHARS]
        self._began = monotonic()
        args = ascii(arguments)[:EVENT_CHARS]  # may be forged
        self._send("received", name=task, args=args, kwargs="{}", retries=0)
        self._send("started")

    def ended(self, error: Exception | None, *, requeue: bool = False) -> None:
        """Send what became of the task; a task that goes back to its queue counts as retried."""
        if error is None:
            self._send("succeeded", result="None", runtime=monotonic() - self._began)
        else:
            cause = repr(error.__cause__ or error)
            self._send("retried" if requeue else "failed", exception=cause, traceback="")

    def _send(self, event: str, **fields: object) -> None:
        # The dispatcher is another one after each reconnection.
        self._consumer.event_dispatcher.send(f"task-{event}", uuid=self._uuid, **fields)


def hand_over(task: Any, app: Any, consumer: Any, **_: Any) -> Callable[..., None]:
    """Return the function that gets each message of the task: a strategy, in Celery's terms.

    Celery's own strategy makes a request of each message, for revocations, limits and results. None
    of them is used here, and it takes an eighth of a worker's time.
    """
    dispatcher = getattr(consumer, "event_dispatcher", None)
    # Of a worker that was started without `-E` it sends heartbeats alone.
    with_events = dispatcher and dispatcher.enabled and "worker" not in dispatcher.groups

    def on_message(message: Any, *_: Any) -> None:
        match message.payload:
            case [arguments, *_]:
                request = {
                    "args": arguments,
                    "delivery_info": message.delivery_info,
                    ENQUEUED_AT: message.headers.get(ENQUEUED_AT),
                    TRACEPARENT: message.headers.get(TRACEPARENT),
                    IS_HELD: partial(_is_open, message.channel),
                }
            case _:
                raise InvalidTaskError("a message without arguments")
        events = TaskEvents(consumer, task.name, message, arguments) if with_events else None
        consumer.pool.take(
            Delivery(task.run, request, message.channel, message.delivery_tag, task.name, events)
        )

    return on_message


@shared_task(name=EVALUATE, ignore_result=True, Strategy="workers.tasks:hand_over")
async def evaluate(evaluator: Evaluator, request: Mapping[str, Any]) -> None:
    """Bring the item that a message names to its verdict."""
    item = _read(decode, request)
    try:
        # RabbitMQ delivers the items of a killed worker again at once, Redis after some seconds.
        if request["delivery_info"].get("redelivered"):
            await evaluator.store_deaths()
        with item_span(item, request.get(TRACEPARENT)):
            await evaluator.evaluate(item, request.get(ENQUEUED_AT), request[IS_HELD])
    except RequeueError as error:
        raise Reject("requeued", requeue=True) from error
    except OverBudgetError as error:
        # Missing in the store, where `status` shows why.
        raise Reject("over budget", requeue=False) from error


@shared_task(name=AGGREGATE, ignore_result=True, Strategy="workers.tasks:hand_over")
async def aggregate(make: Callable[[int], Awaitable[bool]], request: Mapping[str, Any]) -> None:
    """Make the aggregation that a message names; `make` returns whether it is finished."""
    key = _read(decode_aggregation, request)
    try:
        finished = await make(key)
    except StoreAwayError:
        finished = False
        log.warning("aggregation_waits", aggregation=key, retry_in_s=BUSY_S)
    if not finished:
        await asyncio.sleep(BUSY_S)
        raise Reject("requeued", requeue=True)


def _read(decoded: Callable[[Sequence[object]], T], request: Mapping[str, Any]) -> T:
    """Read the arguments of a message; one that is not ours is dropped."""
    try:
        return decoded(request["args"])
    except (TypeError, ValueError) as error:
        log.warning("foreign_message", queue=request.get("delivery_info", {}).get("routing_key"))
        raise Reject(str(error), requeue=False) from error


def _is_open(channel: Any) -> bool:
    # RabbitMQ requeues at once what a lost connection held. In Redis, leases outlive a connection,
    # and its channels have no such attribute.
    return bool(getattr(channel, "is_open", True))

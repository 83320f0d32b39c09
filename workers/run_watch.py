"""Follows the runs of the store: listens to their queues, and closes the models that finish."""

import os
import threading
from collections.abc import Mapping
from functools import partial
from time import monotonic
from typing import Any

from celery import bootsteps
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from aegish_dist.broker.app import process_of, run_queue
from aegish_dist.broker.client import depth
from aegish_dist.broker.messages import (
    AGGREGATION_QUEUE,
    IDLE_QUEUE,
    is_pinned,
    model_of,
)
from aegish_dist.db.engine import RunChanges, in_transaction
from aegish_dist.db.missing import FinishedModels, OpenModel, open_queues
from aegish_dist.errors import QueueError, RefusedQueueError, StoreUnusableError
from aegish_dist.logs import get_logger
from aegish_dist.models.credentials import CatalogCredentials, Credentials
from aegish_dist.pipeline.enqueue import enqueue_due
from aegish_dist.pipeline.evaluate import Evaluator
from aegish_dist.redis_server import refusal_of

log = get_logger(__name__)

# Seconds between two looks, at least; and at most where the database announces no changes.
LOOK_S = 0.15
SLOW_LOOK_S = 5.0  # seconds between two looks while changes are announced
# Seconds that the thread waits for an announcement; then it sees which models became quiet.
WAIT_S = 0.5
CLOSE_S = 1.0  # seconds between two searches for finished models, at least
CLEAN_UP_S = 30.0  # seconds between searches among all open models, for workers that were killed
RETRY_S = 1.0  # seconds after which an unreachable database or a refusing broker is asked again
RETRY_QUEUE_S = 30.0  # seconds until a queue is tried again that RabbitMQ has of another type
RETRY_AFTER_BUG_S = 10.0


class RunWatch(bootsteps.StartStopStep):
    """Follows the runs of the store, unless `-Q` names queues of others.

    One thread hears of changes, finds the queues to listen to and closes the models that are
    finished; the consumer's thread declares and cancels queues. The queues that it listens to now
    are Celery's `consume_from` alone, which outlives a connection and which only the consumer's
    thread changes.

    The worker that stores the last verdict of a model has nothing more of it in flight: models on
    which this worker has become quiet are searched within a second.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        self._stopped = threading.Event()
        self._left: set[tuple[str, str]] = set()
        self._follow_at = 0.0
        self._refused: dict[str, float] = {}
        self._busy: set[tuple[str, str]] = set()

    def start(self, consumer: Any) -> None:
        """Start the thread; the broker is connected."""
        consumer.pool.readiness.broker_connected = True
        if IDLE_QUEUE not in consumer.app.amqp.queues.consume_from:
            return
        self._stopped = threading.Event()
        threading.Thread(
            target=self._watch, args=(consumer, self._stopped), name="aegish-runs", daemon=True
        ).start()

    def stop(self, consumer: Any) -> None:
        """Stop the thread; the connection is lost, or the worker stops."""
        consumer.pool.readiness.broker_connected = False
        self._stopped.set()

    def _watch(self, consumer: Any, stopped: threading.Event) -> None:
        process = process_of(consumer.app)
        settings = process.settings
        credentials = CatalogCredentials(
            settings.catalog, os.environ, embedded=settings.embedded_broker
        )
        changes, finished = RunChanges(process.database_url), FinishedModels()
        changed, look_at = True, 0.0
        close_at = monotonic() + CLOSE_S
        clean_up_at = close_at
        while not stopped.is_set():
            pause_s = LOOK_S
            try:
                if changed or monotonic() >= look_at:
                    self._look(consumer, changes.engine, credentials, stopped)
                    consumer.pool.runs_changed(changes.announced)
                    look_at = monotonic() + SLOW_LOOK_S * changes.announced
                if monotonic() >= close_at:
                    clean_up = monotonic() >= clean_up_at
                    looked = self._close(
                        changes.engine, finished, consumer.pool.evaluator, clean_up
                    )
                    if looked or not changes.announced:
                        lost_too = consumer.pool.aggregates
                        enqueue_due(changes.engine, consumer.app, lost_too=lost_too)
                    close_at = monotonic() + CLOSE_S
                    if clean_up:
                        clean_up_at = close_at + CLEAN_UP_S
                changed = changes.wait(WAIT_S)
                if changes.announced and not changed:
                    continue
            except QueueError as error:
                log.warning("aggregation_not_enqueued", problem=str(error))
                close_at = monotonic() + CLOSE_S
            except (SQLAlchemyError, StoreUnusableError):
                changed, pause_s = True, RETRY_S
                log.warning("database_unreachable", retry_in_s=pause_s)
            except Exception:
                # The thread has to outlive every error: without it, the worker takes no new run.
                changed, pause_s = True, RETRY_AFTER_BUG_S
                log.exception("looking_for_runs_failed", retry_in_s=pause_s)
            stopped.wait(pause_s)
        changes.close()
        consumer.pool.runs_changed(changes.announced)

    def _look(
        self,
        consumer: Any,
        engine: Engine,
        credentials: CatalogCredentials,
        stopped: threading.Event,
    ) -> None:
        found = in_transaction(engine, open_queues)
        consumer.pool.readiness.database_seen_at = monotonic()
        pins = consumer.controller.pins
        held = set()
        asked = {}
        for name, model in found.items():
            if model.held:
                held.add(name)
            elif not pins or is_pinned(name, pins):
                asked[name] = model
        wanted = self._servable(asked, credentials.now())
        if consumer.pool.aggregates:  # pins say which models are called
            wanted |= {AGGREGATION_QUEUE}
        consumer.call_soon(partial(self._follow, consumer, wanted, frozenset(held), stopped))

    def _close(
        self, engine: Engine, finished: FinishedModels, evaluator: Evaluator, clean_up: bool
    ) -> bool:
        while evaluator.begun:
            self._busy.add(evaluator.begun.pop())
        quiet = {model for model in self._busy if model not in evaluator.in_flight}
        if not (quiet or clean_up):
            return False
        if in_transaction(engine, finished.close, None if clean_up else quiet):
            self._busy -= quiet
        return True

    def _follow(
        self, consumer: Any, wanted: frozenset[str], held: frozenset[str], stopped: threading.Event
    ) -> None:
        if monotonic() < self._follow_at:
            return
        wanted = frozenset(name for name in wanted if monotonic() > self._refused.get(name, 0.0))
        try:
            follow(consumer, wanted, held, stopped)
        except RefusedQueueError as refused:
            self._refused[refused.queue] = monotonic() + RETRY_QUEUE_S
            log.error(
                "queue_refused",
                queue=refused.queue,
                problem=str(refused.__cause__),
                remedy="set AEGISH_DIST_QUEUE_TYPE as it was when the run was submitted",
                retry_in_s=RETRY_QUEUE_S,
            )
        except Exception as error:
            refusal = refusal_of(error)
            if refusal is None:
                raise  # has Celery connect again
            self._follow_at = monotonic() + RETRY_S
            log.warning("queues_not_followed", problem=refusal, retry_in_s=RETRY_S)

    def _servable(
        self, queues: Mapping[str, OpenModel], credentials: Credentials
    ) -> frozenset[str]:
        """Return the queues whose models may be called; log for each other model once why not."""
        servable = set()
        left = set()
        for queue, asked in queues.items():
            refusal = credentials.refusal(asked.destination)
            if refusal is None:
                servable.add(queue)
            else:
                left.add((asked.model, refusal))
        for model, refusal in sorted(left - self._left):
            log.warning("model_left_to_others", model=model, reason=refusal)
        self._left = left
        return frozenset(servable)


def follow(
    consumer: Any, wanted: frozenset[str], held: frozenset[str], stopped: threading.Event
) -> None:
    """Listen to these queues and to no others of ours; called in the consumer's thread.

    Args:
        held: Names of queues whose runs are held; they are left with the messages in them.
        stopped: Set when the connection that the call was meant for is lost.
    """
    if stopped.is_set():
        return
    queues = consumer.app.amqp.queues
    served = {name for name in queues.consume_from if model_of(name) or name == AGGREGATION_QUEUE}
    for name in sorted(wanted - served):
        queue = run_queue(consumer.app, name)
        _declare(consumer, queue)
        queues.select_add(queue)
        try:
            consumer.task_consumer.add_queue(queue)
            consumer.task_consumer.consume()
        except Exception:
            queues.deselect(name)  # a queue that counts as served is not tried again
            raise
        log.info("queue_followed", queue=name)
    for name in sorted(served - wanted):
        # All verdicts are stored, but duplicate messages may be left, and would stay in Redis.
        if name in held or depth(consumer.task_consumer.channel, queues[name]) == 0:
            consumer.cancel_task_queue(name)
            del queues[name]


def _declare(consumer: Any, queue: Any) -> None:
    """Declare a queue on a channel of its own: a refusal of RabbitMQ closes the channel."""
    if not consumer.app.conf.broker_url.startswith("amqp"):
        return
    try:
        with consumer.connection.channel() as channel:
            queue(channel).declare()
    except consumer.connection.channel_errors as error:
        raise RefusedQueueError(queue.name) from error

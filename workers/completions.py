"""Completion of runs: closes finished models, has ended runs aggregated."""

import threading
from itertools import count
from typing import Any

from celery import bootsteps
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from aegish_dist.broker.messages import IDLE_QUEUE
from aegish_dist.db.engine import WORKER_REPLY_TIMEOUT_S, open_engine, transaction
from aegish_dist.db.missing import FinishedModels
from aegish_dist.errors import QueueError, StoreUnusableError
from aegish_dist.logs import get_logger
from aegish_dist.pipeline.asked_aggregations import enqueue_due
from aegish_dist.pipeline.evaluate import Evaluator

log = get_logger(__name__)

POLL_S = 1.0
"""Seconds between two looks; each is a query of one index of unfinished aggregations."""
POLLS_PER_CLEAN_UP = 30
"""Polls between looks at all open models; in between only those that this worker has just become
quiet on."""
RETRY_AFTER_BUG_S = 10.0


class Completions(bootsteps.StartStopStep):
    """Notices in a thread of its own that runs are complete, and enqueues their aggregations.

    The worker that stores the last verdict of a model has nothing more of it in flight: models on
    which this worker has become quiet are looked at within a second. All others are looked at now
    and then, for workers that were killed.
    """

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        self._stopped = threading.Event()
        self._watched: set[tuple[str, str]] = set()

    def start(self, consumer: Any) -> None:
        """Start the thread."""
        if IDLE_QUEUE not in consumer.app.amqp.queues.consume_from:
            return
        self._stopped = threading.Event()
        threading.Thread(
            target=self._watch,
            args=(consumer, self._stopped),
            name="aegish-completions",
            daemon=True,
        ).start()

    def stop(self, consumer: Any) -> None:
        """Stop the thread."""
        self._stopped.set()

    def _watch(self, consumer: Any, stopped: threading.Event) -> None:
        engine = open_engine(
            consumer.app.conf.aegish_database_url,
            pool_size=1,
            reply_timeout_s=WORKER_REPLY_TIMEOUT_S,
        )
        finished = FinishedModels()
        for poll in count():
            pause_s = POLL_S
            try:
                self._close(engine, finished, consumer.pool.evaluator, poll)
                enqueue_due(engine, consumer.app)
            except (SQLAlchemyError, StoreUnusableError, QueueError) as error:
                # Discovery says that the database is away.
                if isinstance(error, QueueError):
                    log.warning("aggregation_not_enqueued", problem=str(error))
            except Exception:
                pause_s = RETRY_AFTER_BUG_S
                log.exception("looking_for_complete_runs_failed", retry_in_s=pause_s)
            if stopped.wait(pause_s):
                break
        engine.dispose()

    def _close(
        self, engine: Engine, finished: FinishedModels, evaluator: Evaluator, poll: int
    ) -> None:
        quiet = self._quiet(evaluator)
        clean_up = poll % POLLS_PER_CLEAN_UP == 1  # not at first: work may wait
        if not (quiet or clean_up):
            return
        with transaction(engine) as session:
            looked = finished.close(session, None if clean_up else quiet)
        if looked:
            self._watched -= quiet

    def _quiet(self, evaluator: Evaluator) -> set[tuple[str, str]]:
        """Return the models of runs of which items were held since the last look, and none are."""
        while evaluator.begun:
            self._watched.add(evaluator.begun.pop())
        return {model for model in self._watched if model not in evaluator.in_flight}

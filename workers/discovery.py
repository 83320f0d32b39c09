"""Listening to the queues that have work, as runs open and finish."""

import os
import threading
from typing import Any

from celery import bootsteps
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from aegish_dist.db.engine import open_engine
from aegish_dist.db.runs import close_finished_models, open_queues
from aegish_dist.logs import get_logger
from aegish_dist.queue.messages import IDLE_QUEUE, model_queue

log = get_logger(__name__)

POLL_S = 1.0
POLLS_PER_CLEAN_UP = 30


class QueueDiscovery(bootsteps.StartStopStep):
    """Adds the queues of open runs to the consumer, unless `-Q` named queues."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **kwargs: Any) -> None:
        super().__init__(consumer, **kwargs)
        self._stopped = threading.Event()
        self._listening: set[str] = set()
        self._without_key: set[str] = set()

    def start(self, consumer: Any) -> None:
        """Begin to watch the store, in a thread of its own."""
        if IDLE_QUEUE not in consumer.app.amqp.queues.consume_from:
            return
        self._stopped = threading.Event()
        self._listening = set()
        threading.Thread(
            target=self._watch, args=(consumer, self._stopped), name="aegish-queues", daemon=True
        ).start()

    def stop(self, consumer: Any) -> None:
        """Stop watching."""
        self._stopped.set()

    def _watch(self, consumer: Any, stopped: threading.Event) -> None:
        engine = open_engine(consumer.app.conf.aegish_database_url, pool_size=1)
        polls = 0
        while not stopped.is_set():
            try:
                with Session(engine) as session, session.begin():
                    if polls % POLLS_PER_CLEAN_UP == 0:
                        close_finished_models(session)
                    self._offer(consumer, open_queues(session))
            except SQLAlchemyError:
                log.warning("database_unreachable", retry_in_s=POLL_S)
            polls += 1
            stopped.wait(POLL_S)
        engine.dispose()

    def _offer(self, consumer: Any, queues: dict[str, str | None]) -> None:
        for queue, key_variable in sorted(queues.items()):
            if key_variable and not os.environ.get(key_variable, "").strip():
                if queue not in self._without_key:
                    self._without_key.add(queue)
                    log.warning("queue_left_to_others", queue=queue, missing_key=key_variable)
            elif queue not in self._listening:
                self._listening.add(queue)
                consumer.call_soon(_listen, consumer, queue)


def _listen(consumer: Any, queue: str) -> None:
    consumer.app.amqp.queues.add(model_queue(queue))
    consumer.add_task_queue(queue)

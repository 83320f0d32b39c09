"""Aggregations beside calls: a thread that counts the verdicts of complete runs."""

from asyncio import Future, wrap_future
from typing import Any

from celery import bootsteps

from aegish_dist.broker.app import process_of
from aegish_dist.broker.messages import AGGREGATE
from aegish_dist.db.engine import open_engine
from workers.store import DaemonThread


class Aggregations(bootsteps.StartStopStep):
    """Makes one aggregation at a time in a thread of its own, because counting takes seconds."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        super().__init__(worker, **kwargs)
        self._thread: DaemonThread | None = None

    def start(self, worker: Any) -> None:
        """Take aggregations; messages of them come once the consumer has started."""
        thread = self._thread = DaemonThread("aegish-aggregate")
        database_url = process_of(worker.app).database_url

        def aggregate(key: int) -> "Future[bool]":
            return wrap_future(thread.submit(make_aggregation, database_url, key))

        worker.pool.performers[AGGREGATE] = aggregate

    def stop(self, worker: Any) -> None:
        """Begin no further aggregation; one that this leaves unfinished rolls back."""
        if self._thread is not None:
            self._thread.shutdown()

    terminate = stop


def make_aggregation(database_url: str, key: int) -> bool:
    """Make an aggregation; return whether it is finished, or another worker is making it.

    Its snapshots are committed then. A `StoreAwayError` leaves it unfinished.
    """
    # Most workers never aggregate, and the statistics take memory and time to load.
    from aegish_dist.pipeline.aggregation_jobs import carry_out  # noqa: PLC0415

    # A connection of its own, closed again: a run is complete once in hours.
    engine = open_engine(database_url)
    try:
        return carry_out(engine, key)
    finally:
        engine.dispose()

"""Aggregating beside calls: in a thread of its own, one aggregation at a time."""

from asyncio import wrap_future

from aegish_dist.db.engine import open_engine
from aegish_dist.pipeline.aggregation_jobs import carry_out
from workers.store import DaemonThread


class Aggregator:
    """Makes the aggregations that messages name; counting takes seconds, and blocks no call."""

    def __init__(self, database_url: str) -> None:
        """Start the thread; nothing is connected until the first aggregation."""
        self._url = database_url
        self._thread = DaemonThread("aegish-aggregate")

    async def aggregate(self, key: int) -> bool:
        """Make an aggregation; its snapshots are committed when this returns.

        Returns:
            Whether it is finished; if not, another worker is making it.

        Raises:
            StoreAwayError: The database was away; the aggregation is not finished.
        """
        return await wrap_future(self._thread.submit(self._carry_out, key))

    def close(self) -> None:
        """End the thread; what it counts is rolled back, and counted again by another worker."""
        self._thread.shutdown()

    def _carry_out(self, key: int) -> bool:
        # Connections of its own, closed again: a run is complete once in hours, and large ones are
        # counted over several connections at once.
        engine = open_engine(self._url)
        try:
            return carry_out(engine, key)
        finally:
            engine.dispose()

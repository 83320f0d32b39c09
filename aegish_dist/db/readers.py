"""Several sessions that see the same moment: reading that one backend would take too long for."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

from sqlalchemy import text
from sqlalchemy.orm import Session
from sqlalchemy.pool import QueuePool

from aegish_dist.db.engine import transaction
from aegish_dist.parallel import in_order

READERS = 4
AHEAD = 2
"""Results per reader that may wait to be used: exported parts are megabytes."""

_SETTINGS = text(
    """
    SELECT set_config('jit', 'off', true), set_config('max_parallel_workers_per_gather', '0', true),
           set_config('work_mem', '64MB', true), set_config('enable_hashjoin', 'off', true),
           set_config('plan_cache_mode', 'force_custom_plan', true)
    """
)
"""Sorts of a million numbers fit into the memory. Verdicts and samples both come in the order of
their keys, so merging them takes half the time of hashing a million samples. Edges that a million
numbers are compared with are constants of the plan."""

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class Readers:
    """Runs queries side by side, each in a session that sees exactly what the first one sees."""

    def __init__(self, session: Session, *, side_by_side: bool) -> None:
        """Prepare; nothing is connected yet.

        Args:
            session: Whose view is shared; what it wrote itself, only it sees.
            side_by_side: False for little work, which then happens in that session.
        """
        self._session = session
        self._engine = session.get_bind().engine
        self._side_by_side = side_by_side

    def __enter__(self) -> Self:
        """Fix the view."""
        self._threads = None
        if self._side_by_side:
            self._view = self._session.scalar(text("SELECT pg_export_snapshot()"))
            pool = self._engine.pool
            spare = pool.size() - 1 if isinstance(pool, QueuePool) else READERS
            self._threads = ThreadPoolExecutor(max(1, min(READERS, spare)))
        else:
            self._session.execute(_SETTINGS)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Wait for the queries under way, drop the others."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def map(
        self, query: Callable[[Session, Argument], Result], arguments: Iterable[Argument]
    ) -> Iterator[Result]:
        """Call a query with each argument; results come in that order, each as soon as it can."""
        if self._threads is None:
            return (query(self._session, argument) for argument in arguments)
        read = partial(self._read, query)
        return in_order(self._threads, read, arguments, ahead=AHEAD * READERS)

    def _read(self, query: Callable[[Session, Argument], Result], argument: Argument) -> Result:
        with transaction(self._engine, isolation_level="REPEATABLE READ") as session:
            session.execute(text(f"SET TRANSACTION SNAPSHOT '{self._view}'"))
            session.execute(_SETTINGS)
            return query(session, argument)

"""Asking the same about the verdicts of each model of a run, several models at once."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, TypeVar

from sqlalchemy import Row, select, text
from sqlalchemy.orm import Session
from sqlalchemy.pool import QueuePool

from aegish_dist.core.run import Run
from aegish_dist.db.engine import transaction
from aegish_dist.db.statements import CountingStatement, statement
from aegish_dist.db.tables import RunModelRow
from aegish_dist.parallel import in_order

SIDE_BY_SIDE_FROM = 200_000
"""Planned verdicts of a run from which several sessions are worth their connections."""

READERS = 4
AHEAD = 2
"""Results per reader that may wait to be used: exported parts are megabytes."""

Argument = TypeVar("Argument")
Result = TypeVar("Result")

_ANY_RETRY = statement("any_retry")
_EXPORT_VIEW = statement("export_view")
_SETTINGS = statement("settings_for_counting")


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
            self._view = self._session.scalar(_EXPORT_VIEW)
            pool = self._engine.pool
            spare = pool.size() - 1 if isinstance(pool, QueuePool) else READERS
            self._threads = ThreadPoolExecutor(max(1, min(READERS, spare)))
        else:
            self._session.execute(_SETTINGS)
        return self

    def __exit__(self, *exc: object) -> None:
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


@dataclass(frozen=True, slots=True)
class PerModel:
    """The models of a run as the store knows them."""

    run: Run
    keys: Mapping[str, int]
    retried: bool
    """Whether any item was asked again. Nearly no run has such, and pays nothing for it."""

    @classmethod
    def of(cls, session: Session, run: Run) -> "PerModel":
        """Look a run up."""
        rows = session.execute(
            select(RunModelRow.model, RunModelRow.id).where(RunModelRow.run_id == run.run_id)
        )
        retried = session.scalar(_ANY_RETRY, {"run": run.run_id})
        return cls(run, {row.model: row.id for row in rows}, bool(retried))

    def readers(self, session: Session) -> Readers:
        """Return what asks about several models at once where the run is worth it."""
        planned = self.run.planned_per_model * len(self.keys)
        return Readers(session, side_by_side=planned >= SIDE_BY_SIDE_FROM)

    def newest(
        self, session: Session, statement: CountingStatement, model: str, **values: object
    ) -> Sequence[Row[Any]]:
        """Ask about the verdicts that count: of each item the one of the newest generation."""
        chosen = statement.newest if self.retried else statement.every
        return session.execute(chosen, {"model": self.keys[model], **values}).all()

    def superseded(
        self, session: Session, statement: CountingStatement, model: str, **values: object
    ) -> Sequence[Row[Any]]:
        """Ask the same about all other verdicts.

        Returns:
            No row when no item was retried.
        """
        if not self.retried:
            return ()
        chosen = statement.superseded
        return session.execute(chosen, {"model": self.keys[model], **values}).all()

"""Asking the same about the verdicts of each model of a run, one model at a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from aegish_dist.core.run import Run
from aegish_dist.db.statements import CountingStatement, statement
from aegish_dist.db.tables import RunModelRow

_ANY_RETRY = statement("any_retry")
_SETTINGS = statement("settings_for_counting")


def prepare_counting(session: Session) -> None:
    """Plan the statements of this transaction for counting millions of verdicts."""
    session.execute(_SETTINGS)


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

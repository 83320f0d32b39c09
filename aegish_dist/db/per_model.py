"""Asking the same about the verdicts of each model of a run, several models at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from aegish_dist.core.run import Run
from aegish_dist.db.readers import Readers
from aegish_dist.db.tables import RunModelRow

SIDE_BY_SIDE_FROM = 200_000
"""Planned verdicts of a run from which several sessions are worth their connections."""

SUPERSEDED = """EXISTS (
    SELECT FROM verdicts AS later
    WHERE later.run_model_id = verdict.run_model_id AND later.sample_key = verdict.sample_key
      AND later.epoch = verdict.epoch AND later.generation > verdict.generation
      AND later.generation > 0)"""
"""The SQL condition that a retry took the place of `verdict`; its last line leads to the index of
retries."""

_ANY_RETRY = text(
    """
    SELECT EXISTS (
        SELECT FROM verdicts JOIN run_models AS model ON model.id = verdicts.run_model_id
        WHERE model.run_id = :run AND verdicts.generation > 0
    )
    """
)


@dataclass(frozen=True, slots=True)
class PerModel:
    """The models of a run as the store knows them."""

    run: Run
    keys: Mapping[str, int]
    """`run_models.id` by model."""
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
        self, session: Session, statement: str, model: str, **values: object
    ) -> Sequence[Any]:
        """Ask about the verdicts that count: of each item the one of the newest generation.

        Args:
            session: Where.
            statement: SQL in which `:model` is the model's key, and `{counts}` the condition that
                `verdict` counts.
            model: The model.
            **values: What else is bound.
        """
        condition = f"NOT {SUPERSEDED}" if self.retried else "TRUE"
        return self._ask(session, statement, model, condition, **values)

    def superseded(self, session: Session, statement: str, model: str) -> Sequence[Any]:
        """Ask the same about all other verdicts; only to be asked where there are retries."""
        return self._ask(session, statement, model, SUPERSEDED)

    def _ask(
        self, session: Session, statement: str, model: str, condition: str, **values: object
    ) -> Sequence[Any]:
        query = text(statement.replace("{counts}", condition))
        return session.execute(query, {"model": self.keys[model], **values}).all()

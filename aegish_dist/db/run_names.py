"""Names of runs, and the run that a user's word stands for."""

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from aegish_dist.db.datasets import one_at_a_time
from aegish_dist.db.tables import RunRow
from aegish_dist.errors import ConfigError, StoreError

LATEST = "latest"
"""Stands for the id of the newest run."""


def resolve_run_id(session: Session, text: str) -> str:
    """Return the run id that `latest`, a full id, a name or a unique prefix of an id stands for.

    They are tried in this order; a name counts only as a whole.
    """
    if text == LATEST:
        newest = session.scalar(select(RunRow.id).order_by(RunRow.created_at.desc()).limit(1))
        if newest is None:
            raise StoreError("there is no run yet: start one with `aegish-dist submit`")
        return newest
    for meaning in (
        RunRow.id == text,
        RunRow.name == text,
        RunRow.id.startswith(text, autoescape=True),
    ):
        found = session.scalars(select(RunRow.id).where(meaning).order_by(RunRow.id).limit(4)).all()
        if len(found) > 1 and text:
            named = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
            raise StoreError(f"run '{text}' is ambiguous: it could be {named}")
        if found and text:
            return found[0]
    raise StoreError(f"no run '{text}': `aegish-dist runs` lists them")


def require_free_name(session: Session, name: str, run_id: str | None = None) -> None:
    """Refuse a name that stands for another run already.

    Args:
        session: Transaction of the caller. It waits for others that give names, until they end.
        name: The name; an empty one is no name.
        run_id: The run that it is for, if that is stored.

    Raises:
        ConfigError: Another run has that name, or it is the id of a run.
    """
    if not name:
        return
    one_at_a_time(session)
    taken = (RunRow.name == name) | (RunRow.id == name)
    holder = session.scalar(select(RunRow.id).where(taken, RunRow.id != (run_id or "")).limit(1))
    if holder is not None:
        raise ConfigError(f"run {holder} has the name '{name}' already: choose another one")


def rename_run(session: Session, run_id: str, name: str) -> None:
    """Give a run another name.

    Args:
        name: The new name; empty to have none.
    """
    require_free_name(session, name, run_id)
    session.execute(update(RunRow).where(RunRow.id == run_id).values(name=name))

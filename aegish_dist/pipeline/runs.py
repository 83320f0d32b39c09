"""Finding and listing runs."""

from sqlalchemy import Engine

from aegish_dist.core.run import Run, RunSummary
from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import list_runs, load_run, resolve_run_id
from aegish_dist.errors import StoreError


def find_run(engine: Engine, text: str) -> str:
    """Return the run id that a full id, a unique prefix or `latest` names.

    Raises:
        StoreError: It names none, or several.
    """
    with transaction(engine) as session:
        return resolve_run_id(session, text)


def recent_runs(engine: Engine, limit: int) -> list[RunSummary]:
    """Return at most so many runs, newest first."""
    with transaction(engine) as session:
        return list_runs(session, limit)


def load_submitted_run(engine: Engine, run_id: str) -> Run:
    """Return a run whose models can be asked.

    Args:
        engine: The store.
        run_id: A full run id.

    Raises:
        StoreError: The run was imported: there is no prompt to ask with.
    """
    with transaction(engine) as session:
        run = load_run(session, run_id)
    if run.prompt is None:
        raise StoreError(f"run {run_id} was imported: its models cannot be asked from here")
    return run

"""From what a user types after `--run-id` to the id of a run."""

from sqlalchemy import Engine

from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import resolve_run_id


def find_run(engine: Engine, text: str) -> str:
    """Return the run id that a full id, a unique prefix or `latest` names.

    Raises:
        StoreError: It names none, or several.
    """
    with transaction(engine) as session:
        return resolve_run_id(session, text)

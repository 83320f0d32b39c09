"""Which of an item's verdicts counts: the one of the newest generation."""

from sqlalchemy import text
from sqlalchemy.orm import Session

_ANY_RETRY = text(
    """
    SELECT EXISTS (
        SELECT FROM verdicts JOIN run_models AS model ON model.id = verdicts.run_model_id
        WHERE model.run_id = :run AND verdicts.generation > 0
    )
    """
)

_NEWEST = """NOT EXISTS (
    SELECT FROM verdicts AS later
    WHERE later.run_model_id = verdict.run_model_id AND later.sample_key = verdict.sample_key
      AND later.epoch = verdict.epoch AND later.generation > verdict.generation)"""


def newest_verdict(session: Session, run_id: str) -> str:
    """Return the SQL condition on `verdict` that keeps the verdict of each item that counts.

    Runs without retries, nearly all, pay nothing for it.
    """
    return _NEWEST if session.scalar(_ANY_RETRY, {"run": run_id}) else "TRUE"

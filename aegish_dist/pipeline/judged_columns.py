"""Columns of exports that say whether a verdict is correct: one for each opinion."""

import re
from collections.abc import Sequence

from sqlalchemy.orm import Session

from aegish_dist.core.opinion import Opinion
from aegish_dist.core.run import Run
from aegish_dist.db.judgements import Judgements
from aegish_dist.errors import ConfigError
from aegish_dist.pipeline.opinions import overlay_of

PREFIX = "correct_"
MAX_COLUMN_CHARS = 63


def judgements_of(session: Session, run: Run, opinions: Sequence[Opinion]) -> Judgements:
    """Return the columns of some opinions, in their order.

    Args:
        run: The run; the overlay of the opinions has to fit it.

    Raises:
        OpinionError: The overlay does not fit the datasets of the run.
        ConfigError: Two opinions have rule sets of the same name.
    """
    if not opinions:
        return Judgements()
    rules = {_column(opinion.rule.name): opinion.rule for opinion in opinions}
    if len(rules) < len(opinions):
        raise ConfigError("--correct names two rule sets whose columns would have the same name")
    return Judgements(rules, overlay_of(session, run, opinions[0]).values)


def _column(rule: str) -> str:
    """Return a plain name: the database cuts longer ones, and scripts shall need no quotes."""
    plain = re.sub(r"[^A-Za-z0-9.-]", "_", rule)[: MAX_COLUMN_CHARS - len(PREFIX)]
    return PREFIX + plain

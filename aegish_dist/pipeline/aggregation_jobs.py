"""Aggregating a run that is complete, as its row in `aggregations` asks for it."""

from sqlalchemy import Engine

from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.text import printable
from aegish_dist.db.engine import ONE_VIEW, in_transaction, transaction
from aegish_dist.db.missing import claim, finish, is_unfinished
from aegish_dist.errors import AegishError, StoreAwayError
from aegish_dist.logs import get_logger
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.scoring import rule_named
from aegish_dist.pipeline.aggregate import aggregate

log = get_logger(__name__)


def carry_out(engine: Engine, key: int) -> bool:
    """Make an aggregation, unless it is made elsewhere; return whether it is finished.

    Its snapshots and the fact that it is finished are one transaction. A StoreAwayError leaves it
    unfinished. What fails for another reason would fail again: it is finished with its problem.
    """
    try:
        with transaction(engine, isolation_level=ONE_VIEW) as session:
            asked = claim(session, key)
            if asked is None:
                return not is_unfinished(session, key)
            run_id, scoring = asked
            made = aggregate(engine, run_id, [Opinion(rule_named(scoring))], within=session)
            finish(session, key, [snapshot.snapshot_id for snapshot in made])
    except StoreAwayError:
        raise
    except AegishError as error:
        problem = printable(mask_key_shapes(str(error)))
        log.error("aggregation_failed", aggregation=key, problem=problem)
    except Exception as error:
        problem = f"a bug ended it ({type(error).__name__}): the log of the worker tells more"
        log.exception("aggregation_failed", aggregation=key)
    else:
        return True
    in_transaction(engine, finish, key, (), problem)
    return True

"""Aggregating runs that are complete: enqueue it for workers, do it, wait for it."""

import math
import time
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from aegish_dist.core.run import Run
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.text import printable
from aegish_dist.db.engine import in_transaction, transaction
from aegish_dist.db.missing import (
    LOST_AFTER_S,
    FinishedModels,
    claim,
    finish,
    is_unfinished,
    newest_aggregation,
    take_due,
    unfinished,
)
from aegish_dist.errors import AegishError, StoreAwayError
from aegish_dist.logs import get_logger
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.scoring import rule_named
from aegish_dist.pipeline.aggregate import ONE_VIEW, aggregate
from aegish_dist.pipeline.status import patiently

if TYPE_CHECKING:
    from celery import Celery

log = get_logger(__name__)

POLL_S = 0.25
PATIENCE_S = 60.0
"""Seconds to wait for a snapshot; counting two million verdicts takes a tenth of that."""
CLOSING_S = 10.0  # seconds to wait while another process looks for finished models


def enqueue_due(engine: Engine, app: "Celery", *, lost_too: bool) -> None:
    """Enqueue the aggregations that were never enqueued.

    After a QueueError, as the broker cannot be reached, a call with `lost_too` repeats it a minute
    later.

    Args:
        lost_too: Whether to enqueue those again whose messages were lost. A worker that takes none
            leaves that to those that do: without any, each minute would add a message.
    """
    from aegish_dist.broker.client import publish_aggregations  # noqa: PLC0415

    lost_after_s = LOST_AFTER_S if lost_too else None
    if due := in_transaction(engine, take_due, lost_after_s):
        publish_aggregations(app, due)


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


def aggregate_here(engine: Engine, run: Run) -> None:
    """Aggregate a run that was worked on in this process, if it is complete."""
    models = {(run.run_id, spec.id) for spec in run.models}
    closing, until = FinishedModels(search_s=math.inf), time.monotonic() + CLOSING_S
    while time.monotonic() < until:
        if in_transaction(engine, closing.close, models):
            break
        time.sleep(POLL_S)
    _carry_out_unfinished(engine, run.run_id)


def _carry_out_unfinished(engine: Engine, run_id: str) -> None:
    for key in in_transaction(engine, unfinished, run_id):
        carry_out(engine, key)


def wait_for_snapshot(engine: Engine, run_id: str) -> None:
    """Wait for up to a minute until a worker has aggregated a complete run; else do it here.

    The role of workers may not aggregate, and there may be no aggregator.
    """

    def made() -> bool:
        found = in_transaction(engine, newest_aggregation, run_id)
        return found is not None and found.finished

    until = time.monotonic() + PATIENCE_S
    while not patiently(made):
        if time.monotonic() > until:
            patiently(lambda: _carry_out_unfinished(engine, run_id))
            return
        time.sleep(POLL_S)

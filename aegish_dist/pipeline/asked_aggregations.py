"""Aggregations that are asked for: enqueue them for workers, make them, wait for them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from aegish_dist.core.opinion import Opinion
from aegish_dist.core.printable import printable
from aegish_dist.core.run import Run
from aegish_dist.core.scoring import RULES, rule_named
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.db.aggregations import (
    Aggregation,
    aggregation,
    claim,
    finish,
    is_unfinished,
    newest_aggregation,
    request_aggregation,
    request_of_decided,
    take_due,
    unfinished,
)
from aegish_dist.db.engine import transaction
from aegish_dist.db.missing import FinishedModels
from aegish_dist.errors import AegishError, ConfigError, StoreAwayError
from aegish_dist.logs import get_logger
from aegish_dist.pipeline.aggregate import ONE_VIEW, aggregate
from aegish_dist.pipeline.opinions import ALL
from aegish_dist.pipeline.watch import patiently

if TYPE_CHECKING:
    from celery import Celery

    from aegish_dist.pipeline.workspace import Workspace

log = get_logger(__name__)

POLL_S = 0.25
PATIENCE_S = 60.0
"""Seconds to wait for a snapshot; counting ten million verdicts takes a tenth of that."""
SETTLED_S = 3.0
"""Seconds after a decision in which workers report the calls that were in flight."""
CLOSING_S = 10.0
"""Seconds to wait while another process looks for finished models."""


def enqueue_due(engine: Engine, app: Celery) -> None:
    """Enqueue the aggregations that were never enqueued, or whose messages were lost.

    Raises:
        QueueError: The broker cannot be reached; the next call a minute later repeats it.
    """
    from aegish_dist.broker.producer import publish_aggregations  # noqa: PLC0415

    with transaction(engine) as session:
        request_of_decided(session, SETTLED_S)
        due = take_due(session)
    if due:
        publish_aggregations(app, due)


def ask_for_aggregation(workspace: Workspace, run_id: str, opinions: Sequence[Opinion]) -> int:
    """Have a worker aggregate a run; return the key of the aggregation.

    Raises:
        ConfigError: There is no broker, and so no worker, or an opinion comes from a file.
    """
    scoring = _name_of(opinions)
    if workspace.settings.embedded_broker:
        raise ConfigError(
            "--enqueue is for workers, which need AEGISH_DIST_BROKER_URL: without it,"
            f" `aegish-dist aggregate --run-id {run_id}` does the work itself"
        )
    from aegish_dist.broker.connection import check_broker  # noqa: PLC0415

    check_broker(workspace.app)
    with transaction(workspace.engine) as session:
        key = request_aggregation(session, run_id, scoring)
    enqueue_due(workspace.engine, workspace.app)
    return key


def _name_of(opinions: Sequence[Opinion]) -> str:
    """Return what workers know opinions by."""
    named = [Opinion(rule) for rule in RULES.values()]
    if not all(each in named for each in opinions):
        raise ConfigError(
            "--enqueue takes rule sets by their names, as workers have none of your files:"
            " leave it out, and `aggregate` applies them itself"
        )
    return ALL if len(opinions) > 1 else opinions[0].rule.name


def carry_out(engine: Engine, key: int) -> bool:
    """Make an aggregation, unless it is finished or being made elsewhere.

    Its snapshots and the fact that it is finished are one transaction. One that fails for another
    reason than the database's absence would fail again: it is finished with its problem.

    Returns:
        Whether it is finished; if not, another process is making it.

    Raises:
        StoreAwayError: The database was away; the aggregation is not finished.
    """
    try:
        with transaction(engine, isolation_level=ONE_VIEW) as session:
            asked = claim(session, key)
            if asked is None:
                return not is_unfinished(session, key)
            made = aggregate(engine, asked.run_id, _opinions(asked.scoring), within=session)
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
    with transaction(engine) as session:
        finish(session, key, (), problem)
    return True


def _opinions(scoring: str) -> list[Opinion]:
    """Return the opinions of a name. It comes from the store: no file is read by it."""
    rules = RULES.values() if scoring == ALL else [rule_named(scoring)]
    return [Opinion(rule) for rule in rules]


def aggregate_here(engine: Engine, run: Run) -> None:
    """Aggregate a run that was worked on in this process, if it is complete."""
    models = {(run.run_id, spec.id) for spec in run.models}
    closing, until = FinishedModels(search_s=math.inf), time.monotonic() + CLOSING_S
    while time.monotonic() < until:
        with transaction(engine) as session:
            if closing.close(session, models):
                break
        time.sleep(POLL_S)
    with transaction(engine) as session:
        request_of_decided(session, 0.0)
        keys = unfinished(session, run.run_id)
    for key in keys:
        carry_out(engine, key)


def wait_for_aggregation(engine: Engine, key: int) -> Aggregation:
    """Wait for up to a minute until workers have made an aggregation, and return it."""

    def look() -> Aggregation:
        with transaction(engine) as session:
            return aggregation(session, key)

    found = _wait(look)
    return found if found is not None else look()


def wait_for_snapshot(engine: Engine, run_id: str) -> None:
    """Wait for up to a minute until workers have aggregated a complete run."""

    def look() -> Aggregation | None:
        with transaction(engine) as session:
            return newest_aggregation(session, run_id)

    _wait(look)


def _wait(look: Callable[[], Aggregation | None]) -> Aggregation | None:
    until = time.monotonic() + PATIENCE_S
    while True:
        found = patiently(look)
        if (found is not None and found.finished) or time.monotonic() > until:
            return found
        time.sleep(POLL_S)

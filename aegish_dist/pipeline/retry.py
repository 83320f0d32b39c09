"""Retrying: ask again what ended in some outcomes.

Earlier verdicts stay; of each item the newest one counts. First the retry is committed, then its
items are enqueued: after a crash in between, `resume` enqueues what is missing of it.

Celery takes 0.1 s to import: what needs it does so itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from aegish_dist.core.run import Run
from aegish_dist.core.status import RunStatus
from aegish_dist.core.verdict import Outcome
from aegish_dist.db.engine import transaction
from aegish_dist.db.missing import open_models
from aegish_dist.db.retries import Retry, save_retry
from aegish_dist.errors import ConfigError, StoreError
from aegish_dist.pipeline.observer import SILENT, Observer
from aegish_dist.pipeline.run_here import finish
from aegish_dist.pipeline.runs import load_submitted_run, require_not_held
from aegish_dist.pipeline.status import run_status
from aegish_dist.pipeline.submit import enqueue_missing, probe_parked, resumable

if TYPE_CHECKING:
    from aegish_dist.pipeline.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Retried:
    """A run some of whose items are asked again."""

    retry: Retry | None
    """None when there was nothing to ask again."""
    status: RunStatus
    """After the wait for the answers, else after enqueueing."""
    waited: bool

    @property
    def items(self) -> int:
        """Items that are asked again."""
        return 0 if self.retry is None else self.retry.items


def retry_run(
    workspace: Workspace,
    run_id: str,
    outcomes: Collection[Outcome],
    models: Sequence[str] = (),
    *,
    wait: bool = False,
    observer: Observer = SILENT,
) -> Retried:
    """Ask again what ended in some outcomes; without a broker, work on it here to its end.

    Args:
        outcomes: Items whose newest verdict has one of these outcomes are planned.
        models: Models of the run to retry; all when empty.

    Raises:
        StoreError: The run was imported or is held, does not ask one of the models, or the database
            cannot be reached.
    """
    run = load_submitted_run(workspace.engine, run_id)
    require_not_held(run)
    embedded = workspace.settings.embedded_broker
    if embedded:
        planned = plan_retry(workspace.engine, run, outcomes, models)
    else:
        with observer.enqueueing() as published:
            planned = _enqueue(workspace, run, outcomes, models, published)
    observer.asked_again(run_id, planned.items if planned else 0)
    if embedded or wait:
        return Retried(planned, finish(workspace, run, observer), waited=True)
    return Retried(planned, run_status(workspace.engine, run_id), waited=False)


def outcomes_named(names: Sequence[str]) -> frozenset[Outcome]:
    """Return the outcomes of these names, in any letter case.

    Raises:
        ConfigError: A name is none of an outcome, or there is none.
    """
    known = {outcome.value: outcome for outcome in Outcome}
    for name in names:
        if name.upper() not in known:
            raise ConfigError(f"'{name}' is no outcome: there are {', '.join(known)}")
    if not names:
        raise ConfigError(f"--outcome names none: there are {', '.join(known)}")
    return frozenset(known[name.upper()] for name in names)


def plan_retry(
    engine: Engine, run: Run, outcomes: Collection[Outcome], models: Sequence[str] = ()
) -> Retry | None:
    """Store a retry in one transaction; nothing is enqueued yet.

    Args:
        outcomes: Items whose newest verdict has one of these outcomes are planned.
        models: Models of the run to retry; all when empty.

    Returns:
        The retry; None when no verdict ended so, or all that did are planned again already.

    Raises:
        StoreError: The run does not ask one of the models.
    """
    asked = [spec.id for spec in run.models]
    for model in models:
        if model not in asked:
            raise StoreError(f"run {run.run_id} does not ask '{model}': it asks {', '.join(asked)}")
    with transaction(engine) as session:
        open_models(session, run.run_id)
        return save_retry(session, run.run_id, outcomes, models or asked)


def _enqueue(
    workspace: Workspace,
    run: Run,
    outcomes: Collection[Outcome],
    models: Sequence[str],
    on_progress: Callable[[int], None],
) -> Retry | None:
    """Plan a retry and enqueue its items; while the broker is away nothing is planned."""
    from aegish_dist.broker.connection import check_broker  # noqa: PLC0415

    check_broker(workspace.app)
    planned = plan_retry(workspace.engine, run, outcomes, models)
    if planned is None:
        return None
    with resumable("the retry", run.run_id):
        enqueue_missing(
            workspace.engine,
            workspace.app,
            run.run_id,
            on_progress,
            generation=planned.generation,
        )
    probe_parked(run, workspace.settings.shared_limiter_url)
    return planned

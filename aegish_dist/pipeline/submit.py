"""Submitting a run: store what is asked of whom, then enqueue one item per command and model.

Celery takes 0.1 s to import, so what publishes imports it: a dry run does without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from aegish_dist import __version__
from aegish_dist.broker.messages import queue_names
from aegish_dist.core.run import Run, new_run_id
from aegish_dist.db.datasets import save_dataset
from aegish_dist.db.engine import transaction
from aegish_dist.db.missing import Extent, missing_items, open_models
from aegish_dist.db.run_names import require_free_name
from aegish_dist.db.runs import save_run
from aegish_dist.errors import QueueError, StoreError
from aegish_dist.pipeline.datasets import describe
from aegish_dist.pipeline.plan import Submission
from aegish_dist.telemetry.attributes import Attributes
from aegish_dist.telemetry.tracing import first_span, message_headers, note, span

if TYPE_CHECKING:
    from celery import Celery


def create_run(engine: Engine, submission: Submission) -> Run:
    """Store a run in one transaction; nothing is enqueued yet.

    Raises:
        ConfigError: Its name was given to another run meanwhile.
    """
    now = datetime.now(UTC)
    run = Run(
        run_id=new_run_id(now),
        created_at=now,
        name=submission.name,
        origin="submit",
        package_version=__version__,
        prompt=submission.prompt,
        parameters=submission.parameters,
        epochs=submission.epochs,
        datasets=tuple(map(describe, submission.datasets)),
        models=submission.models,
    )
    with first_span(run.run_id, _facts(run)), transaction(engine) as session:
        require_free_name(session, run.name)
        ids = [save_dataset(session, d, selectable=False) for d in submission.datasets]
        save_run(
            session,
            run,
            ids,
            queue_names(run),
            batch_after_s=submission.batch_after_s,
        )
    return run


def _facts(run: Run) -> Attributes:
    return {
        "aegish_dist.models": [spec.id for spec in run.models],
        "aegish_dist.datasets": [dataset.name for dataset in run.datasets],
        "aegish_dist.epochs": run.epochs,
    }


def submit(
    engine: Engine,
    app: Celery,
    submission: Submission,
    on_progress: Callable[[int], None] = lambda _: None,
) -> Run:
    """Store a run and enqueue its items.

    Raises:
        QueueError: The broker cannot be reached; before that nothing is stored.
    """
    from aegish_dist.broker.connection import check_broker  # noqa: PLC0415

    check_broker(app)
    run = create_run(engine, submission)
    with resumable(f"run {run.run_id}", run.run_id):
        enqueue_missing(engine, app, run.run_id, on_progress)
    return run


@contextmanager
def resumable(stored: str, run_id: str) -> Iterator[None]:
    """Have an error say that something is stored all the same, and what enqueues the rest."""
    try:
        yield
    except (QueueError, StoreError) as error:
        raise type(error)(
            f"{error}; {stored} is stored, `aegish-dist resume --run-id {run_id}` enqueues the rest"
        ) from error


def enqueue_missing(
    engine: Engine,
    app: Celery,
    run_id: str,
    on_progress: Callable[[int], None] = lambda _: None,
    *,
    generation: int | None = None,
    beyond: Extent | None = None,
) -> int:
    """Enqueue whatever of a run has no verdict; return how many items that is.

    Enqueueing an item that is still queued is harmless: it is called once, or, if two workers hold
    it in the same moment, stored once.

    Args:
        generation: Only the items that this retry planned; None for all.
        beyond: Only first tries that the run did not plan while it asked no more than this.
    """
    from aegish_dist.broker.producer import publish  # noqa: PLC0415

    with transaction(engine) as session:
        open_models(session, run_id)
    with (
        transaction(engine) as session,
        closing(missing_items(session, run_id, generation, beyond)) as items,
        span("publish", run_id),
    ):
        published = publish(app, items, on_progress, message_headers())
        note({"messaging.batch.message_count": published})
        return published


def probe_parked(run: Run, limiter_url: str | None) -> None:
    """Have parked models of a run called at once instead of at their next probe."""
    from aegish_dist.ratelimit.shared_limiter import probe_now  # noqa: PLC0415

    if limiter_url is not None:
        probe_now(limiter_url, [spec.id for spec in run.models])

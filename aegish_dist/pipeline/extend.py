"""Extending a run: ask more models, more repeats or more datasets, and enqueue only what is new.

What is added is stored in one transaction, then enqueued; after a crash in between, `resume`
enqueues it. Verdicts that are there stay, and nothing that is planned already is enqueued again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from aegish_dist.broker.messages import queue_name
from aegish_dist.core.status import RunStatus
from aegish_dist.db.datasets import save_dataset
from aegish_dist.db.engine import transaction
from aegish_dist.db.extensions import extent_of, save_extension
from aegish_dist.db.missing import Extent
from aegish_dist.db.runs import save_parameters
from aegish_dist.pipeline.extension import (
    Addition,
    Extension,
    extension_summary,
    plan_extension,
)
from aegish_dist.pipeline.observer import SILENT, Observer
from aegish_dist.pipeline.preflight import check_before_calls
from aegish_dist.pipeline.run_here import finish
from aegish_dist.pipeline.runs import load_submitted_run
from aegish_dist.pipeline.status import run_status
from aegish_dist.pipeline.submit import enqueue_missing, probe_parked, resumable

if TYPE_CHECKING:
    from aegish_dist.pipeline.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Extended:
    """A run that was to be extended."""

    extension: Extension
    stored: bool
    """Whether it was; a dry run stores nothing."""
    status: RunStatus
    """After the wait for the answers, else after enqueueing."""
    waited: bool


def extend_run(
    workspace: Workspace, run_id: str, addition: Addition, observer: Observer = SILENT
) -> Extended:
    """Ask more of a run; without a broker, work on it here to its end.

    Raises:
        AegishError: Nothing of it is new, something that is named is unknown, a model cannot be
            called or refuses the run, the run was imported or is held, or the database or the
            broker cannot be reached. A message that says so apart, nothing is stored.
    """
    extension = plan_extension(workspace, run_id, addition)
    check_before_calls(
        workspace,
        extension.checked_as(),
        extension.estimate,
        request=addition.request(extension.parameters),
        lines=extension_summary(extension, workspace.settings.concurrency),
        observer=observer,
    )
    if addition.dry_run:
        return Extended(extension, False, run_status(workspace.engine, run_id), waited=False)
    embedded = workspace.settings.embedded_broker
    if embedded:
        store_extension(workspace.engine, extension)
    else:
        with observer.enqueueing(extension.estimate.calls) as published:
            _enqueue(workspace, extension, published)
    if embedded or addition.wait:
        run = load_submitted_run(workspace.engine, run_id)
        return Extended(extension, True, finish(workspace, run, observer), waited=True)
    return Extended(extension, True, run_status(workspace.engine, run_id), waited=False)


def store_extension(engine: Engine, extension: Extension) -> Extent:
    """Store what is added in one transaction, and return what the run asked before."""
    run = extension.run
    with transaction(engine) as session:
        before = extent_of(session, run)
        save_parameters(session, run.run_id, extension.parameters)
        ids = [save_dataset(session, each, selectable=False) for each in extension.datasets]
        queues = [queue_name(spec.id, run.run_id) for spec in extension.models]
        save_extension(
            session,
            run.run_id,
            extension.models,
            queues,
            ids,
            epochs=extension.epochs,
            in_batches=bool(run.batched),
        )
    return before


def _enqueue(
    workspace: Workspace, extension: Extension, on_progress: Callable[[int], None]
) -> None:
    run_id = extension.run.run_id
    before = store_extension(workspace.engine, extension)
    with resumable("the extension", run_id):
        enqueue_missing(workspace.engine, workspace.app, run_id, on_progress, beyond=before)
    probe_parked(extension.run, workspace.settings.shared_limiter_url)

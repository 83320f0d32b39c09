"""Starting a run: plan it, check that its models answer, store it, and have it worked on."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aegish_dist.core.run import Run
from aegish_dist.core.status import RunStatus, State
from aegish_dist.models import RunEstimate
from aegish_dist.pipeline.observer import SILENT, Observer
from aegish_dist.pipeline.plan import Request, Submission, plan_run, summary
from aegish_dist.pipeline.preflight import calls_a_provider, check_before_calls
from aegish_dist.pipeline.run_here import finish
from aegish_dist.pipeline.status import run_status
from aegish_dist.pipeline.submit import create_run, submit

if TYPE_CHECKING:
    from aegish_dist.pipeline.workspace import Workspace

REPORTED_WITHIN_S = 3.0
"""Seconds in which living workers report the models of a new run that they may not call."""
POLL_S = 0.25
"""Seconds between two looks at what they report."""


@dataclass(frozen=True, slots=True)
class Started:
    """A run that was planned, and unless only that was wanted, stored and enqueued."""

    submission: Submission
    estimate: RunEstimate
    run: Run | None
    """As stored; None of a dry run."""
    status: RunStatus | None
    """After the work; None when it was not waited for."""


def start_run(workspace: Workspace, request: Request, observer: Observer = SILENT) -> Started:
    """Start a run, and without a broker work on it here to its end.

    Raises:
        AegishError: Something that is named is unknown, a model cannot be called or refuses the
            run, or the database or the broker cannot be reached. A message that names a run says
            that it is stored; otherwise nothing is.
    """
    submission = plan_run(workspace, request)
    estimated = submission.estimate()
    lines = summary(submission, estimated, workspace.settings.concurrency)
    check_before_calls(
        workspace, submission, estimated, request=request, lines=lines, observer=observer
    )
    if request.dry_run:
        return Started(submission, estimated, None, None)
    run, status = _work(workspace, submission, observer, wait=request.wait)
    return Started(submission, estimated, run, status)


def _work(
    workspace: Workspace, submission: Submission, observer: Observer, *, wait: bool
) -> tuple[Run, RunStatus | None]:
    embedded = workspace.settings.embedded_broker
    if embedded:
        run = create_run(workspace.engine, submission)
    else:
        with observer.enqueueing(submission.tasks) as published:
            run = submit(workspace.engine, workspace.app, submission, published)
    return run, finish(workspace, run, observer) if embedded or wait else None


def first_reports(workspace: Workspace, started: Started) -> RunStatus | None:
    """Return the status of an enqueued run once living workers have said what they may not call.

    Returns:
        The status, after `REPORTED_WITHIN_S` seconds at most; None where no model of the run needs
        a key or a permission.
    """
    if started.run is None or not any(map(calls_a_provider, started.submission.models)):
        return None
    deadline = time.monotonic() + REPORTED_WITHIN_S
    while True:
        status = run_status(workspace.engine, started.run.run_id)
        waiting = [m for m in status.models if m.state is State.WAITING and m.reason is None]
        if not (waiting and status.workers) or time.monotonic() > deadline:
            return status
        time.sleep(POLL_S)

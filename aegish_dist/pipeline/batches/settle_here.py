"""Batches of a cancelled run where no worker runs elsewhere: cancelled by this process.

Celery takes 0.1 s to import: what needs it does so itself.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from aegish_dist.broker.messages import queue_names
from aegish_dist.core.run import Run
from aegish_dist.db.batches import batches_at_providers
from aegish_dist.db.engine import transaction

if TYPE_CHECKING:
    from celery import Celery

END_WITHIN_S = 30.0
"""Seconds to wait for providers; some take minutes to end a batch that was cancelled."""
POLL_S = 0.25


def at_providers(engine: Engine, run_id: str) -> int:
    """Return how many batches of a run are at providers."""
    with transaction(engine) as session:
        return batches_at_providers(session, run_id)


def end_batches_here(engine: Engine, app: Celery, run: Run) -> int:
    """Have a worker inside this process cancel the batches of a run, and store their answers.

    Returns:
        How many have not ended yet.
    """
    from aegish_dist.broker.embedded import EmbeddedWorker  # noqa: PLC0415

    deadline = time.monotonic() + END_WITHIN_S
    with EmbeddedWorker(app, queue_names(run)) as worker:
        while (number := at_providers(engine, run.run_id)) and time.monotonic() < deadline:
            if not worker.alive:
                break
            time.sleep(POLL_S)
    return number

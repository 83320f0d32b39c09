"""Batches beside calls: a thread with an event loop of its own."""

import asyncio
import os
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from celery import bootsteps

from aegish_dist.broker.app import process_of
from aegish_dist.broker.client import publish
from aegish_dist.broker.messages import is_pinned
from aegish_dist.core.batches import BatchPace
from aegish_dist.core.verdict import Item
from aegish_dist.db.engine import WORKER_REPLY_TIMEOUT_S, open_engine
from aegish_dist.logs import get_logger
from aegish_dist.models.credentials import CatalogCredentials
from aegish_dist.pipeline.batches.keeper import BatchKeeper
from aegish_dist.pipeline.batches.steps import BatchContext
from aegish_dist.providers.session import provider_session
from workers.lifecycle import new_worker_name
from workers.store import DaemonThread

log = get_logger(__name__)

# Seconds that a stopping worker gives requests under way; another worker goes on after a lease.
GRACE_S = 5.0
END_S = 0.5  # seconds that its thread may take to end after these
END_POLL_S = 0.05


class Batches(bootsteps.StartStopStep):
    """Keeps batches in a thread of a worker, whatever becomes of its connection to the broker."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        super().__init__(worker, **kwargs)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self._keeper: BatchKeeper
        self._begun = threading.Event()

    def start(self, worker: Any) -> None:
        """Start the thread, unless the worker calls no models."""
        if not process_of(worker.app).calls_models:
            return
        self._thread = threading.Thread(
            target=self._run, args=(worker,), name="aegish-batches", daemon=True
        )
        self._thread.start()

    def stop(self, worker: Any) -> None:
        """End the thread; a batch that is just being created has some seconds."""
        if self._thread is None or not self._begun.is_set():
            return
        try:
            self._loop.call_soon_threadsafe(self._stopping.set)
            until = time.monotonic() + GRACE_S
            # One that only waits for a silent database holds up the end of no worker.
            while self._thread.is_alive() and self._keeper.busy and time.monotonic() < until:
                self._thread.join(END_POLL_S)
            self._loop.call_soon_threadsafe(self._keeper.cancel)
        except RuntimeError:
            return  # its loop has ended
        self._thread.join(END_S)

    terminate = stop

    def _run(self, worker: Any) -> None:
        try:
            asyncio.run(self._serve(worker))
        except Exception:
            log.exception("batches_failed")

    async def _serve(self, worker: Any) -> None:
        process = process_of(worker.app)
        # A lost connection is found by the look that fails; the next one opens another.
        engine = open_engine(
            process.database_url,
            pool_size=1,
            reply_timeout_s=WORKER_REPLY_TIMEOUT_S,
            ping=False,
        )
        pins: frozenset[str] = getattr(worker, "pins", frozenset())

        with (
            ExitStack() as stack,
            DaemonThread("aegish-batch-store") as thread,
            DaemonThread("aegish-batch-broker") as broker,
        ):
            stack.callback(engine.dispose)

            async def publish_live(items: Sequence[Item]) -> None:
                await asyncio.wrap_future(broker.submit(publish, worker.app, items))

            pace = BatchPace(process.settings.batch_poll_s)
            context = BatchContext(
                engine, thread, publish_live, new_worker_name(), pace, worker.pool.work
            )
            async with provider_session(process.settings.private_folders) as providers:
                self._keeper = BatchKeeper(
                    context,
                    providers.batches,
                    CatalogCredentials(process.settings.catalog, os.environ),
                    lambda queue: not pins or is_pinned(queue, pins),
                )
                self._loop = asyncio.get_running_loop()
                self._stopping = asyncio.Event()
                self._begun.set()
                worker.pool.run_listeners.append(
                    lambda announced: self._loop.call_soon_threadsafe(
                        self._keeper.runs_changed, announced
                    )
                )
                await self._keeper.run(self._stopping)

"""The surroundings of a command: settings, store and queue, opened on demand.

Each part is imported where it is opened, so that a command pays for nothing else.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import click

from aegish_dist.logs import configure_logging
from aegish_dist.settings import EMBEDDED_BROKER_URL, Settings, load_settings

if TYPE_CHECKING:
    from celery import Celery
    from sqlalchemy import Engine

    from aegish_dist.models import Catalog, Credentials

PRICES = "list-prices.json"
"""The file in the cache folder that remembers list prices."""


class Workspace:
    """The store and the queue that the environment names, or the embedded ones."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or load_settings()
        configure_logging(self.settings.log_level or "WARNING", self.settings.log_format)

    @cached_property
    def database_url(self) -> str:
        """URL of the store; starts the embedded server when none is configured."""
        if self.settings.database_url is not None:
            return self.settings.database_url.get_secret_value()
        from aegish_dist.db.embedded import start_embedded  # noqa: PLC0415

        return start_embedded(self.settings.home)

    @cached_property
    def raw_engine(self) -> Engine:
        """The store, whatever its schema; disconnected when the command ends."""
        from aegish_dist.db.engine import open_engine  # noqa: PLC0415

        engine = open_engine(self.database_url)
        click.get_current_context().call_on_close(engine.dispose)
        return engine

    @cached_property
    def engine(self) -> Engine:
        """The store at this version's schema; the embedded one is migrated on the way."""
        from aegish_dist.db.schema import require_current, upgrade  # noqa: PLC0415

        if self.settings.embedded_database:
            upgrade(self.raw_engine)
        else:
            require_current(self.raw_engine)
        return self.raw_engine

    @cached_property
    def app(self) -> Celery:
        """The queue."""
        from aegish_dist.broker.app import create_app  # noqa: PLC0415

        url = self.settings.broker_url
        return create_app(
            EMBEDDED_BROKER_URL if url is None else url.get_secret_value(),
            database_url=self.database_url,
            limiter_url=self.settings.shared_limiter_url,
            concurrency=self.settings.concurrency,
            shutdown_grace_s=self.settings.shutdown_grace_s,
            queue_type=self.settings.queue_type,
            stock_transport=self.settings.stock_transport,
            catalog=self.settings.catalog,
            spool=self.settings.spool_folder,
        )

    @cached_property
    def catalog(self) -> Catalog:
        """The model catalog with the user's own laid over it."""
        from aegish_dist.models import Catalog  # noqa: PLC0415

        return Catalog.load(self.settings.catalog, self.settings.cache / PRICES)

    @cached_property
    def credentials(self) -> Credentials:
        """The keys of this environment, and where they may go."""
        from aegish_dist.models import Credentials  # noqa: PLC0415

        return Credentials.of(self.catalog, self.environ)

    @property
    def environ(self) -> dict[str, str]:
        """The environment, for keys and base URLs."""
        return dict(os.environ)


@contextmanager
def without_collector() -> Iterator[None]:
    """Search no rows for cycles: they have none, and it costs up to a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

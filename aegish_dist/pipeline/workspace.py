"""The surroundings of a use case: settings, store, queue and catalog.

Each part is imported where it is opened, so that a command pays for nothing else.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aegish_dist.core.secrets import SecretStr
from aegish_dist.pipeline.store import Store

if TYPE_CHECKING:
    from celery import Celery
    from sqlalchemy import Engine

    from aegish_dist.models.catalog import Catalog
    from aegish_dist.models.credentials import Credentials
    from aegish_dist.settings import Settings


class Workspace(Store):
    """The store, the queue and the catalog that the settings name, or the embedded ones."""

    @cached_property
    def app(self) -> Celery:
        return self._app_of(self.settings)

    @cached_property
    def own_app(self) -> Celery:
        """The application of a broker and a worker inside this process."""
        if self.settings.embedded_broker:
            return self.app
        return self._app_of(replace(self.settings, broker_url=None))

    def _app_of(self, settings: Settings) -> Celery:
        from aegish_dist.broker.app import create_app  # noqa: PLC0415

        # A worker inside this process serves no metrics.
        database_url = SecretStr(self.database_url)
        return create_app(replace(settings, database_url=database_url, metrics_port=None))

    @cached_property
    def catalog(self) -> Catalog:
        """The model catalog with the user's own laid over it."""
        from aegish_dist.models.catalog import LIST_PRICES, Catalog  # noqa: PLC0415

        return Catalog.load(self.settings.catalog, self.settings.cache / LIST_PRICES)

    @cached_property
    def credentials(self) -> Credentials:
        """The keys of this environment, and the addresses that each may be sent to."""
        from aegish_dist.models.credentials import Credentials  # noqa: PLC0415

        return Credentials(self.catalog, self.environ)


def worker_queues(models: str | None) -> list[str]:
    """Return the queues of a worker for comma-separated models; without, it aggregates alone."""
    from aegish_dist.broker.messages import AGGREGATION_QUEUE, pin_name  # noqa: PLC0415

    if not models:
        return [AGGREGATION_QUEUE]
    return [pin_name(model.strip()) for model in models.split(",")]


def upgrade_schema(engine: Engine) -> tuple[str | None, str | None]:
    """Bring the schema to this package's version; return the one before, None for an empty store.

    Where another migration holds the lock, there is a StoreError.
    """
    from aegish_dist.db.schema import current, upgrade  # noqa: PLC0415

    before = current(engine)
    upgrade(engine)
    return before, current(engine)


def schema_version(engine: Engine) -> str | None:
    from aegish_dist.db.schema import current  # noqa: PLC0415

    return current(engine)


def check_schema(engine: Engine) -> tuple[str, list[str]]:
    """Return the version that this package needs, and how the schema differs from its mappings."""
    from aegish_dist.db.schema import drift, head, require_current  # noqa: PLC0415

    require_current(engine)
    return head(), drift(engine)

"""The settings and the store of a use case that asks no model."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Self

from aegish_dist.settings import Settings
from aegish_dist.telemetry.tracing import finish_tracing, start_tracing

if TYPE_CHECKING:
    from sqlalchemy import Engine


class Store:
    """The store that the settings name, or the embedded one."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @cached_property
    def database_url(self) -> str:
        """URL of the store; starts the embedded server when none is configured."""
        if self.settings.database_url is not None:
            return self.settings.database_url.get_secret_value()
        from aegish_dist.db.embedded import embedded_server  # noqa: PLC0415

        return embedded_server(self.settings.home).url

    @cached_property
    def raw_engine(self) -> Engine:
        """The store, whatever its schema."""
        from aegish_dist.db.engine import open_engine  # noqa: PLC0415

        return open_engine(self.database_url)

    @cached_property
    def engine(self) -> Engine:
        """The store at this version's schema; the embedded one is migrated on the way."""
        from aegish_dist.db.schema import require_current, upgrade  # noqa: PLC0415

        if self.settings.embedded_database:
            upgrade(self.raw_engine)
        else:
            require_current(self.raw_engine)
        return self.raw_engine

    @property
    def environ(self) -> dict[str, str]:
        return dict(os.environ)

    def __enter__(self) -> Self:
        start_tracing(self.environ)
        return self

    def __exit__(self, *_: object) -> None:
        if "raw_engine" in vars(self):
            self.raw_engine.dispose()
        finish_tracing()

"""Alembic's environment: the connection comes from the caller, or from the settings."""

from alembic import context
from sqlalchemy import Connection, text

from aegish_dist.db import schema
from aegish_dist.db.engine import open_engine
from aegish_dist.db.schema import METADATA

STATEMENT_TIMEOUT = "15min"


def _migrate(connection: Connection) -> None:
    # A migration that cannot get its lock must fail, not stop every worker behind it.
    connection.execute(text(f"SET LOCAL lock_timeout = '{schema.LOCK_TIMEOUT_S}s'"))
    connection.execute(text(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT}'"))
    context.configure(connection=connection, target_metadata=METADATA, compare_type=True)
    with context.begin_transaction():
        context.run_migrations()


def _run() -> None:
    connection = context.config.attributes.get("connection")
    if connection is not None:
        _migrate(connection)
        return
    from aegish_dist.db.embedded import embedded_server  # noqa: PLC0415
    from aegish_dist.settings import load_settings  # noqa: PLC0415

    settings = load_settings()
    url = (
        settings.database_url.get_secret_value()
        if settings.database_url is not None
        else embedded_server(settings.home).url
    )
    with open_engine(url).begin() as own:
        _migrate(own)


_run()

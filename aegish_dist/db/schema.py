"""The schema's version: bringing it up, and refusing to work on another one."""

from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine

from aegish_dist.db.engine import connection_errors_in_one_line
from aegish_dist.db.tables import METADATA
from aegish_dist.errors import StoreError


def alembic_config(connection: Connection | None = None) -> Config:
    """Return Alembic's configuration for the packaged migrations."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["connection"] = connection
    return config


def head() -> str:
    """Return the version this package works with."""
    return ScriptDirectory.from_config(alembic_config()).get_current_head() or ""


def current(engine: Engine) -> str | None:
    """Return the version of the database, None when it has none yet."""
    with connection_errors_in_one_line(), engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def upgrade(engine: Engine) -> None:
    """Bring the database to this package's version, in one transaction."""
    with connection_errors_in_one_line(), engine.begin() as connection:
        command.upgrade(alembic_config(connection), "head")


def require_current(engine: Engine) -> None:
    """Refuse a database of another version.

    Raises:
        StoreError: It is not migrated, or newer than this package.
    """
    found, wanted = current(engine), head()
    if found != wanted:
        raise StoreError(
            f"the database schema is at {found or 'nothing'}, this version needs {wanted}: "
            "run `aegish-dist db upgrade`"
        )


def drift(engine: Engine) -> list[str]:
    """Return the differences between the database and the mappings; empty when there are none."""
    with connection_errors_in_one_line(), engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return [str(difference) for difference in compare_metadata(context, METADATA)]

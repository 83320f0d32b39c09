"""The schema's version: bringing it up, and refusing to work on another one.

Alembic is imported where a migration runs: a process that only compares versions, such as every
worker, saves 8 MB and 60 ms.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from psycopg.errors import LockNotAvailable
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import OperationalError

from aegish_dist.db.engine import connection_errors_in_one_line, statement
from aegish_dist.db.tables import METADATA, AdvisoryLock
from aegish_dist.errors import StoreError

if TYPE_CHECKING:
    from alembic.config import Config

MIGRATIONS = Path(__file__).parent / "migrations"
# Seconds; a session that waits for the lock of a table stops every worker behind it.
LOCK_TIMEOUT_S = 10


def alembic_config(connection: Connection | None = None) -> "Config":
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.attributes["connection"] = connection
    return config


def head() -> str:
    """Return the version this package works with: migrations are files named by their number."""
    return max(path.name.partition("_")[0] for path in MIGRATIONS.glob("versions/*_*.py"))


def current(engine: Engine) -> str | None:
    """Return the version of the database, None when it has none yet."""
    with connection_errors_in_one_line(), engine.connect() as connection:
        if connection.scalar(text("SELECT to_regclass('alembic_version')")) is None:
            return None
        version: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
        return version


def upgrade(engine: Engine) -> None:
    """Bring the database to this package's version, in one transaction.

    Raises:
        StoreError: Another session holds what the migration has to lock; names that session. Or the
            database is newer than this package.
    """
    found = current(engine)
    if found == head():
        return
    _require_not_newer(found)
    from alembic import command  # noqa: PLC0415

    with connection_errors_in_one_line(), _blocked_by(engine), engine.begin() as connection:
        connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'"))
        # Two at once would both find nothing and both create everything.
        connection.execute(statement("wait_for_lock"), {"key": AdvisoryLock.MIGRATING})
        command.upgrade(alembic_config(connection), "head")


@contextmanager
def _blocked_by(engine: Engine) -> Iterator[None]:
    """Name the sessions that a lock was not had from in time."""
    try:
        yield
    except OperationalError as error:
        if not isinstance(error.orig, LockNotAvailable):
            raise
        with engine.connect() as connection:
            in_the_way = statement("sessions_in_the_way")
            rows = connection.execute(in_the_way, {"key": AdvisoryLock.MIGRATING}).all()
        holders = [
            f"PID {row.pid}, {row.application_name or row.usename}"
            + (f" from {row.client_addr}" if row.client_addr else "")
            + (f", {row.state} since {row.xact_start:%H:%M:%S %Z}" if row.xact_start else "")
            for row in rows
        ]
        raise StoreError(
            f"the schema cannot be changed, another session has held it for {LOCK_TIMEOUT_S} s"
            f" ({'; '.join(holders) or 'it has just let go'}): try again when that is through, or"
            " end it with `SELECT pg_terminate_backend(PID)`"
        ) from error


def require_current(engine: Engine) -> None:
    """Refuse a database of another version.

    Raises:
        StoreError: It is not migrated, or newer than this package.
    """
    found, wanted = current(engine), head()
    _require_not_newer(found)
    if found != wanted:
        raise StoreError(
            f"the database schema is at {found or 'nothing'}, this version needs {wanted}: "
            "run `aegish-dist db upgrade`"
        )


def _require_not_newer(found: str | None) -> None:
    if found is not None and found > head():
        raise StoreError(
            f"the database schema is at {found}, this version knows only {head()}: a newer"
            " aegish-dist has upgraded it, or one from before the first release made it; use that"
            " one, or take its runs along by `verdicts export` there and `verdicts import` into a"
            " new database"
        )


def drift(engine: Engine) -> list[str]:
    """Return the differences between the database and the mappings; empty when there are none."""
    from alembic.autogenerate import compare_metadata  # noqa: PLC0415
    from alembic.migration import MigrationContext  # noqa: PLC0415

    with connection_errors_in_one_line(), engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return [str(difference) for difference in compare_metadata(context, METADATA)]

"""Connecting to PostgreSQL."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.errors import InsufficientPrivilege
from sqlalchemy import Engine, create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, OperationalError, ProgrammingError

from aegish_dist.errors import ConfigError, StoreError

CONNECT_TIMEOUT_S = 5


def open_engine(url: str, *, pool_size: int = 5) -> Engine:
    """Create an engine; nothing is connected yet.

    Args:
        url: `postgresql://...`; the psycopg driver is implied.
        pool_size: Connections kept open at most.

    Raises:
        ConfigError: The URL is not one of PostgreSQL.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise ConfigError(
            "AEGISH_DIST_DATABASE_URL is not a database URL: "
            "use postgresql://USER:PASSWORD@HOST:5432/DATABASE"
        ) from error
    if not parsed.drivername.startswith("postgres"):
        raise ConfigError(
            f"AEGISH_DIST_DATABASE_URL names '{parsed.drivername}', but only PostgreSQL is "
            "supported: use postgresql://USER:PASSWORD@HOST:5432/DATABASE"
        )
    return create_engine(
        parsed.set(drivername="postgresql+psycopg"),
        pool_pre_ping=True,
        pool_size=pool_size,
        max_overflow=0,
        connect_args={"connect_timeout": CONNECT_TIMEOUT_S, "application_name": "aegish-dist"},
    )


@contextmanager
def connection_errors_in_one_line() -> Iterator[None]:
    """Turn an unreachable or forbidden database into a `StoreError` that says what to do."""
    try:
        yield
    except (OperationalError, ProgrammingError, psycopg.OperationalError) as error:
        # What COPY raises comes without SQLAlchemy around it.
        cause = error if isinstance(error, psycopg.Error) else error.orig
        if isinstance(error, ProgrammingError) and not isinstance(cause, InsufficientPrivilege):
            raise
        what = " ".join(str(cause).split())[:200]
        raise StoreError(
            f"the database cannot be used ({what}): check AEGISH_DIST_DATABASE_URL and that the "
            "server is running; `aegish-dist doctor` tells more"
        ) from error

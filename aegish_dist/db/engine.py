"""Connecting to PostgreSQL, the one way into a transaction, and the named statements of `db/sql`.

Keepalives and `tcp_user_timeout` find a peer whose kernel no longer answers. A proxy, a load
balancer or a stopped server keeps answering them; only a time limit on the reply finds those.

`-- name: count_verdicts` begins a statement, `-- fragment: answered` a part that several statements
share; the comment after it says what it returns. `{answered}` stands for a fragment, and
`{time_of(queue)}` for one whose parameter is `queue`. Values are never part of the text: `:model`
is bound when the statement is executed.
"""

import json
import re
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from importlib.resources import files
from time import monotonic
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import psycopg
from msgspec import MsgspecError
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.conninfo import make_conninfo
from sqlalchemy import URL, CursorResult, Engine, TextClause, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.engine.interfaces import IsolationLevel
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.orm import Session

from aegish_dist.core.text import printable
from aegish_dist.errors import ConfigError, StoreAwayError, StoreUnusableError, UnreadableRunError

RV = TypeVar("RV")
P = ParamSpec("P")

CANCEL_TIMEOUT_S = 5.0

EXPECTED = "use postgresql://USER:PASSWORD@HOST:5432/DATABASE"

# For libpq and psycopg; a URL may override the first ones by its query.
CONNECT_ARGUMENTS = {
    "connect_timeout": 5,
    "application_name": "aegish-dist",
    # A peer that vanished without a word is found out within 25 s, idle or not.
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,  # milliseconds
    # Statements that psycopg prepares belong to a server's connection; a pooler such as PgBouncer
    # before 1.21 hands that to others between transactions.
    "prepare_threshold": None,
}

# Of the server's state, rights or schema; any other error is one of a statement, so a bug.
EXPECTED_ERRORS = (
    psycopg.OperationalError,
    errors.InsufficientPrivilege,
    errors.ReadOnlySqlTransaction,
    errors.UndefinedColumn,
    errors.UndefinedTable,
)

UNREACHABLE = "check AEGISH_DIST_DATABASE_URL and that the server is running"

OTHER_SCHEMA = (
    "its tables are not those of this version (`aegish-dist db check` says which): take its runs"
    " along by `verdicts export` of the version that made it and `verdicts import` into a new one"
)

BUSY = "another session holds what this one needs; try again, or end that session"

# A worker's statements take milliseconds; one that waits longer for a lock is tried again.
WORKER_REPLY_TIMEOUT_S = 30.0

# A worker's transactions take milliseconds. The server rolls back one of which it hears no more:
# its connection has gone silent, and the worker's next try waits for the rows that it holds.
ABANDONED_AFTER_S = 15

# Not behind a pooler between transactions, which would hand it to a command whose transaction may
# rest for longer; the PIDs of client and server differ there.
_ROLL_BACK_ABANDONED = (
    "SELECT set_config('idle_in_transaction_session_timeout', %s, false)"
    " WHERE pg_backend_pid() = %s"
)


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that waits no longer than some seconds for the next bytes of a reply."""

    reply_timeout_s: float = 30.0

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        """Drive one exchange with the server.

        Raises:
            psycopg.OperationalError: The server was silent for too long. The connection is closed,
                and the server was asked to cancel the statement, in case it still works on it.
        """
        return super().wait(self._bounded(gen), *args, **kwargs)

    def _bounded(self, gen: PQGen[RV]) -> Generator[Any, Any, RV]:
        silent_since = monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    silent_since = monotonic()
                elif monotonic() - silent_since > self.reply_timeout_s:
                    self._give_up()
                wanted = gen.send(ready)
        except StopIteration as end:
            value: RV = end.value
            return value

    def _give_up(self) -> None:
        with suppress(psycopg.Error):
            self.cancel_safe(timeout=CANCEL_TIMEOUT_S)
        self.pgconn.finish()
        raise psycopg.OperationalError(
            f"the server has not answered for {self.reply_timeout_s:g} s"
        )


def open_engine(
    url: str, *, pool_size: int = 5, reply_timeout_s: float | None = None, ping: bool = True
) -> Engine:
    """Create an engine; nothing is connected yet.

    Args:
        reply_timeout_s: Seconds a server may be silent before a connection counts as lost; None:
            as long as the kernel holds it open.
        ping: Whether each transaction first asks whether its connection lives.

    Raises:
        ConfigError: The URL is not one of PostgreSQL.
    """
    parsed = _checked(url)
    arguments = {k: v for k, v in CONNECT_ARGUMENTS.items() if k not in parsed.query}
    if "passfile" in parsed.query and not parsed.password:
        # The variables of another server, such as PGPASSWORD, would come before these.
        arguments |= {"password": "", "channel_binding": "prefer"}  # nosec B105
    engine = create_engine(
        parsed.set(drivername="postgresql+psycopg"),
        pool_pre_ping=ping,
        pool_size=pool_size,
        max_overflow=0,
        connect_args=arguments,
        hide_parameters=True,
        json_deserializer=_json,
    )
    if reply_timeout_s is not None:

        @event.listens_for(engine, "do_connect")
        def connect(_dialect: Any, _record: Any, args: Any, parameters: Any) -> BoundedConnection:
            connection = BoundedConnection.connect(*args, **parameters)
            connection.reply_timeout_s = reply_timeout_s
            try:
                bound = f"{ABANDONED_AFTER_S}s", connection.info.backend_pid
                connection.execute(_ROLL_BACK_ABANDONED, bound)
                connection.commit()
            except psycopg.Error:
                connection.close()
                raise
            return connection

    return engine


def _json(stored: str | bytes) -> object:
    """Read a JSON column; what Python cannot hold is None, so that its row spoils no other one."""
    try:
        return json.loads(stored)
    except (ValueError, RecursionError):  # an integer of thousands of digits, a thousand brackets
        return None


@contextmanager
def reading(run_id: str) -> Iterator[None]:
    """Isolate a run: what of its rows cannot be read is an error about that run alone.

    The one boundary between rows, which every holder of the database's password may write, and the
    program. What decodes rows of several runs enters it for each of them.

    Raises:
        UnreadableRunError: A row holds what no version of the product writes.
    """
    try:
        yield
    except _ODD as error:
        why = f"{type(error).__name__}: {error}".removeprefix("ValidationError: ")
        raise UnreadableRunError(run_id, printable(why[:200])) from error


# Errors of decoders for values of a wrong shape, type or size.
_ODD = (MsgspecError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError)


def _checked(url: str) -> URL:
    """Parse a URL; what is wrong with it is said without its text, which may hold a password."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise ConfigError(f"AEGISH_DIST_DATABASE_URL is not a database URL: {EXPECTED}") from error
    if not parsed.drivername.startswith("postgres"):
        raise ConfigError(
            f"AEGISH_DIST_DATABASE_URL names '{parsed.drivername}', but only PostgreSQL is "
            f"supported: {EXPECTED}"
        )
    if "@" in f"{parsed.host}{parsed.database}{''.join(parsed.query)}":
        raise ConfigError(
            "AEGISH_DIST_DATABASE_URL has an '@' in its password or elsewhere that does not end the"
            " credentials: write it as %40"
        )
    try:
        make_conninfo("", **dict.fromkeys(parsed.query, ""))
    except psycopg.ProgrammingError:
        raise ConfigError(
            "AEGISH_DIST_DATABASE_URL has an option after its '?' that PostgreSQL does not know:"
            " see 'Parameter Key Words' of libpq, such as sslmode or sslrootcert"
        ) from None
    return parsed


ONE_VIEW: IsolationLevel = "REPEATABLE READ"
"""Isolation level of a transaction all of whose reads are of the same moment."""


@contextmanager
def transaction(
    engine: Engine, *, isolation_level: IsolationLevel | None = None
) -> Iterator[Session]:
    """Open the store for one transaction: committed at the end, rolled back on any error.

    Args:
        isolation_level: PostgreSQL's name of it; None leaves the server's, `READ COMMITTED`.

    Raises:
        StoreUnusableError: The database is away, locked or full, or forbids the statement or the
            commit.
    """
    if isolation_level is not None:
        engine = engine.execution_options(isolation_level=isolation_level)
    with connection_errors_in_one_line(), Session(engine) as session, session.begin():
        try:
            yield session
        except KeyboardInterrupt:
            session.invalidate()  # in the middle of a statement it cannot be rolled back
            raise


def in_transaction(
    engine: Engine, query: Callable[Concatenate[Session, P], RV], *args: P.args, **kwargs: P.kwargs
) -> RV:
    """Return the result of one query, made in a transaction of its own."""
    with transaction(engine) as session:
        return query(session, *args, **kwargs)


def driver_connection(session: Session) -> psycopg.Connection[Any]:
    """Return psycopg's connection of a transaction, for COPY."""
    connection = session.connection().connection.driver_connection
    assert isinstance(connection, psycopg.Connection)  # noqa: S101  # nosec B101 # what SQLAlchemy types as anything
    return connection


_BOUND = re.compile(r"(?<![:\w]):(\w+)")


BLOCK_BYTES = 1 << 20


def copied(session: Session, sql: str, values: Mapping[str, Any]) -> Iterator[bytearray]:
    """Yield what COPY ... TO STDOUT sends, in blocks of whole rows; values are named as usual."""
    connection = driver_connection(session)
    cursor = psycopg.ClientCursor(connection)
    with cursor.copy(_BOUND.sub(r"%(\1)s", sql), values) as rows:
        while block := connection.wait(_block(rows)):
            yield block


def _block(rows: psycopg.Copy) -> PQGen[bytearray]:
    # Waiting once for a block: to wait for each row takes three times as long.
    block = bytearray()
    while len(block) < BLOCK_BYTES:
        row = yield from rows._read_gen()  # noqa: SLF001  psycopg has no public way
        if not row:
            break
        block += row
    return block


@contextmanager
def connection_errors_in_one_line() -> Iterator[None]:
    """Turn the errors of a database that is away, full or forbidden into one line with a remedy."""
    try:
        yield
    except (DBAPIError, psycopg.Error) as error:
        # Errors of COPY are psycopg's own: SQLAlchemy does not wrap them.
        cause = error if isinstance(error, psycopg.Error) else error.orig
        if not isinstance(cause, EXPECTED_ERRORS):
            raise
        # libpq quotes settings that it finds invalid; one may be a part of a password.
        what = re.sub(
            r'(invalid [^"]*)"[^"]*"',
            r'\1"..."',
            " ".join(str(cause).partition("\nLINE ")[0].split())[:200],
        )
        remedy = next(text for text, kinds in _REMEDIES.items() if isinstance(cause, kinds))
        kind = StoreAwayError if remedy in (UNREACHABLE, BUSY) else StoreUnusableError
        raise kind(
            f"the database cannot be used ({what}): {remedy}; `aegish-dist doctor` tells more"
        ) from error


_REMEDIES: dict[str, tuple[type[Exception], ...]] = {
    BUSY: (
        errors.LockNotAvailable,
        errors.QueryCanceled,
        errors.DeadlockDetected,
        errors.SerializationFailure,
    ),
    "the server runs, but has no room; free some, or raise its limits": (
        errors.DiskFull,
        errors.OutOfMemory,
        errors.TooManyConnections,
    ),
    "the server runs, but does not let this user write; check its rights": (
        errors.InsufficientPrivilege,
        errors.ReadOnlySqlTransaction,
    ),
    OTHER_SCHEMA: (errors.UndefinedColumn, errors.UndefinedTable),
    UNREACHABLE: (Exception,),
}


CHANNEL = "aegish_runs"  # channel of the notifications; the triggers of the first migration name it


class RunChanges:
    """Waits on one connection for changes of runs; the same connection serves transactions."""

    def __init__(self, url: str) -> None:
        self.engine: Engine = open_engine(
            url, pool_size=1, reply_timeout_s=WORKER_REPLY_TIMEOUT_S, ping=False
        )
        # Whether changes are announced; before the first `wait`, and through a pooler, not.
        self.announced = False
        self._listening: Any = None

    def wait(self, seconds: float) -> bool:
        """Wait for a change, at most this long, where changes are announced; else return at once.

        Returns:
            Whether something may have changed; True as well after a new connection.

        Raises:
            StoreUnusableError: The database is away.
        """
        with connection_errors_in_one_line(), self.engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            if driver is not self._listening:
                # A pooler in transaction mode hands the server's connection to others between two
                # transactions, so this one would hear nothing. The PIDs of the two differ then.
                pid = connection.scalar(text("SELECT pg_backend_pid()"))
                self.announced = pid == driver.info.backend_pid
                if self.announced:
                    connection.execute(text(f"LISTEN {CHANNEL}"))
                connection.commit()
                self._listening = driver
                return self.announced
            if not self.announced:
                return False
            heard = [*driver.notifies(timeout=seconds, stop_after=1)]
            heard += driver.notifies(timeout=0)
            return bool(heard)

    def close(self) -> None:
        self.announced = False
        self.engine.dispose()


_HEAD = re.compile(r"^-- (?:name|fragment): (\w+)(?:\((\w+)\))?\n(?:--.*\n)+", re.MULTILINE)
_USE = re.compile(r"\{(\w+)(?:\((\w+)\))?\}")


class _Part(NamedTuple):
    """A statement or a fragment as it stands in its file."""

    parameter: str | None
    sql: str


def _parts() -> Iterator[tuple[str, _Part]]:
    for file in files("aegish_dist.db").joinpath("sql").iterdir():
        content = file.read_text(encoding="utf-8")
        # From the last part to the first: each ends where the one behind it begins.
        end = len(content)
        for head in reversed(list(_HEAD.finditer(content))):
            name, parameter = head.groups()
            sql = content[head.end() : end]
            yield name, _Part(parameter, sql.strip())
            end = head.start()


_PARTS = dict(_parts())


def execute(session: Session, name: str, /, **values: object) -> CursorResult[*tuple[Any, ...]]:
    """Execute the statement of a name with the values that it binds."""
    return session.connection().execute(statement(name), values)


@cache
def statement(name: str, /, **sql: str) -> TextClause:
    """Return the statement of a name.

    Args:
        sql: By the name that the statement uses, the SQL to put there: a fragment, some columns.

    Raises:
        KeyError: No file has the statement, or a fragment that it uses.
    """
    return text(_expanded(_PARTS[name].sql, sql))


def fragment(name: str, argument: str = "") -> str:
    """Return the SQL of a fragment with an argument in place of its parameter, if it has one."""
    part = _PARTS[name]
    return _expanded(part.sql, {} if part.parameter is None else {part.parameter: argument})


def _expanded(sql: str, given: Mapping[str, str]) -> str:
    """Put fragments, and what is given, in place of their names."""

    def meant(use: re.Match[str]) -> str:
        name, argument = use.groups()
        if name in given:
            return given[name]
        return fragment(name, argument)

    return _USE.sub(meant, sql)

"""Connecting to PostgreSQL: half-open connections, poolers, and what is said about bad URLs."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import Session

from aegish_dist.db import engine as database
from aegish_dist.db.engine import (
    RunChanges,
    connection_errors_in_one_line,
    open_engine,
    transaction,
)
from aegish_dist.errors import ConfigError, StoreAwayError, StoreError
from tests.half_open import HalfOpenProxy
from tests.integration.stored_runs import execute, selected
from tests.services import PgBouncer, wait_until

REPLY_TIMEOUT_S = 1.0


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[HalfOpenProxy]:
    with HalfOpenProxy.to_postgres(postgres_url) as opened:
        yield opened


@pytest.fixture
def bounded(proxy: HalfOpenProxy, postgres_url: str) -> Iterator[Engine]:
    opened = open_engine(proxy.postgres_url(postgres_url), reply_timeout_s=REPLY_TIMEOUT_S)
    yield opened
    opened.dispose()


def ask(engine: Engine, statement: str = "SELECT 1") -> object:
    (value,) = selected(engine, statement)
    return value


def test_a_connection_that_goes_silent(proxy: HalfOpenProxy, bounded: Engine) -> None:
    """It is given up within the time limit, and the next statement takes a new connection."""
    with bounded.connect() as connection:
        connection.scalar(text("SELECT 1"))
        assert proxy.swallow() == 1
        started = time.monotonic()
        with pytest.raises(OperationalError, match="has not answered for 1 s"):
            connection.scalar(text("SELECT 2"))
        assert REPLY_TIMEOUT_S <= time.monotonic() - started < 5
    assert ask(bounded) == 1


def test_an_idle_connection_that_went_silent(proxy: HalfOpenProxy, bounded: Engine) -> None:
    """It is replaced unseen, with all others of its pool."""
    with bounded.connect() as first, bounded.connect() as second:
        assert first.scalar(text("SELECT 1")) == second.scalar(text("SELECT 1"))
    assert proxy.swallow() == 2
    started = time.monotonic()
    assert ask(bounded) == 1
    assert ask(bounded) == 1
    assert time.monotonic() - started < 2 * REPLY_TIMEOUT_S + 1


def test_what_a_silent_connection_holds(
    proxy: HalfOpenProxy, postgres_url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server rolls its transaction back, so that another one can store the same rows."""
    monkeypatch.setattr(database, "ABANDONED_AFTER_S", 1)
    execute(engine, "CREATE TABLE held (id int PRIMARY KEY)")
    store = text("INSERT INTO held VALUES (1) ON CONFLICT DO NOTHING")
    worker = open_engine(proxy.postgres_url(postgres_url), reply_timeout_s=REPLY_TIMEOUT_S)
    silent = worker.connect()
    silent.execute(store)
    proxy.swallow()
    with engine.begin() as other:
        other.execute(text("SET LOCAL statement_timeout = '10s'"))
        stored = other.execute(store).rowcount
    silent.invalidate()
    worker.dispose()

    assert stored == 1


def test_a_statement_that_takes_too_long(bounded: Engine, engine: Engine) -> None:
    """The server is asked to end it: no statement goes on without its client."""
    with pytest.raises(OperationalError):
        ask(bounded, "SELECT pg_sleep(30)")
    running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(30)' AND state = 'active'"
    wait_until(lambda: ask(engine, f"{running} AND pid <> pg_backend_pid()") == 0, "the end")


def test_a_reply_that_takes_its_time(bounded: Engine) -> None:
    """As long as bytes come, any reply may take longer than the time limit."""
    statement = text("SELECT pg_sleep(0.4), repeat('x', 100000) FROM generate_series(1, 4)")
    with bounded.connect() as connection:
        assert len(connection.execute(statement).all()) == 4


def test_keepalives(postgres_url: str, proxy: HalfOpenProxy) -> None:
    """The kernel looks after idle connections, unless the URL of the database sets its own terms."""
    url = proxy.postgres_url(postgres_url)
    for suffix, idle in (("", "10"), ("?keepalives_idle=33", "33")):
        engine = open_engine(url + suffix)
        with engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, psycopg.Connection)
            parameters = driver.info.get_parameters()
        engine.dispose()
        assert parameters["keepalives_idle"] == idle
        assert (parameters["keepalives_count"], parameters["tcp_user_timeout"]) == ("3", "25000")


@pytest.fixture
def pooled_url(postgres_url: str, proxy: HalfOpenProxy, tmp_path: Path) -> Iterator[str]:
    """URL of the database behind a PgBouncer that shares one connection between transactions."""
    with PgBouncer(tmp_path, proxy.port) as pooler:
        yield pooler.url(postgres_url)


def test_a_pooler_between_transactions(pooled_url: str) -> None:
    """Clients that share a server's connection do not meet in each other's prepared statements."""
    engine = open_engine(pooled_url)
    with engine.connect() as first, engine.connect() as second:
        for number in range(20):
            assert first.scalar(text("SELECT :n + 1"), {"n": number}) == number + 1
            first.commit()
            assert second.scalar(text("SELECT :word || '!'"), {"word": "what"}) == "what!"
            second.commit()
    engine.dispose()


@pytest.mark.parametrize("pooled", [True, False])
def test_a_workers_bound_on_idle_transactions_is_its_own(
    pooled: bool, postgres_url: str, request: pytest.FixtureRequest
) -> None:
    """A command that gets the worker's connection from a pooler may rest within a transaction."""
    url = request.getfixturevalue("pooled_url") if pooled else postgres_url
    worker, command = open_engine(url, reply_timeout_s=30), open_engine(url)
    asked = "SHOW idle_in_transaction_session_timeout"
    assert (ask(worker, asked), ask(command, asked)) == ("0" if pooled else "15s", "0")
    worker.dispose()
    command.dispose()


CHANGES = (
    "INSERT INTO runs (id, name, origin, package_version, epochs, created_at)"
    " VALUES ('r', '', 'submit', '', 1, now());"
    " INSERT INTO run_models (run_id, model, spec, queue, open) VALUES ('r', 'm', '{}', 'aegish.m#r', true)",
    "UPDATE runs SET held = 'paused'",
    "UPDATE run_models SET open = false",
    "DELETE FROM runs",
)


def test_changes_of_runs_are_announced(engine: Engine, postgres_url: str) -> None:
    """Each ends the wait; a lost connection raises, and the next wait returns at once."""
    with closing(RunChanges(postgres_url)) as changes:
        assert changes.wait(0)  # connected only now
        for statement in CHANGES:
            assert not changes.wait(0)
            execute(engine, statement)
            assert changes.wait(30)
        execute(engine, "UPDATE runs SET name = 'other'")
        others = "pid <> pg_backend_pid() AND datname = current_database()"
        ended = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}"
        assert selected(engine, ended) == [True]
        with pytest.raises(StoreAwayError):
            changes.wait(30)
        assert changes.wait(0)
        assert changes.announced


def test_behind_a_pooler_nothing_is_announced(pooled_url: str) -> None:
    """Others would hear on the server's connection that they share, so no wait begins."""
    with closing(RunChanges(pooled_url)) as changes:
        assert not changes.wait(30)
        assert not changes.wait(30)
        assert not changes.announced
        assert selected(changes.engine, "SELECT pg_listening_channels()") == []


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:first@SECRET@localhost/db",
        "postgresql://user:first@SE/CRET@localhost/db",
        "postgresql://user:first@SE?SECRET@localhost/db=1",
        "postgresql://localhost/db?SECRET=1",
        "postgresql://user:SECRET@localhost:port/db",
        "SECRET",
    ],
)
def test_a_url_that_cannot_be_meant(url: str) -> None:
    """It is refused before a name is looked up, in one line that shows nothing of a password."""
    with pytest.raises(ConfigError) as caught:
        open_engine(url)
    message = str(caught.value)
    assert message.startswith("AEGISH_DIST_DATABASE_URL ")
    assert "\n" not in message
    assert not any(part in message for part in ("SECRET", "CRET@", "first"))


def test_an_option_with_a_bad_value() -> None:
    """Its value is not shown: it may be a part of something else."""
    engine = open_engine("postgresql://localhost/db?sslmode=SECRET")
    with pytest.raises(StoreError) as caught, connection_errors_in_one_line():
        ask(engine)
    assert "SECRET" not in str(caught.value)
    assert "sslmode" in str(caught.value)


@pytest.fixture
def numbers(engine: Engine) -> Engine:
    """A table of numbers, each of them there once, which is checked when it is committed."""
    execute(engine, "CREATE TABLE numbers (number int UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    return engine


INSERT = text("INSERT INTO numbers VALUES (1)")
COUNT = text("SELECT count(*) FROM numbers")


def fail(_: Session, __: Engine) -> None:
    raise KeyError


def break_a_rule(session: Session, _: Engine) -> None:
    session.execute(INSERT)


def lose_the_connection(session: Session, engine: Engine) -> None:
    lost = session.scalar(text("SELECT pg_backend_pid()"))
    execute(engine, f"SELECT pg_terminate_backend({lost}, 5000)")


@pytest.mark.parametrize(
    ("act", "error"),
    [
        (fail, KeyError),  # the caller's own comes out as it is
        (break_a_rule, IntegrityError),  # as the commit finds out
        (lose_the_connection, StoreAwayError),  # in one line, whenever it was lost
    ],
)
def test_a_transaction_with_an_error_leaves_nothing(
    numbers: Engine, act: Callable[[Session, Engine], None], error: type[Exception]
) -> None:
    def work() -> None:
        with transaction(numbers) as session:
            session.execute(INSERT)
            act(session, numbers)

    with pytest.raises(error):
        work()
    assert selected(numbers, "SELECT number FROM numbers") == []


def test_a_transaction_that_sees_one_moment(numbers: Engine) -> None:
    """What another session writes is seen after its commit, and not under REPEATABLE READ."""
    with transaction(numbers, isolation_level="REPEATABLE READ") as session:
        assert session.scalar(COUNT) == 0
        with transaction(numbers) as other, transaction(numbers) as third:
            other.execute(INSERT)
            assert third.scalar(COUNT) == 0
        assert session.scalar(COUNT) == 0
    assert selected(numbers, "SELECT number FROM numbers") == [1]


def in_one_line(engine: Engine, *statements: str) -> str:
    try:
        with connection_errors_in_one_line(), engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))
    except StoreError as error:
        return str(error)
    pytest.fail("nothing was wrong")


def test_a_lock_that_is_not_given(engine: Engine) -> None:
    """The words are about the lock: the server does run."""
    with engine.connect() as holder:
        holder.execute(text("LOCK TABLE runs"))
        said = in_one_line(engine, "SET LOCAL lock_timeout = '50ms'", "LOCK TABLE runs")
    assert "another session holds what this one needs" in said
    assert "is running" not in said


def test_a_database_that_is_read_only(engine: Engine) -> None:
    said = in_one_line(engine, "SET TRANSACTION READ ONLY", "DELETE FROM runs")
    assert "does not let this user write" in said

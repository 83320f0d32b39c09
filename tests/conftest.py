"""Fixtures that several tiers share; a service is started by the first test that asks for it."""

import asyncio
import gc
import inspect
import itertools
import logging
import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import islice
from pathlib import Path

import pytest
import redis
import structlog
from hypothesis import settings
from sqlalchemy import Engine, make_url, text

from aegish_dist.db import schema
from aegish_dist.db.engine import open_engine
from tests.services import (
    RabbitServer,
    RedisServer,
    as_superuser,
    memory,
    opened,
    short_home,
    trusting_server,
)
from tests.virtual_time import run_virtually

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")  # a busy machine is no failure

gc.disable()  # until tests are collected: a fifth of that time

_LONG_TIERS = ("chaos", "e2e", "howto")
_ON_RABBITMQ = re.compile("rabbitmq|quorum")
_SECRET_SUFFIXES = ("_API_KEY", "_TOKEN", "_BASE_URL")


@pytest.hookimpl(trylast=True)  # after pytest has put together the tests that share a fixture
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have each parallel worker begin with its share of the tests that mostly wait for servers.

    pytest-xdist's `worksteal` gives each of N workers the N-th part of the list by number; a worker
    that is done takes over the end of another one's part. Neighbours stay neighbours, so that what
    a module shares is made once or twice. The first worker has all tests on the RabbitMQ of its
    session, which takes five seconds of CPU time to start.
    """
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    ordered: list[pytest.Item] = []
    long: list[pytest.Item] = []
    others: list[pytest.Item] = []
    for item in items:
        tier = item.path.parent.name
        if tier in ("e2e", "integration") and _ON_RABBITMQ.search(item.name):
            ordered.append(item)
        elif tier in _LONG_TIERS:
            long.append(item)
        else:
            others.append(item)
    short = iter(others)
    for number in range(1, workers + 1):
        ordered += long[len(long) * (number - 1) // workers : len(long) * number // workers]
        ordered += islice(short, max(0, len(items) * number // workers - len(ordered)))
    assert len(ordered) == len(items)
    items[:] = ordered


def pytest_collection_finish() -> None:
    """Collect garbage from now on, but never look at the modules and items that all tests keep."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in a loop of its own; in virtual time with that mark."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    run = run_virtually if pyfuncitem.get_closest_marker("virtual_time") else asyncio.run
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted}))
    return True


@pytest.fixture(scope="session", autouse=True)
def _nothing_of_the_developer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep settings and keys out, so that no test reads a real database or spends real money."""
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith("AEGISH_DIST_") or name.endswith(_SECRET_SUFFIXES):
                patch.delenv(name)
        home = tmp_path_factory.getbasetemp() / "aegish-dist"
        patch.setenv("AEGISH_DIST_HOME", str(home))
        patch.setenv("XDG_CACHE_HOME", str(home / "cache"))
        yield


@pytest.fixture(scope="session", autouse=True)
def _interrupts() -> None:
    """Have processes of tests end by SIGINT, which a script's background job is started without.

    Commands leave it ignored there, as a shell's user expects of `aegish-dist ... &` in a script.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _logs_of_this_test_alone() -> Iterator[None]:
    """Undo what `capture_logs` and commands leave.

    It is a structlog that counts as configured and writes to stdout, and a handler that writes to
    the standard error of a test that has ended, where each line would fail with a traceback.
    """
    root = logging.getLogger()
    level = root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = [each for each in root.handlers if type(each) is not logging.StreamHandler]
    root.setLevel(level)


class _Postgres:
    """The embedded server, with a migrated database to copy from."""

    def __init__(self, url: str) -> None:
        self._url = make_url(url)
        self._numbers = itertools.count(1)
        self._admin = open_engine(as_superuser(url)).execution_options(isolation_level="AUTOCOMMIT")
        # Tests do not outlive a power cut.
        for setting in ("fsync", "full_page_writes"):
            self._run(f"ALTER SYSTEM SET {setting} = off")
        self._run("SELECT pg_reload_conf()")
        self._run("CREATE DATABASE migrated TEMPLATE template0 OWNER aegish")
        with opened(self._named("migrated")) as engine:
            schema.upgrade(engine)

    @contextmanager
    def database(self, template: str = "migrated") -> Iterator[str]:
        """Yield the URL of a copy of a database, by default of a migrated one without rows."""
        name = f"test_{next(self._numbers)}"
        # By files, a copy takes a tenth of the time that it takes by the log.
        copied = f"CREATE DATABASE {name} TEMPLATE {template} OWNER aegish STRATEGY file_copy"
        self._run(copied)
        yield self._named(name)
        self._run(f"DROP DATABASE {name} WITH (FORCE)")

    def _named(self, name: str) -> str:
        return self._url.set(database=name).render_as_string(hide_password=False)

    def close(self) -> None:
        self._admin.dispose()

    def _run(self, statement: str) -> None:
        with self._admin.connect() as connection:
            connection.execute(text(statement))


@pytest.fixture(scope="session")
def _postgres() -> Iterator[_Postgres]:
    with ExitStack() as stack:
        server = stack.enter_context(trusting_server(stack.enter_context(short_home(memory()))))
        with closing(_Postgres(server.url)) as postgres:
            yield postgres


@pytest.fixture
def home() -> Iterator[Path]:
    with short_home() as made:
        yield made


@pytest.fixture
def postgres_url(_postgres: _Postgres) -> Iterator[str]:
    """URL of a migrated database without rows, this test's own."""
    with _postgres.database() as url:
        yield url


@pytest.fixture
def unmigrated_url(_postgres: _Postgres) -> Iterator[str]:
    with _postgres.database("template0") as url:
        yield url


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Engine]:
    with opened(postgres_url) as engine:
        yield engine


@pytest.fixture
def unmigrated_engine(unmigrated_url: str) -> Iterator[Engine]:
    with opened(unmigrated_url) as engine:
        yield engine


@pytest.fixture(scope="session")
def _redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def redis_url(_redis: RedisServer) -> str:
    """URL of an empty Redis; to stop one in a test, use a `RedisServer` of its own."""
    with redis.Redis(port=_redis.port) as client:
        client.flushall()
    return _redis.url


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitServer]:
    """A RabbitMQ; queues stay until the session ends, so use models of distinct names."""
    with RabbitServer(tmp_path_factory.mktemp("rabbitmq")) as server:
        yield server


@pytest.fixture
def rabbitmq_url(rabbitmq: RabbitServer) -> str:
    return rabbitmq.url

"""Real servers for tests, each a process of its own on 127.0.0.1 with data of its own."""

import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest
import redis
from celery import Celery
from sqlalchemy import Engine, make_url

from aegish_dist.broker.app import create_app
from aegish_dist.core.secrets import SecretStr
from aegish_dist.db.embedded import (
    ROLE_SQL,
    EmbeddedServer,
    binaries,
    embedded_server,
    make_home,
    server_account,
)
from aegish_dist.db.engine import open_engine
from aegish_dist.settings import Settings

HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
POLL_S = 0.02
LEAST_MEMORY = 4 * 2**30
_CHANCE = random.SystemRandom()


def queue_application(
    broker_url: str | None, database_url: str = "postgresql://127.0.0.1:1/none", **settings: Any
) -> Celery:
    """Return the application of producers and workers at a broker; None: inside this process."""
    broker = None if broker_url is None else SecretStr(broker_url)
    return create_app(Settings(broker_url=broker, database_url=SecretStr(database_url), **settings))


@contextmanager
def opened(url: str) -> Iterator[Engine]:
    """Open connections to a database for the length of the body."""
    engine = open_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()


def require_binary(*candidates: str) -> str:
    """Return the path of the first that exists; without any, skip, or fail where CI is set."""
    for candidate in candidates:
        path = shutil.which(candidate)
        if path is not None:
            return path
    reason = f"{candidates[-1]} is not installed"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def memory() -> str | None:
    """Return a folder in memory; None where there is none, or little room as in a container.

    A database of three hundred files is made and dropped there in a fifth of the time. Guards are
    kept out of it, so that it is no place for their programs.
    """
    folder = "/dev/shm"
    if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > LEAST_MEMORY:
        return folder
    return None


@contextmanager
def short_home(folder: str | None = None) -> Iterator[Path]:
    """A home of the embedded PostgreSQL, removed at the end.

    Its path is short, because the socket lies in it; it is not in pytest's folder, which is closed
    to the user that serves where this is root.
    """
    made = Path(tempfile.mkdtemp(prefix="aegish-dist-", dir=folder))
    try:
        yield made
    finally:
        try:
            shutil.rmtree(made)
        except FileNotFoundError:  # a server that is ending removes its files at the same time
            shutil.rmtree(made, ignore_errors=True)


def make_trusting_data(home: Path) -> None:
    """Make the data of a home as the first version did: all who reach the socket are superuser."""
    account = server_account()
    data = make_home(home, account)
    data.mkdir(mode=0o700)
    os.chown(data, account.uid, account.gid)
    options = ("--username=postgres", "--encoding=utf8", "--auth-local=trust", "--auth-host=reject")
    is_root = os.geteuid() == 0
    subprocess.run(
        [binaries() / "initdb", *options, "-D", data],
        check=True,
        capture_output=True,
        cwd="/",
        user=account.uid if is_root else None,
        group=account.gid if is_root else None,
        extra_groups=[] if is_root else None,
    )


def as_superuser(url: str) -> str:
    return make_url(url).set(username="postgres").render_as_string(hide_password=False)


@contextmanager
def trusting_server(home: Path) -> Iterator[EmbeddedServer]:
    """The embedded server with its role, in a home where tests are its superuser, too."""
    make_trusting_data(home)
    (home / "postgres.password").touch(mode=0o600)  # so that it takes these files for its own
    with closing(embedded_server(home)) as server:
        with psycopg.connect(as_superuser(server.url), autocommit=True) as connection:
            connection.execute(ROLE_SQL.read_bytes())
            connection.execute("ALTER ROLE postgres LOGIN")
        yield server


def free_port() -> int:
    """Return a TCP port that no process listens on.

    It lies below the ports that the kernel gives to clients: one that waits for a server there
    could otherwise end up connected to itself.
    """
    while True:
        port = _CHANCE.randrange(20_000, 32_000)
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) != 0:
                return port


def accepts_connections(port: int) -> bool:
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 10.0) -> None:
    """Poll a condition until it holds; fail the test when it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {timeout_s:g} s: {what}")
        time.sleep(POLL_S)


class ServerProcess:
    """A child process that listens on a port, with its output in a file; ends with the `with`."""

    def __init__(self, port: int, log: Path) -> None:
        self.port = port
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        self._process = process
        wait_until(
            lambda: process.poll() is not None or accepts_connections(self.port),
            f"{command[0]} on port {self.port}",
            START_TIMEOUT_S,
        )
        if process.poll() is not None:
            self._process = None
            pytest.fail(f"{command[0]} ended at once:\n{self.log.read_text(errors='replace')}")

    def stop(self) -> None:
        """End it as an administrator would."""
        if self._process is not None:
            self._process.terminate()
            self._reap()

    def kill(self) -> None:
        """End it as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._reap()

    @contextmanager
    def halted(self) -> Iterator[None]:
        """Stop it for the length of the body: it answers nothing, and its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def _reap(self) -> None:
        assert self._process is not None
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class PgBouncer(ServerProcess):
    """A PgBouncer that hands a server's connection to another client after each transaction."""

    def __init__(self, home: Path, postgres_port: int, connections: int = 1) -> None:
        super().__init__(free_port(), home / "pgbouncer.log")
        self._postgres_port = postgres_port
        self._connections = connections

    def start(self) -> None:
        self.launch([require_binary("pgbouncer"), "-u", "nobody", str(self._folder / "settings")])

    def url(self, postgres_url: str) -> str:
        """Return the URL of the same database through this pooler."""
        through = make_url(postgres_url).set(
            username="aegish", password=None, host=HOST, port=self.port, query={}
        )
        return through.render_as_string(hide_password=False)

    def __enter__(self) -> Self:
        # It refuses to run as root, and the user it runs as enters no folder of pytest's.
        self._folder = Path(tempfile.mkdtemp(prefix="aegish-dist-"))
        (self._folder / "users").write_text('"aegish" ""\n')
        (self._folder / "settings").write_text(f"""
[databases]
* = host={HOST} port={self._postgres_port} user=aegish
[pgbouncer]
listen_addr = {HOST}
listen_port = {self.port}
unix_socket_dir =
auth_type = any
auth_file = {self._folder}/users
pool_mode = transaction
default_pool_size = {self._connections}
max_client_conn = 200
server_login_retry = 1
ignore_startup_parameters = extra_float_digits
""")
        for path in (self._folder, *self._folder.iterdir()):
            path.chmod(0o755)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


class RedisServer(ServerProcess):
    """A Redis: started again after `stop` or `kill` it is empty, unless it keeps a log of writes."""

    def __init__(self, home: Path, *, persistent: bool = False) -> None:
        super().__init__(free_port(), home / "redis.log")
        options = {"port": str(self.port), "bind": HOST, "dir": str(home)}
        options |= {"save": "", "appendonly": "yes" if persistent else "no"}
        flags = [word for name, value in options.items() for word in (f"--{name}", value)]
        self._command = [require_binary("redis-server"), *flags]
        self.url = f"redis://{HOST}:{self.port}/0"

    def start(self) -> None:
        self.launch(self._command)

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port)

    def __enter__(self) -> Self:
        self.start()
        return self


def rabbitmq_script(name: str) -> str:
    # Debian's /usr/sbin/rabbitmq-server changes user and directory, and so forgets the environment
    # that keeps a node apart; the script behind it does not.
    folder = os.environ.get("RABBITMQ_SCRIPTS", "/usr/lib/rabbitmq/bin")
    return require_binary(f"{folder}/{name}", name)


class RabbitServer(ServerProcess):
    """A RabbitMQ node that shares nothing with one installed on the machine; takes 2 s to start.

    `RABBITMQ_SCRIPTS` names the folder with the scripts of another version than the installed one.
    """

    def __init__(self, home: Path) -> None:
        super().__init__(free_port(), home / "rabbitmq.log")
        self._binary = rabbitmq_script("rabbitmq-server")
        self._epmd_binary = require_binary("epmd")
        self._epmd = ServerProcess(free_port(), home / "epmd.log")
        # The user is RabbitMQ's own default, which only loopback may use.
        self.url = f"amqp://guest:guest@{HOST}:{self.port}//"
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),  # the node's cookie
            "ERL_EPMD_ADDRESS": HOST,
            "ERL_EPMD_PORT": str(self._epmd.port),
            "RABBITMQ_NODENAME": f"aegish-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            "RABBITMQ_MNESIA_BASE": str(home),
            "RABBITMQ_LOG_BASE": str(home),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONF_ENV_FILE": str(home / "none"),
            "RABBITMQ_CONFIG_FILE": str(home / "none"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
            # Has the script become the node, so that its id is the one to signal.
            "RUNNING_UNDER_SYSTEMD": "true",
        }

    def start(self) -> None:
        """Start the node and, before it, the port mapper that it would leave behind otherwise."""
        self._epmd.launch([self._epmd_binary, "-port", str(self._epmd.port), "-address", HOST])
        self.launch([self._binary], self._environment)

    @contextmanager
    def alarmed(self) -> Iterator[None]:
        """Have it take its memory for full for the length of the body."""
        self._control("set_vm_memory_high_watermark", "absolute", "1MB")
        try:
            yield
        finally:
            self._control("set_vm_memory_high_watermark", "0.4")

    def _control(self, *command: str) -> None:
        """Run `rabbitmqctl`; takes two seconds."""
        subprocess.run(
            [rabbitmq_script("rabbitmqctl"), *command],
            env=self._environment,
            check=True,
            capture_output=True,
            timeout=START_TIMEOUT_S,
        )

    def stop(self) -> None:
        """End the node, then its port mapper."""
        super().stop()
        self._epmd.stop()

    def kill(self) -> None:
        """End the node without warning; what is durable it has again after `start`."""
        super().kill()
        self._epmd.stop()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

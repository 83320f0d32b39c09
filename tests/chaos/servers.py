"""PostgreSQL and the brokers of a drill: servers that can be killed, stopped and spoken to."""

import os
import signal
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import psutil
import psycopg

from aegish_dist.db import schema
from aegish_dist.db.engine import open_engine
from tests.half_open import HalfOpenProxy
from tests.services import as_superuser, short_home, trusting_server, wait_until

COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"
"""The message by which psycopg commits: PostgreSQL's simple query."""

Pair = tuple[socket.socket, socket.socket]


class Postgres:
    """A migrated PostgreSQL of its own; runs for the length of a `with`."""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            home = stack.enter_context(short_home())
            self._server = stack.enter_context(trusting_server(home))
            self._stack = stack.pop_all()
        self.url = self._server.url
        engine = open_engine(self.url)
        schema.upgrade(engine)
        engine.dispose()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, *statements: str) -> list[Any]:
        """Run statements as the administrator, whatever the server refuses others."""
        with self.connect() as connection:
            cursors = [connection.execute(statement) for statement in statements]
            return cursors[-1].fetchall() if cursors[-1].description else []

    def connect(self) -> "psycopg.Connection[Any]":
        options = "-c default_transaction_read_only=off"
        return psycopg.connect(
            as_superuser(self.url), autocommit=True, options=options, connect_timeout=5
        )

    def stop(self) -> None:
        os.kill(self._postmaster().pid, signal.SIGINT)
        wait_until(lambda: self._server.pid is None, "PostgreSQL to stop", 60)

    def kill(self) -> None:
        """End the server with all its processes as a power cut would."""
        postmaster = self._postmaster()
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            process.kill()
        psutil.wait_procs(processes, timeout=20)

    def _postmaster(self) -> psutil.Process:
        assert self._server.pid is not None
        return psutil.Process(self._server.pid)

    def start(self) -> None:
        self._server.start()
        wait_until(self._serves, "PostgreSQL", 30)

    def _serves(self) -> bool:
        try:
            self.run("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True


class CuttingProxy(HalfOpenProxy):
    """A proxy before PostgreSQL that can also cut a connection whose COMMIT is on its way."""

    def __init__(self, target: int | Path) -> None:
        super().__init__(target)
        self.cut_commits = False  # whether COMMITs reach the server while their answers are cut off
        self.committing: set[Pair] = set()  # pairs whose COMMIT is on its way

    def _copy(self, pair: Pair, source: socket.socket, sink: socket.socket) -> None:
        super()._copy(pair, _Tap(self, pair, source), sink)  # type: ignore[arg-type]  # reads like a socket


class _Tap:
    """A socket to read from that watches for COMMITs; one that is cut reads as closed."""

    def __init__(self, proxy: CuttingProxy, pair: Pair, source: socket.socket) -> None:
        self._proxy, self._pair, self._source = proxy, pair, source

    def recv(self, size: int) -> bytes:
        data = self._source.recv(size)
        from_client = self._source is self._pair[0]
        if from_client and self._proxy.cut_commits and COMMIT in data:
            self._proxy.committing.add(self._pair)
        elif not from_client and self._pair in self._proxy.committing:
            self._proxy.committing.discard(self._pair)
            return b""  # it is committed, and the client does not hear of it
        return data

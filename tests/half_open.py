"""A proxy on 127.0.0.1 whose connections can go silent: a host that vanished, a firewall that forgot."""

import socket
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from sqlalchemy import make_url

from tests.services import HOST

CHUNK_BYTES = 65_536


class HalfOpenProxy:
    """Passes bytes on, to a TCP port or a Unix socket, until it swallows them; a context manager.

    A connection that is swallowed stays open and takes whatever is sent, but never answers. Those
    that come later are passed on again.
    """

    def __init__(self, target: int | Path) -> None:
        """Listen on a free port before a port of this machine, or the path of a Unix socket."""
        self._target = target
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._swallowed: set[tuple[socket.socket, socket.socket]] = set()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    @classmethod
    def to_postgres(cls, url: str) -> Self:
        """Stand before the server of a URL that names the folder of a Unix socket, or a port."""
        parsed = make_url(url)
        folder = parsed.query.get("host")
        port = parsed.port or 5432
        return cls(Path(str(folder)) / f".s.PGSQL.{port}" if folder else port)

    def postgres_url(self, url: str) -> str:
        """Return the URL of the same database through this proxy."""
        through = make_url(url).set(host=HOST, port=self.port, query={})
        return through.render_as_string(hide_password=False)

    def swallow(self) -> int:
        """Let all open connections go silent; return how many there were."""
        with self._lock:
            count = len(self._pairs - self._swallowed)
            self._swallowed |= self._pairs
        return count

    def cut(self) -> None:
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            self._close(pair)

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        self.cut()
        for thread in self._threads[1:]:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = self._connect()
            except OSError:
                client.close()
                continue
            self._serve((client, server))

    def _connect(self) -> socket.socket:
        if isinstance(self._target, int):
            return socket.create_connection((HOST, self._target))
        with ExitStack() as stack:
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.connect(str(self._target))
            stack.pop_all()
        return server

    def _serve(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            self._pairs.add(pair)
        client, server = pair
        for source, sink in ((client, server), (server, client)):
            thread = threading.Thread(target=self._copy, args=(pair, source, sink), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _copy(
        self, pair: tuple[socket.socket, socket.socket], source: socket.socket, sink: socket.socket
    ) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                if pair not in self._swallowed:
                    sink.sendall(data)
        if pair not in self._swallowed:
            self._close(pair)

    def _close(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            self._pairs.discard(pair)
            self._swallowed.discard(pair)
        for end in pair:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

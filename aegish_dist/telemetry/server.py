"""A small HTTP server for scrapers and probes, in threads of its own; it answers GET alone."""

import gzip
import io
import socket
import socketserver
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic
from typing import Any, NamedTuple

from aegish_dist.errors import ConfigError
from aegish_dist.logs import get_logger

log = get_logger(__name__)

PATIENCE_S = 5.0
"""Seconds that a client may take to ask, and again to read the answer."""
MOST_CONNECTIONS = 32
PLAIN_TEXT = "text/plain; charset=utf-8"


class TelemetryPage(NamedTuple):
    """An answer to a request."""

    text: str
    good: bool = True
    """Whether its status is 200; else it is 503."""
    content_type: str = PLAIN_TEXT


class TelemetryServer:
    """Serves pages by path from the moment it is made until it is closed."""

    def __init__(
        self, host: str, port: int, pages: Mapping[str, Callable[[], TelemetryPage]]
    ) -> None:
        """Listen, and answer in threads.

        Args:
            port: Its port; 0: a free one.
            pages: Makes an answer by path; called in the thread of the request.
        """
        try:
            self._server = _Server((host, port), pages)
        except (OSError, OverflowError, TypeError) as error:
            problem = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"metrics cannot be served on {host}:{port} ({problem}): give each process of a"
                " machine a --metrics-port of its own, or 0 for a free one, which the log names;"
                " --metrics-host names an address of this machine"
            ) from error
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self._server.server_port}"
        """Root of the pages."""
        threading.Thread(
            target=self._server.serve_forever, name="aegish-metrics", daemon=True
        ).start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS
    block_on_close = False

    def __init__(
        self, address: tuple[str, int], pages: Mapping[str, Callable[[], TelemetryPage]]
    ) -> None:
        self.pages = pages
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        # Python's own looks the name of the host up, which may take seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Leave a connection that its client broke off."""


class _Asked(io.RawIOBase):
    """The bytes of a client, up to a moment: sending one now and then holds no place."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._ends_at = monotonic() + PATIENCE_S

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(max(0.001, self._ends_at - monotonic()))
        try:
            return self._connection.recv_into(buffer)
        finally:
            self._connection.settimeout(PATIENCE_S)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version, sys_version = "aegish-dist", ""

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_Asked(self.connection))

    def do_GET(self) -> None:
        make = self.server.pages.get(self.path.partition("?")[0])
        if make is None:
            known = " ".join(self.server.pages)
            self._send(404, TelemetryPage(f"no such page; there are {known}\n"))
            return
        try:
            answer = make()
        except Exception:
            log.exception("telemetry_failed", page=self.path.partition("?")[0])
            self._send(500, TelemetryPage("a bug; the log has it\n"))
        else:
            self._send(200 if answer.good else 503, answer)

    def log_message(self, format: str, *args: Any) -> None:
        """Log no request: probes come every few seconds."""

    def _send(self, status: int, answer: TelemetryPage) -> None:
        body = answer.text.encode("utf-8")
        self.send_response(status)
        self.send_header("Content-Type", answer.content_type)
        if len(body) > 1000 and "gzip" in self.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body, 1)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

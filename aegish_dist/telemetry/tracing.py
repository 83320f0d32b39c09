"""Traces of runs by OpenTelemetry: off, and free, unless the environment asks for them.

Traces hold identifiers, numbers and classes of failures; no prompt, command, completion or key.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from aegish_dist.telemetry import Attributes

if TYPE_CHECKING:
    from aegish_dist.core.verdict import Item
    from aegish_dist.telemetry.run_tracer import RunTracer

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OFF: AbstractContextManager[None] = nullcontext()
_tracer: RunTracer | None = None


def start_tracing(environ: Mapping[str, str]) -> None:
    """Begin to trace if the environment asks for it; asked twice, nothing more happens."""
    global _tracer  # noqa: PLW0603
    if _tracer is not None or not wanted(environ):
        return
    try:
        from aegish_dist.telemetry.run_tracer import RunTracer  # noqa: PLC0415
    except ImportError:
        _warn("pip install 'aegish-dist[otel]'")
        return
    _tracer = RunTracer.open()


def finish_tracing() -> None:
    """Send the last spans, within seconds, and end tracing in this process."""
    global _tracer  # noqa: PLW0603
    if _tracer is not None:
        _tracer.close()
        _tracer = None


def wanted(environ: Mapping[str, str]) -> bool:
    """Whether the environment asks for traces, and in a way that they can be sent."""

    def value(name: str) -> str:
        return environ.get(name, "").strip().lower()

    exporter = value("OTEL_TRACES_EXPORTER")
    if value("OTEL_SDK_DISABLED") == "true" or exporter == "none":
        return False
    asked = exporter == "otlp" or (not exporter and any(map(value, ENDPOINTS)))
    of_traces, of_all = map(value, PROTOCOLS)
    protocol = of_traces or of_all
    if asked and protocol not in ("", "http/protobuf"):
        _warn("set OTEL_EXPORTER_OTLP_PROTOCOL to http/protobuf")
        return False
    return asked


def _warn(remedy: str) -> None:
    from aegish_dist.logs import get_logger  # noqa: PLC0415  takes as long as a short command

    get_logger(__name__).warning("tracing_is_off", remedy=remedy)


def run_tracer() -> RunTracer | None:
    """Return what makes spans in this process; None while it does not trace."""
    return _tracer


def first_span(run_id: str, attributes: Attributes) -> AbstractContextManager[object]:
    """Trace the beginning of a run: the first span of its trace."""
    return _OFF if _tracer is None else _tracer.first(run_id, attributes)


def span(
    name: str, run_id: str, attributes: Attributes | None = None
) -> AbstractContextManager[object]:
    return _OFF if _tracer is None else _tracer.span(name, run_id, attributes or {})


def item_span(item: Item, traceparent: object) -> AbstractContextManager[object]:
    """Trace the work of a worker on an item among those with spans; `traceparent` is untrusted."""
    return _OFF if _tracer is None else _tracer.item(item, traceparent)


def part_span(name: str) -> AbstractContextManager[object]:
    """Trace a part of the work on an item that has a span; of others it has none."""
    return _OFF if _tracer is None else _tracer.part(name, {})


def call_span(name: str, attributes: Attributes) -> AbstractContextManager[object]:
    """Trace a call of a model for an item that has a span."""
    return _OFF if _tracer is None else _tracer.call(name, attributes)


def note(attributes: Attributes) -> None:
    if _tracer is not None:
        _tracer.note(attributes)


def message_headers() -> dict[str, str]:
    return {} if _tracer is None else _tracer.headers()

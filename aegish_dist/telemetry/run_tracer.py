"""Spans of runs. Imports OpenTelemetry, and so is imported only where traces are wanted.

A run is one trace. Its id and that of its first span follow from the id of the run, so every
process of a fleet adds to the same trace, and a broker that loses its content loses no trace.
"""

import atexit
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import NamedTuple, Self

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from aegish_dist import __version__
from aegish_dist.core.verdict import Item
from aegish_dist.errors import RequeueError
from aegish_dist.telemetry import TRACEPARENT, Attributes

FLUSH_S = 5.0  # seconds that an ending process gives the last spans to be sent
RUN, MODEL, SAMPLE = "aegish_dist.run.id", "aegish_dist.model", "aegish_dist.sample.key"
EPOCH, GENERATION = "aegish_dist.epoch", "aegish_dist.generation"
REQUEUED = "aegish_dist.requeued"  # why an item went back to its queue
_PROPAGATOR = TraceContextTextMapPropagator()


class TraceIds(NamedTuple):
    """The ids of a run's trace and of the first span in it."""

    trace_id: int
    span_id: int


def trace_ids(run_id: str) -> TraceIds:
    digest = hashlib.sha256(run_id.encode("utf-8", "surrogatepass")).digest()
    return TraceIds(int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:24], "big"))


class _Ids(RandomIdGenerator):
    """Random ids, but for the first span of a run."""

    def __init__(self) -> None:
        self.next: ContextVar[TraceIds | None] = ContextVar("aegish_dist_trace_ids", default=None)

    def generate_trace_id(self) -> int:
        given = self.next.get()
        return super().generate_trace_id() if given is None else given.trace_id

    def generate_span_id(self) -> int:
        given = self.next.get()
        return super().generate_span_id() if given is None else given.span_id


class RunTracer:
    def __init__(self, processor: SpanProcessor, resource: Resource | None = None) -> None:
        self._ids = _Ids()
        self._provider = TracerProvider(
            id_generator=self._ids, resource=resource, shutdown_on_exit=False
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("aegish_dist", __version__)
        atexit.register(self.close)

    @classmethod
    def open(cls) -> Self:
        return cls(BatchSpanProcessor(OTLPSpanExporter()), _resource())

    def close(self) -> None:
        """Send the last spans, and leave those that a silent collector does not take in time."""
        atexit.unregister(self.close)
        # OpenTelemetry's own limits are not kept: each group of spans is tried for 10 s.
        sender = threading.Thread(target=self._provider.shutdown, daemon=True)
        sender.start()
        sender.join(FLUSH_S)

    @contextmanager
    def first(self, run_id: str, attributes: Attributes) -> Iterator[Span]:
        """Trace the beginning of a run; linked to the span of the caller, if there is one."""
        caller = trace.get_current_span().get_span_context()
        token = self._ids.next.set(trace_ids(run_id))
        try:
            begun = self._tracer.start_span(
                "submit",
                Context(),
                SpanKind.PRODUCER,
                {RUN: run_id, **attributes},
                [trace.Link(caller)] if caller.is_valid else None,
            )
        finally:
            self._ids.next.reset(token)
        with trace.use_span(begun, end_on_exit=True, record_exception=False):
            yield begun

    def span(self, name: str, run_id: str, attributes: Attributes) -> AbstractContextManager[Span]:
        """Trace work on a run, below the current span if that belongs to the run."""
        current = trace.get_current_span().get_span_context()
        inside = current.trace_id == trace_ids(run_id).trace_id
        return self._tracer.start_as_current_span(
            name,
            None if inside else self._beginning(run_id),
            attributes={RUN: run_id, **attributes},
            record_exception=False,
        )

    @contextmanager
    def item(self, item: Item, traceparent: object) -> Iterator[Span]:
        with self._tracer.start_as_current_span(
            "evaluate",
            self._publisher(item.run_id, traceparent),
            SpanKind.CONSUMER,
            {
                RUN: item.run_id,
                MODEL: item.model,
                SAMPLE: item.sample_key,
                EPOCH: item.epoch,
                GENERATION: item.generation,
            },
            record_exception=False,
            set_status_on_exception=False,
        ) as made:
            try:
                yield made
            except RequeueError as error:
                made.set_attribute(REQUEUED, type(error).__name__)
                raise
            except BaseException as error:
                made.set_attribute("error.type", type(error).__name__)
                made.set_status(trace.StatusCode.ERROR)
                raise

    def part(
        self, name: str, attributes: Attributes, kind: SpanKind = SpanKind.INTERNAL
    ) -> AbstractContextManager[Span | None]:
        """Trace a part of the work on an item, None for an item without a span."""
        if not trace.get_current_span().is_recording():
            return nullcontext()
        return self._tracer.start_as_current_span(
            name, None, kind, attributes, record_exception=False
        )

    def call(self, name: str, attributes: Attributes) -> AbstractContextManager[Span | None]:
        return self.part(name, attributes, SpanKind.CLIENT)

    def note(self, attributes: Attributes) -> None:
        trace.get_current_span().set_attributes(attributes)

    def headers(self) -> dict[str, str]:
        """Return the headers of messages that are published within the current span."""
        headers: dict[str, str] = {}
        _PROPAGATOR.inject(headers)
        return headers

    def _publisher(self, run_id: str, traceparent: object) -> Context:
        """Return the span that published a message, if of this trace, or else the first one."""
        named = {TRACEPARENT: traceparent} if isinstance(traceparent, str) else {}
        publisher = _PROPAGATOR.extract(named, Context())
        found = trace.get_current_span(publisher).get_span_context()
        inside = found.trace_id == trace_ids(run_id).trace_id
        return publisher if inside else self._beginning(run_id)

    def _beginning(self, run_id: str) -> Context:
        """Return the first span of a run, sampled as this process would have sampled it."""
        ids = trace_ids(run_id)
        sampled = self._provider.sampler.should_sample(None, ids.trace_id, "submit")
        taken = sampled.decision is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags(TraceFlags.SAMPLED if taken else TraceFlags.DEFAULT)
        first = NonRecordingSpan(SpanContext(*ids, is_remote=True, trace_flags=flags))
        return trace.set_span_in_context(first, Context())


def _resource() -> Resource:
    """Return the facts of this process; a name that the environment gives stands above ours."""
    given = Resource.create({"process.pid": os.getpid(), "host.name": os.uname().nodename})
    ours = {"service.version": __version__}
    if str(given.attributes.get("service.name", "")).startswith("unknown_service"):
        ours["service.name"] = "aegish-dist"
    return given.merge(Resource(ours))

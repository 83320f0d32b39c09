"""A collector of OpenTelemetry on loopback: takes OTLP over HTTP, and keeps the spans."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from msgspec import Struct
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.http_server import serving


class CollectedSpan(Struct, frozen=True):
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: str
    facts: dict[str, object]
    process: int
    failed: bool


class SpanCollector:
    """Keeps the spans of all processes that send to it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.spans: list[CollectedSpan] = []
        self.raw = b""

    @property
    def environ(self) -> dict[str, str]:
        """Variables that make a process send its traces here, soon."""
        return {"OTEL_EXPORTER_OTLP_ENDPOINT": self.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}

    def named(self, name: str) -> list[CollectedSpan]:
        return [span for span in self.spans if span.name == name]

    def take(self, body: bytes) -> None:
        self.raw += body
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            facts = {fact.key: fact.value.int_value for fact in resource.resource.attributes}
            for scope in resource.scope_spans:
                self.spans += [_span(span, facts.get("process.pid", 0)) for span in scope.spans]


def _span(span: Span, process: int) -> CollectedSpan:
    facts: dict[str, object] = {}
    for fact in span.attributes:
        kind = fact.value.WhichOneof("value")
        facts[fact.key] = (
            [each.string_value for each in fact.value.array_value.values]
            if kind == "array_value"
            else getattr(fact.value, kind or "string_value")
        )
    return CollectedSpan(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        facts,
        process,
        span.status.code == 2,
    )


@contextmanager
def collecting() -> Iterator[SpanCollector]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.take(self.rfile.read(int(self.headers["Content-Length"])))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    collector = SpanCollector("")
    with serving(Handler) as collector.url:
        yield collector

"""Metrics of a process for Prometheus: counts of a worker's work, and the pages for its scrapes.

`measures.toml` is the catalogue of measures.

Loaded only where served: `prometheus_client` takes a tenth of a start.
"""

import gzip
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from socketserver import TCPServer, ThreadingMixIn
from typing import Any, Literal, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from msgspec import Struct, toml
from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from aegish_dist.core.isolation import Shares
from aegish_dist.core.tally import TOKEN_KINDS
from aegish_dist.core.text import printable
from aegish_dist.core.verdict import CallError, Timing, Usage, Verdict
from aegish_dist.errors import ConfigError
from aegish_dist.logs import get_logger

log = get_logger(__name__)

MOST_MODELS = 200  # get series of their own in the life of a process; the others share one
OTHER_MODELS = "other"
PARTS = ("queue", "limiter", "backoff", "service")
PLACES = 16  # requests of one client address that are answered at the same time
PATIENCE_S = 5.0  # for which a client may be silent while it asks or reads the answer

Series = Mapping[tuple[str, ...], float]  # by labels in the order of the catalogue
Readings = Mapping[str, Series]  # by measure; absent without a value

disable_created_metrics()  # type: ignore[no-untyped-call]  # series that the catalogue does not name


class FleetMeasure(Struct, frozen=True, forbid_unknown_fields=True):
    kind: Literal["counter", "gauge", "histogram"]
    name: str  # as it is exposed; a histogram's without `_bucket`, `_sum` and `_count`
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


_CATALOGUE = toml.decode(
    files(__package__).joinpath("measures.toml").read_bytes(),
    type=dict[str, tuple[FleetMeasure, ...]],
)
WORKER, EXPORTER = _CATALOGUE["worker"], _CATALOGUE["exporter"]


class WorkerMetrics:
    """Counts of the work of a process since it began; any thread may count and read."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._lock = threading.Lock()
        self._models: set[str] = set()
        self._of: dict[str, Any] = {}
        for measure in WORKER:
            if measure.kind != "gauge" and measure.name != "aegish_verdicts_spooled_total":
                self._of[measure.name] = self._new(measure)

    def _new(self, measure: FleetMeasure) -> Any:
        named = (measure.name, measure.help, measure.labels)
        if measure.kind == "counter":
            return Counter(*named, registry=self._registry)
        return Histogram(*named, registry=self._registry, buckets=measure.buckets)

    def stored(self, group: Sequence[tuple[str, Verdict]], seconds: float) -> None:
        for model, verdict in group:
            self._count(self._label(model), verdict)
        self._of["aegish_store_write_seconds"].observe(seconds)
        self._of["aegish_store_group_verdicts"].observe(len(group))

    def failed(self, model: str, call: CallError) -> None:
        """Count a call that failed, whether or not its item ends with it."""
        label = self._label(model)
        self._of["aegish_calls_total"].labels(label, call.error_class.value).inc()
        if call.attempt > 1:
            self._of["aegish_retries_total"].labels(label).inc()

    def bounded(
        self, series: Series, join: Callable[[float, float], float]
    ) -> dict[tuple[str, ...], float]:
        """Return gauges by model, as bounded as counters; `join` makes one value of two."""
        joined: dict[tuple[str, ...], float] = {}
        for (model, *rest), value in series.items():
            labels = (self._label(model), *rest)
            joined[labels] = join(joined[labels], value) if labels in joined else value
        return joined

    def collect(self) -> Iterable[Metric]:
        return self._registry.collect()

    def _label(self, model: str) -> str:
        with self._lock:
            if model not in self._models:
                if len(self._models) >= MOST_MODELS:
                    return OTHER_MODELS
                self._models.add(model)
        return printable(model)

    def _count(self, model: str, verdict: Verdict) -> None:
        self._of["aegish_verdicts_total"].labels(model, verdict.outcome.value).inc()
        completion = verdict.completion
        # Without a total time it was answered in a batch, and had no call of its own.
        if verdict.timing.total_ms is not None:
            self._count_times(model, verdict.timing)
            if completion is not None:
                self._of["aegish_calls_total"].labels(model, "answered").inc()
                self._of["aegish_retries_total"].labels(model).inc(bool(verdict.call_errors))
        if completion is not None:
            self._count_tokens(model, completion.usage)
        if verdict.cost_usd is not None:
            self._of["aegish_cost_usd_total"].labels(model).inc(float(verdict.cost_usd))

    def _count_times(self, model: str, timing: Timing) -> None:
        for part in PARTS:
            ms = getattr(timing, f"{part}_ms")
            if ms is not None:
                self._of["aegish_wait_seconds"].labels(model, part).observe(ms / 1000)

    def _count_tokens(self, model: str, usage: Usage) -> None:
        for kind in TOKEN_KINDS:
            number = getattr(usage, f"{kind}_tokens")
            if number is not None:
                self._of["aegish_tokens_total"].labels(model, kind).inc(number)


class TelemetryPage(NamedTuple):
    text: str
    good: bool = True  # whether its status is 200; else it is 503
    content_type: str = "text/plain; charset=utf-8"


class _Collected(Collector):
    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = [each for each in metrics if each.samples]

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def metrics_page(metrics: Iterable[Metric]) -> TelemetryPage:
    """Return a page of metrics; one without a value is left out."""
    text = generate_latest(_Collected(metrics)).decode()
    return TelemetryPage(text, content_type=CONTENT_TYPE_PLAIN_0_0_4)


def families(measures: Iterable[FleetMeasure], readings: Readings) -> Iterator[Metric]:
    """Return readings of gauges and counters as metrics, in the order of the measures."""
    for measure in measures:
        family = Metric(measure.name.removesuffix("_total"), measure.help, measure.kind)
        for values, value in readings.get(measure.name, {}).items():
            labels = dict(zip(measure.labels, map(printable, values), strict=True))
            family.add_sample(measure.name, labels, value)
        yield family


class TelemetryServer:
    """Serves pages by path, in threads, from the moment it is made until it is closed."""

    def __init__(
        self, host: str, port: int, pages: Mapping[str, Callable[[], TelemetryPage]]
    ) -> None:
        self._pages = pages
        server = _IPv6Server if ":" in host else _Server
        try:
            self._server = make_server(host, port, self._answer, server, _Handler)
        except (OSError, OverflowError, TypeError) as error:
            problem = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                f"metrics cannot be served on {host}:{port} ({problem}): give each process of a"
                " machine a --metrics-port of its own, or 0 for a free one, which the log names;"
                " --metrics-host names an address of this machine"
            ) from error
        name = f"[{host}]" if ":" in host else host
        # Root of the pages.
        self.url = f"http://{name}:{self._server.server_port}"
        threading.Thread(
            target=self._server.serve_forever, name="aegish-metrics", daemon=True
        ).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(
        self, request: dict[str, Any], start_response: Callable[..., object]
    ) -> list[bytes]:
        status, page = self._page(request["REQUEST_METHOD"], request["PATH_INFO"])
        body = page.text.encode()
        headers = {"Content-Type": page.content_type}
        if len(body) > 1000 and "gzip" in request.get("HTTP_ACCEPT_ENCODING", ""):
            body = gzip.compress(body, 1)
            headers["Content-Encoding"] = "gzip"
        headers["Content-Length"] = str(len(body))
        start_response(status, list(headers.items()))
        return [body]

    def _page(self, method: str, path: str) -> tuple[str, TelemetryPage]:
        if method != "GET":
            return "501 Not Implemented", TelemetryPage("only GET is answered\n")
        if path not in self._pages:
            known = " ".join(self._pages)
            return "404 Not Found", TelemetryPage(f"no such page; there are {known}\n")
        try:
            page = self._pages[path]()
        except Exception:
            log.exception("telemetry_failed", page=path)
            return "500 Internal Server Error", TelemetryPage("a bug; the log has it\n")
        return "200 OK" if page.good else "503 Service Unavailable", page


class _Server(ThreadingMixIn, WSGIServer):
    """Answers each request in a thread; a client that holds all its places loses the oldest one."""

    daemon_threads = True
    request_queue_size = 128  # with five, a probe beside a burst waits for seconds to connect
    allow_reuse_port = False  # newer Pythons would let two processes share it

    def __init__(self, *args: Any) -> None:
        self._places: Shares[socket.socket] = Shares(PLACES)
        self._lock = threading.Lock()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            oldest = self._places.oldest(client_address[0])
            if oldest is not None and not self._places.left(client_address[0]):
                self._places.release(client_address[0], oldest)
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread reads the end, and ends
            self._places.hold(client_address[0], request)
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        super().process_request_thread(request, client_address)
        with self._lock:
            self._places.release(client_address[0], request)

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's looks the name of the host up: seconds, perhaps
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Leave a connection that its client broke off."""


class _IPv6Server(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = PATIENCE_S

    def log_message(self, format: str, *args: Any) -> None:
        """Log no request: probes come every few seconds."""

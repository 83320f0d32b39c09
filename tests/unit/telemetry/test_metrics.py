"""Metrics of a worker, their page, and the server, read by Prometheus' own library and over HTTP."""

import gzip
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from decimal import Decimal
from http.client import HTTPConnection, HTTPResponse
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.verdict import CallError, Completion, Timing, Usage, Verdict
from aegish_dist.errors import ConfigError
from aegish_dist.telemetry.metrics import (
    MOST_MODELS,
    PLACES,
    FleetMeasure,
    TelemetryPage,
    TelemetryServer,
    WorkerMetrics,
    families,
    metrics_page,
)
from tests.services import wait_until

ITEMS = FleetMeasure("gauge", "aegish_items", "Items.", ("model",))
CALLS = FleetMeasure("counter", "aegish_calls_total", "Calls.")
NOW = datetime(2026, 11, 1, tzinfo=UTC)
ANSWER = Completion("{}", usage=Usage(100, 20, None, 5, None))
TIMING = Timing(1500.0, 0.0, 250.0, 900.0, 2650.0)


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *map(str, sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def counted(work: WorkerMetrics, name: str) -> dict[tuple[str, ...], float]:
    read = samples(metrics_page(work.collect()).text)
    return {key[1:]: value for key, value in read.items() if key[0] == name}


def bucket(work: WorkerMetrics, name: str, *labels: str) -> tuple[str, float]:
    buckets = counted(work, f"{name}_bucket")
    bound = next(key[0] for key, n in buckets.items() if key[1:] == labels and n)
    assert counted(work, f"{name}_count")[labels] == 1
    return bound, counted(work, f"{name}_sum")[labels]


def failed(attempt: int, kind: ErrorClass = ErrorClass.RATE_LIMIT) -> CallError:
    return CallError(attempt, kind, 429, None, "slow down", NOW)


def verdict(**fields: Any) -> Verdict:
    usual: dict[str, Any] = {"outcome": Outcome.BLOCK, "completion": ANSWER, "timing": TIMING}
    return Verdict(**(usual | fields))


def test_a_group_counts_once() -> None:
    work = WorkerMetrics()
    lost = verdict(outcome=Outcome.API_ERROR, completion=None, timing=Timing(total_ms=1.0))
    work.stored([("a/b", verdict(cost_usd=Decimal("0.5"))), ("a/b", verdict()), ("c/d", lost)], 0.3)
    assert counted(work, "aegish_verdicts_total") == {("a/b", "BLOCK"): 2, ("c/d", "API_ERROR"): 1}
    assert counted(work, "aegish_tokens_total") == {
        ("input", "a/b"): 200,
        ("output", "a/b"): 40,
        ("cache_read", "a/b"): 10,
    }
    assert counted(work, "aegish_cost_usd_total") == {("a/b",): 0.5}
    assert bucket(work, "aegish_store_group_verdicts") == ("5.0", 3.0)
    assert bucket(work, "aegish_store_write_seconds") == ("0.5", 0.3)


def test_times_are_counted_by_part() -> None:
    work = WorkerMetrics()
    work.stored([("a/b", verdict())], 0.0)
    expected = {"queue": ("2.0", 1.5), "limiter": ("0.005", 0)}
    expected |= {"backoff": ("0.25", 0.25), "service": ("1.0", 0.9)}
    assert {part: bucket(work, "aegish_wait_seconds", "a/b", part) for part in expected} == expected


def test_calls_and_retries() -> None:
    """Two 429s and an answer are three calls, of which two followed a failed one."""
    work = WorkerMetrics()
    work.failed("a/b", failed(1))
    work.failed("a/b", failed(2))
    work.stored([("a/b", verdict(call_errors=(failed(1), failed(2)), attempts=3))], 0.0)
    assert counted(work, "aegish_calls_total") == {("a/b", "rate_limit"): 2, ("a/b", "answered"): 1}
    assert counted(work, "aegish_retries_total") == {("a/b",): 2}


def test_a_batched_answer_is_no_call() -> None:
    work = WorkerMetrics()
    work.stored([("a/b", verdict(timing=Timing(), cost_usd=Decimal(1)))], 0.0)
    assert counted(work, "aegish_verdicts_total") == {("a/b", "BLOCK"): 1}
    assert counted(work, "aegish_calls_total") == {}
    assert counted(work, "aegish_wait_seconds_count") == {}
    assert counted(work, "aegish_cost_usd_total") == {("a/b",): 1.0}


def test_the_number_of_models_is_bounded() -> None:
    work = WorkerMetrics()
    for number in range(MOST_MODELS + 5):
        work.failed(f"a/{number}", failed(1))
    calls = counted(work, "aegish_calls_total")
    assert len(calls) == MOST_MODELS + 1
    assert calls["other", "rate_limit"] == 5


def test_a_page_names_what_has_a_value() -> None:
    page = metrics_page(families([ITEMS, CALLS], {CALLS.name: {(): 7}, ITEMS.name: {}}))
    assert page.text.splitlines() == [
        "# HELP aegish_calls_total Calls.",
        "# TYPE aegish_calls_total counter",
        "aegish_calls_total 7.0",
    ]
    assert page.content_type.startswith("text/plain; version=0.0.4")


def test_hostile_labels_stay_labels() -> None:
    name = 'a"} 1\naegish_calls_total 9\\'
    page = metrics_page(families([ITEMS], {ITEMS.name: {(name,): 3, ("\ud800\x1b[31m",): 4}})).text
    read = samples(page)
    assert {key[0] for key in read} == {"aegish_items"}
    assert sorted(read.values()) == [3, 4]
    assert page.isascii()


LONG = "aegish_items 1\n" * 100


def fails() -> TelemetryPage:
    raise KeyError("secret")


PAGES = {
    "/good": lambda: TelemetryPage("ok\n"),
    "/bad": lambda: TelemetryPage("no\n", good=False),
    "/long": lambda: TelemetryPage(LONG, content_type="text/plain; version=0.0.4"),
    "/fails": fails,
}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with closing(TelemetryServer("127.0.0.1", 0, PAGES)) as server:
        yield urlsplit(server.url).port or 0


def get(port: int, path: str, **headers: str) -> tuple[HTTPResponse, bytes]:
    with closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response, response.read()


def test_pages_answer_by_path(port: int) -> None:
    answers = {
        "/good?x=1": (200, b"ok\n"),
        "/bad": (503, b"no\n"),
        "/": (404, b"no such page; there are /good /bad /long /fails\n"),
    }
    found = {path: get(port, path) for path in answers}
    assert {path: (response.status, body) for path, (response, body) in found.items()} == answers


def test_a_long_page_is_compressed_for_those_that_ask(port: int) -> None:
    plain, text = get(port, "/long")
    packed, body = get(port, "/long", **{"Accept-Encoding": "gzip"})
    assert (plain.headers["Content-Encoding"], text.decode()) == (None, LONG)
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(body).decode() == LONG
    assert len(body) < len(text) / 10
    assert packed.headers["Content-Type"] == "text/plain; version=0.0.4"


def test_a_bug_is_answered_and_logged(port: int) -> None:
    with capture_logs() as logs:
        response, body = get(port, "/fails")
    assert response.status == 500
    assert b"secret" not in body
    assert [line["event"] for line in logs] == ["telemetry_failed"]


def test_other_methods_and_noise_are_refused(port: int) -> None:
    with closing(socket.create_connection(("127.0.0.1", port), 5)) as connection:
        connection.sendall(b"\x16\x03\x01 noise\r\n\r\n")
        connection.recv(1000)
    with closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        connection.request("POST", "/good", body=b"x")
        assert connection.getresponse().status == 501
    assert get(port, "/good")[0].status == 200


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1", "no-such-host.invalid", "\xe9" * 64])
def test_a_place_that_cannot_be_listened_on_is_one_line(port: int, host: str) -> None:
    with pytest.raises(ConfigError) as raised:
        TelemetryServer(host, port, PAGES)
    line = str(raised.value)
    assert f"{host}:{port}" in line
    assert "--metrics-port" in line
    assert "--metrics-host" in line
    assert "\n" not in line


def _served_at_once() -> int:
    return sum("process_request_thread" in each.name for each in threading.enumerate())


@pytest.mark.parametrize("client", ["127.0.0.1", "127.0.0.2"])
def test_idle_connections_keep_no_probe_from_its_answer(client: str) -> None:
    """A client that holds all of its places loses the oldest; it has none of another client."""
    with closing(TelemetryServer("127.0.0.1", 0, PAGES)) as server, ExitStack() as stack:
        place = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        idle = [
            stack.enter_context(socket.create_connection(place, 5, (client, 0)))
            for _ in range(3 * PLACES)
        ]
        with urlopen(f"{server.url}/good", timeout=2) as answer:
            assert answer.status == 200
        idle[0].settimeout(2)
        assert idle[0].recv(1) == b""  # its place was needed
        # The oldest that is left gave way to the probe, if they are of one client.
        wait_until(lambda: _served_at_once() <= PLACES + 1, "the threads of lost places to end")

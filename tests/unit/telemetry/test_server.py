"""The server for scrapers and probes, asked over HTTP."""

import gzip
import socket
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPResponse
from time import monotonic
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from aegish_dist.errors import ConfigError
from aegish_dist.telemetry.server import TelemetryPage, TelemetryServer

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
    """The port of a server of these pages."""
    with closing(TelemetryServer("127.0.0.1", 0, PAGES)) as server:
        yield urlsplit(server.url).port or 0


def get(port: int, path: str, **headers: str) -> tuple[HTTPResponse, bytes]:
    with closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response, response.read()


def test_pages_answer_by_path(port: int) -> None:
    """A query is no part of it; an unknown path names those that exist."""
    assert [(get(port, path)[0].status, get(port, path)[1]) for path in ("/good?x=1", "/bad")] == [
        (200, b"ok\n"),
        (503, b"no\n"),
    ]
    response, body = get(port, "/")
    assert (response.status, body) == (404, b"no such page; there are /good /bad /long /fails\n")


def test_a_long_page_is_compressed_for_those_that_ask(port: int) -> None:
    """And is the same text."""
    plain, text = get(port, "/long")
    packed, body = get(port, "/long", **{"Accept-Encoding": "gzip"})

    assert (plain.headers["Content-Encoding"], text.decode()) == (None, LONG)
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(body).decode() == LONG
    assert len(body) < len(text) / 10
    assert packed.headers["Content-Type"] == "text/plain; version=0.0.4"


def test_a_bug_is_answered_and_logged(port: int) -> None:
    """The answer says nothing of it."""
    with capture_logs() as logs:
        response, body = get(port, "/fails")
    assert response.status == 500
    assert b"secret" not in body
    assert [line["event"] for line in logs] == ["telemetry_failed"]


def test_other_methods_and_noise_are_refused(port: int) -> None:
    """The next request is answered all the same."""
    with closing(socket.create_connection(("127.0.0.1", port), 5)) as connection:
        connection.sendall(b"\x16\x03\x01 noise\r\n\r\n")
        connection.recv(1000)
    with closing(HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        connection.request("POST", "/good", body=b"x")
        assert connection.getresponse().status == 501
    assert get(port, "/good")[0].status == 200


def test_a_client_that_sends_a_byte_now_and_then_is_left(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a few of them would keep probes out, and a worker with calls in flight be restarted."""
    monkeypatch.setattr("aegish_dist.telemetry.server.PATIENCE_S", 0.3)
    began = monotonic()
    connection = socket.create_connection(("127.0.0.1", port), 0.1)
    with closing(connection), suppress(ConnectionError):
        while monotonic() - began < 3:
            connection.sendall(b"G")
            with suppress(TimeoutError):
                if not connection.recv(1):
                    break
    assert 0.3 <= monotonic() - began < 2


@pytest.mark.parametrize("host", ["127.0.0.1", "192.0.2.1", "no-such-host.invalid", "\xe9" * 64])
def test_a_place_that_cannot_be_listened_on_is_one_line(port: int, host: str) -> None:
    """A taken port, a foreign address, an unknown name: each names the options to change."""
    with pytest.raises(ConfigError) as raised:
        TelemetryServer(host, port, PAGES)
    line = str(raised.value)
    assert f"{host}:{port}" in line
    assert "--metrics-port" in line
    assert "--metrics-host" in line
    assert "\n" not in line

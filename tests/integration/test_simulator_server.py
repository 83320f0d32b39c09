"""The simulated provider over real HTTP on the loopback interface."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPMessage, IncompleteRead
from typing import Any, NamedTuple

import pytest

from aegish_dist.errors import ConfigError
from aegish_dist.simulator.config import (
    Capacity,
    FaultPlan,
    ModelConfig,
    SimulatorConfig,
)
from aegish_dist.simulator.personas import NO_LATENCY
from aegish_dist.simulator.server import Simulator, serving, simulator_thread
from tests.defined import defined
from tests.services import wait_until

DEADLINE_S = 10.0
OPENAI_PATH = "/v1/chat/completions"
FAST = SimulatorConfig(latency=NO_LATENCY)
BEARER = {"Authorization": "Bearer k"}


class Answer(NamedTuple):
    status: int
    headers: HTTPMessage
    body: Any


USER = {"role": "user", "content": "<command>ls</command>"}
OPENAI_BODY = {"model": "m", "messages": [{"role": "system", "content": "judge"}, USER]}
ANTHROPIC_BODY = {"model": "m", "max_tokens": 100, "messages": [USER]}
GOOGLE_BODY = {"contents": [{"role": "user", "parts": [{"text": "ls"}]}]}


def call(url: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> Answer:
    """Make one request: GET without a body, else POST."""
    with closing(HTTPConnection(url.removeprefix("http://"), timeout=DEADLINE_S)) as connection:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        method, sent = ("GET", None) if body is None else ("POST", content)
        connection.request(method, path, sent, headers or {})
        response = connection.getresponse()
        return Answer(response.status, response.headers, json.loads(response.read()))


def ask_openai(url: str, key: str = "k") -> Answer:
    return call(url, OPENAI_PATH, OPENAI_BODY, {"Authorization": f"Bearer {key}"})


def ask_anthropic(url: str, key: str = "k") -> Answer:
    return call(url, "/v1/messages", ANTHROPIC_BODY, {"x-api-key": key})


def ask_google(url: str, key: str = "k", model: str = "m") -> Answer:
    path = f"/v1beta/models/{model}:generateContent"
    return call(url, path, GOOGLE_BODY, {"x-goog-api-key": key})


ASKS = [ask_openai, ask_anthropic, ask_google]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with simulator_thread(Simulator(FAST)) as simulator:
        yield simulator.url


@pytest.mark.parametrize("model", ["microsoft/phi-4", "fdtn-ai/X:featherless-ai", "a:b/c"])
def test_model_names_may_hold_slashes_and_colons(url: str, model: str) -> None:
    assert ask_google(url, model=model).body["modelVersion"] == model
    quoted = model.replace("/", "%2F").replace(":", "%3A")
    assert ask_google(url, model=quoted).body["modelVersion"] == model


def test_a_root_path_may_precede_the_endpoint(url: str) -> None:
    assert call(url, "/openrouter/api" + OPENAI_PATH, OPENAI_BODY, BEARER).status == 200


KEYS = {401: ("k", "Basic k", "Bearer", "Bearerk", "bearer invalid", "Token k"),
        200: ("Bearer k", "bearer k", "BEARER  k")}  # fmt: skip


def test_a_key_that_is_invalid_or_no_bearer_token_is_401(url: str) -> None:
    for ask in ASKS:
        answer = ask(url, key="invalid")
        assert (answer.status, bool(answer.body["error"]["message"])) == (401, True)
    for status, keys in KEYS.items():
        for key in keys:
            header = {"Authorization": key}
            assert call(url, OPENAI_PATH, OPENAI_BODY, header).status == status


HOSTS = {
    421: ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::2]", "other:8400"),
    200: ("127.0.0.1", "127.0.0.1:1", "localhost:8099", "LOCALHOST", "[::1]:80", "simulator:8400"),
}


def test_hosts_that_are_not_named_are_not_answered_for() -> None:
    """A name that a web page has pointed at 127.0.0.1 reaches nothing, the counters neither."""
    config = SimulatorConfig(latency=NO_LATENCY, hosts=frozenset({"simulator"}))
    with simulator_thread(Simulator(config)) as simulator:
        for status, hosts in HOSTS.items():
            for host in hosts:
                headers = {"Host": host, **BEARER}
                for path, body in ((OPENAI_PATH, OPENAI_BODY), ("/stats", None), ("/health", None)):
                    assert call(simulator.url, path, body, headers).status == status


def test_a_stream_is_refused_in_each_format(url: str) -> None:
    """A client that asked for events must not get an answer in one piece."""
    openai = call(url, OPENAI_PATH, {**OPENAI_BODY, "stream": True}, BEARER)
    assert (openai.status, openai.body["error"]["param"]) == (400, "stream")
    assert openai.body["error"]["type"] == "invalid_request_error"
    body = {**ANTHROPIC_BODY, "stream": True}
    anthropic = call(url, "/v1/messages", body, {"x-api-key": "k"})
    assert (anthropic.status, anthropic.body["error"]["type"]) == (400, "invalid_request_error")
    path = "/v1beta/models/m:streamGenerateContent?alt=sse"
    google = call(url, path, GOOGLE_BODY, {"x-goog-api-key": "k"})
    assert (google.status, google.body["error"]["status"]) == (400, "INVALID_ARGUMENT")
    plain = {**OPENAI_BODY, "stream": False}
    assert call(url, OPENAI_PATH, plain, BEARER).status == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"model": "m"}'])
def test_a_broken_request_is_400(url: str, body: bytes) -> None:
    answer = call(url, OPENAI_PATH, body, BEARER)
    assert (answer.status, answer.body["error"]["type"]) == (400, "invalid_request_error")


def test_other_paths_and_methods(url: str) -> None:
    assert call(url, "/v2/nothing", {}).status == 404
    assert call(url, OPENAI_PATH).status == 405
    assert call(url, "/health").body == {"status": "ok"}


ERRORS = {
    "rate_limit": (429, 429, 429),
    "quota": (429, 400, 429),
    "auth": (401, 401, 401),
    "not_found": (404, 404, 404),
    "server_error": (500, 500, 500),
    "overloaded": (503, 529, 503),
}


@pytest.mark.parametrize("fault", ERRORS)
def test_error_faults_have_the_providers_statuses(fault: str) -> None:
    faults = FaultPlan(retry_after_s=0.25)
    config = SimulatorConfig(models={"m": ModelConfig(script=[fault] * 3)}, faults=faults)
    with simulator_thread(Simulator(config)) as simulator:
        answers = [ask(simulator.url) for ask in ASKS]
    assert tuple(answer.status for answer in answers) == ERRORS[fault]
    expected = "0.25" if fault == "rate_limit" else None
    assert [answer.headers["Retry-After"] for answer in answers] == [expected] * 3


RETRY_AFTER = [({}, "1"), ({"retry_after_s": "absent"}, None), ({"retry_after_s": 0}, "0")]


@pytest.mark.parametrize(("given", "header"), RETRY_AFTER)
def test_a_scenario_chooses_the_retry_after_of_random_refusals(
    given: dict[str, Any], header: str | None
) -> None:
    config = SimulatorConfig(faults=FaultPlan(rate_limit=1, **given))
    with simulator_thread(Simulator(config)) as simulator:
        answers = [ask(simulator.url) for ask in ASKS]
    assert [answer.headers["Retry-After"] for answer in answers] == [header] * 3
    assert ("retryDelay" in json.dumps(answers[2].body)) == (header is not None)


def begin_call(url: str) -> HTTPConnection:
    connection = HTTPConnection(url.removeprefix("http://"), timeout=DEADLINE_S)
    content = json.dumps(OPENAI_BODY).encode()
    connection.request("POST", OPENAI_PATH, content, BEARER)
    return connection


def test_a_congested_model_refuses_calls_when_its_queue_is_too_long() -> None:
    own = ModelConfig("constant:600", capacity=Capacity(1 / 600, longest_queue_s=500))
    config = SimulatorConfig(models={"m": own})
    with simulator_thread(Simulator(config)) as simulator, closing(begin_call(simulator.url)):
        wait_until(lambda: simulator.stats.in_flight == 1, "the call")
        assert ask_openai(simulator.url).status == 503
        assert ask_anthropic(simulator.url).status == 529
        assert simulator.stats.throttled == 2


def test_faults_of_the_connection_and_of_the_body() -> None:
    script = ("reset", "truncated", "malformed", "ok")
    config = SimulatorConfig(latency=NO_LATENCY, models={"m": ModelConfig(script=script)})
    with simulator_thread(Simulator(config)) as simulator:
        with pytest.raises(ConnectionResetError):
            ask_openai(simulator.url)
        with pytest.raises(IncompleteRead) as cut:
            ask_openai(simulator.url)
        assert cut.value.partial
        with pytest.raises(json.JSONDecodeError):
            ask_openai(simulator.url)
        assert ask_openai(simulator.url).status == 200
        stats = call(simulator.url, "/stats").body
    assert stats["faults"] == {"reset": 1, "truncated": 1, "malformed": 1}
    assert stats["requests"] == {"m": 4}


def test_a_hanging_call_ends_with_its_client_at_its_limit_or_at_the_end() -> None:
    """Stopping does not wait for such calls."""
    limited = SimulatorConfig(faults=FaultPlan(hang=1.0, hang_s=0.01))
    with simulator_thread(Simulator(limited)) as simulator, pytest.raises(ConnectionError):
        ask_openai(simulator.url)
    with simulator_thread(Simulator(SimulatorConfig(faults=FaultPlan(hang=1.0)))) as simulator:
        for closes in (True, False):
            connection = begin_call(simulator.url)
            wait_until(lambda: simulator.stats.in_flight == 1, "the call")
            if closes:
                connection.close()
                wait_until(lambda: simulator.stats.in_flight == 0, "its end")
        leaving = time.monotonic()
    assert time.monotonic() - leaving < DEADLINE_S / 2
    with closing(connection), pytest.raises(ConnectionError):
        connection.getresponse()


async def serve(port: int) -> None:
    async with serving(Simulator(SimulatorConfig(port=port))):
        pass


def test_a_taken_port_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        problem = (
            f"cannot listen on 127.0.0.1:{port}: .*; use the simulator .*, or choose another port"
        )
        with pytest.raises(ConfigError, match=problem):
            asyncio.run(serve(port))
        with (
            pytest.raises(ConfigError, match=problem),
            simulator_thread(Simulator(SimulatorConfig(port=port))),
        ):
            pass


SCRIPT = """
from aegish_dist.simulator.config import SimulatorConfig
from aegish_dist.simulator.server import Simulator, run_forever
run_forever(Simulator(SimulatorConfig()), lambda server: print(server.url, flush=True))
print("stopped")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_ends_cleanly_on_a_signal(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        url = defined(process.stdout).readline().strip()
        assert url.startswith("http://127.0.0.1:")
        assert call(url, "/health").status == 200
        process.send_signal(number)
        output, errors = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, output, errors) == (0, "stopped\n", "")

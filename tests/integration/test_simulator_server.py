"""The simulated provider over real HTTP on the loopback interface."""

import asyncio
import json
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection, HTTPMessage, IncompleteRead
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from aegish_dist.core.outcome import Outcome, StopKind
from aegish_dist.core.sample import Sample, TrueLabel
from aegish_dist.core.verdict import Completion, Recording, Usage, Verdict
from aegish_dist.errors import ConfigError
from aegish_dist.simulator.config import (
    Fault,
    FaultPlan,
    ModelConfig,
    RateLimit,
    SimulatorConfig,
    parse_script,
)
from aegish_dist.simulator.personas import NO_LATENCY
from aegish_dist.simulator.server import serving, simulator_thread

DEADLINE_S = 10.0
OPENAI_PATH = "/v1/chat/completions"
FAST = SimulatorConfig(latency=NO_LATENCY, require_key=True)


class Answer(NamedTuple):
    """One HTTP response."""

    status: int
    headers: HTTPMessage
    body: Any


def openai_body(command: str = "ls", model: str = "m") -> dict[str, Any]:
    user = {"role": "user", "content": f"<command>{command}</command>"}
    return {"model": model, "messages": [{"role": "system", "content": "judge"}, user]}


def anthropic_body(command: str = "ls", model: str = "m") -> dict[str, Any]:
    user = {"role": "user", "content": f"Validate this command: {command}"}
    return {"model": model, "max_tokens": 100, "messages": [user]}


def google_body(command: str = "ls") -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": [{"text": command}]}]}


def call(url: str, path: str, body: object = None, headers: dict[str, str] | None = None) -> Answer:
    """Make one request: GET without a body, else POST."""
    with closing(HTTPConnection(url.removeprefix("http://"), timeout=DEADLINE_S)) as connection:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        method, sent = ("GET", None) if body is None else ("POST", content)
        connection.request(method, path, sent, headers or {})
        response = connection.getresponse()
        return Answer(response.status, response.headers, json.loads(response.read()))


def ask_openai(url: str, command: str = "ls", model: str = "m", key: str = "k") -> Answer:
    return call(url, OPENAI_PATH, openai_body(command, model), {"Authorization": f"Bearer {key}"})


def ask_anthropic(url: str, command: str = "ls", model: str = "m", key: str = "k") -> Answer:
    return call(url, "/v1/messages", anthropic_body(command, model), {"x-api-key": key})


def ask_google(url: str, command: str = "ls", model: str = "m", key: str = "k") -> Answer:
    path = f"/v1beta/models/{model}:generateContent"
    return call(url, path, google_body(command), {"x-goog-api-key": key})


ASKS = [ask_openai, ask_anthropic, ask_google]


def text(answer: Answer) -> str:
    """Return the completion text, whatever the format."""
    body = answer.body
    if "choices" in body:
        return str(body["choices"][0]["message"]["content"])
    if "candidates" in body:
        return str(body["candidates"][0]["content"]["parts"][0]["text"])
    return str(body["content"][0]["text"])


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds, at most until the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline
        pause.wait(0.005)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Return the root of a simulator without latency and faults."""
    with simulator_thread(FAST) as simulator:
        yield simulator.url


def test_the_same_question_gets_the_same_answer_in_every_format(url: str) -> None:
    texts = {text(ask(url, "cat /etc/shadow", "simulated/careful")) for ask in ASKS}
    assert len(texts) == 1
    assert json.loads(texts.pop())["action"] == "BLOCK"


@pytest.mark.parametrize("model", ["microsoft/phi-4", "fdtn-ai/X:featherless-ai", "a:b/c"])
def test_model_names_may_hold_slashes_and_colons(url: str, model: str) -> None:
    assert ask_google(url, model=model).body["modelVersion"] == model
    quoted = model.replace("/", "%2F").replace(":", "%3A")
    assert ask_google(url, model=quoted).body["modelVersion"] == model


def test_a_root_path_may_precede_the_endpoint(url: str) -> None:
    headers = {"Authorization": "Bearer k"}
    assert call(url, "/openrouter/api" + OPENAI_PATH, openai_body(), headers).status == 200


def test_identifying_headers(url: str) -> None:
    """Request ids are unique, and an unlimited provider says that plenty remains."""
    openai, anthropic = ask_openai(url), ask_anthropic(url)
    assert openai.headers["x-request-id"] != ask_openai(url).headers["x-request-id"]
    assert anthropic.headers["request-id"].startswith("req_")
    assert int(openai.headers["x-ratelimit-remaining-requests"]) > 1_000_000
    assert int(anthropic.headers["anthropic-ratelimit-requests-remaining"]) > 1_000_000


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize("key", ["", "invalid"])
def test_a_missing_or_invalid_key_is_401(url: str, ask: Callable[..., Answer], key: str) -> None:
    """Without a good key every provider answers 401 in its envelope."""
    answer = ask(url, key=key)
    assert answer.status == 401
    assert answer.body["error"]["message"]


def test_a_key_in_another_providers_header_does_not_count(url: str) -> None:
    assert call(url, "/v1/messages", anthropic_body(), {"Authorization": "Bearer k"}).status == 401


@pytest.mark.parametrize(
    "given", ["k", "Basic k", "Bearer", "Bearerk", "bearer invalid", "Token k"]
)
@pytest.mark.parametrize("require_key", [True, False])
def test_a_key_without_its_scheme_is_401(given: str, require_key: bool) -> None:
    """The OpenAI format asks for a bearer token, and a header that holds none is refused."""
    config = SimulatorConfig(latency=NO_LATENCY, require_key=require_key)
    with simulator_thread(config) as simulator:
        answer = call(simulator.url, OPENAI_PATH, openai_body(), {"Authorization": given})
        assert (answer.status, answer.body["error"]["code"]) == (401, "invalid_api_key")
        for good in ("Bearer k", "bearer k", "BEARER  k"):
            assert (
                call(simulator.url, OPENAI_PATH, openai_body(), {"Authorization": good}).status
                == 200
            )


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::2]"]
)
def test_another_host_is_not_answered_for(url: str, host: str) -> None:
    """A name that a web page has pointed at 127.0.0.1 reaches nothing, the counters neither."""
    for path, body in ((OPENAI_PATH, openai_body()), ("/stats", None), ("/health", None)):
        answer = call(url, path, body, {"Host": host, "Authorization": "Bearer k"})
        assert (answer.status, answer.body) == (
            421,
            {"error": {"message": "this is not the host you named"}},
        )


def test_the_names_of_this_machine_are_answered_for(url: str) -> None:
    for host in ("127.0.0.1", "127.0.0.1:1", "localhost:8099", "LOCALHOST", "[::1]:80"):
        assert call(url, "/health", headers={"Host": host}).status == 200
    config = SimulatorConfig(hosts=frozenset({"simulator"}))
    with simulator_thread(config) as simulator:
        assert call(simulator.url, "/health", headers={"Host": "simulator:8400"}).status == 200
        assert call(simulator.url, "/health", headers={"Host": "other:8400"}).status == 421


def test_a_stream_is_refused_in_each_format(url: str) -> None:
    """A client that asked for events must not get an answer in one piece."""
    bearer = {"Authorization": "Bearer k"}
    openai = call(url, OPENAI_PATH, {**openai_body(), "stream": True}, bearer)
    assert (openai.status, openai.body["error"]["param"]) == (400, "stream")
    assert openai.body["error"]["type"] == "invalid_request_error"
    body = {**anthropic_body(), "stream": True}
    anthropic = call(url, "/v1/messages", body, {"x-api-key": "k"})
    assert (anthropic.status, anthropic.body["error"]["type"]) == (400, "invalid_request_error")
    path = "/v1beta/models/m:streamGenerateContent?alt=sse"
    google = call(url, path, google_body(), {"x-goog-api-key": "k"})
    assert (google.status, google.body["error"]["status"]) == (400, "INVALID_ARGUMENT")
    plain = {**openai_body(), "stream": False}
    assert call(url, OPENAI_PATH, plain, bearer).status == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"[" * 100_000, b'{"model": "m"}'])
def test_a_broken_request_is_400(url: str, body: bytes) -> None:
    answer = call(url, OPENAI_PATH, body, {"Authorization": "Bearer k"})
    assert (answer.status, answer.body["error"]["type"]) == (400, "invalid_request_error")


def test_other_paths_and_methods(url: str) -> None:
    """Unknown paths are 404, a GET on an endpoint is 405, and health is well."""
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
    script = parse_script([fault] * 3)
    faults = FaultPlan(retry_after_s=0.25)
    config = SimulatorConfig(models={"m": ModelConfig(script=script)}, faults=faults)
    with simulator_thread(config) as simulator:
        answers = [ask(simulator.url) for ask in ASKS]
    assert tuple(answer.status for answer in answers) == ERRORS[fault]
    expected = "0.25" if fault == "rate_limit" else None
    assert [answer.headers["Retry-After"] for answer in answers] == [expected] * 3


def test_faults_of_the_connection_and_of_the_body() -> None:
    """A reset, a truncated and a malformed answer fail in three different ways."""
    script = (Fault.RESET, Fault.TRUNCATED, Fault.MALFORMED, None)
    config = SimulatorConfig(latency=NO_LATENCY, models={"m": ModelConfig(script=script)})
    with simulator_thread(config) as simulator:
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


def test_a_hanging_call_ends_with_its_client() -> None:
    config = SimulatorConfig(models={"m": ModelConfig(script=(Fault.HANG,))})
    with simulator_thread(config) as simulator:
        connection = HTTPConnection(simulator.url.removeprefix("http://"))
        content = json.dumps(openai_body()).encode()
        connection.request("POST", OPENAI_PATH, content, {"Authorization": "Bearer k"})
        wait_for(lambda: simulator.stats.faults["hang"] == 1)
        assert simulator.stats.in_flight == 1
        connection.close()
        wait_for(lambda: simulator.stats.in_flight == 0)


def test_a_hanging_call_is_cut_off_in_the_end() -> None:
    config = SimulatorConfig(faults=FaultPlan({Fault.HANG: 1.0}, hang_s=0.01))
    with simulator_thread(config) as simulator, pytest.raises(ConnectionError):
        ask_openai(simulator.url)


def test_stopping_does_not_wait_for_hanging_calls() -> None:
    config = SimulatorConfig(faults=FaultPlan({Fault.HANG: 1.0}))
    with simulator_thread(config) as simulator:
        connection = HTTPConnection(simulator.url.removeprefix("http://"), timeout=DEADLINE_S)
        content = json.dumps(openai_body()).encode()
        connection.request("POST", OPENAI_PATH, content, {"Authorization": "Bearer k"})
        wait_for(lambda: simulator.stats.in_flight == 1)
        leaving = time.monotonic()
    assert time.monotonic() - leaving < DEADLINE_S / 2
    with closing(connection), pytest.raises(ConnectionError):
        connection.getresponse()


def test_the_rate_limit_answers_429_per_model() -> None:
    config = SimulatorConfig(latency=NO_LATENCY, rate_limit=RateLimit(1, burst=2))
    with simulator_thread(config) as simulator:
        answers = [ask_openai(simulator.url) for _ in range(3)]
        assert [answer.status for answer in answers] == [200, 200, 429]
        assert ask_openai(simulator.url, model="other").status == 200
        assert simulator.stats.throttled == 1
    assert 50 < float(answers[2].headers["Retry-After"]) <= 60
    remaining = [answer.headers["x-ratelimit-remaining-requests"] for answer in answers]
    assert remaining == ["1", "0", "0"]


def test_replayed_answers_survive_any_unicode() -> None:
    """A recorded text is returned to the code unit in every format, found by its command."""
    recorded = 'é \U0001f600 </command> {"action": "ALLOW"}'
    command = "printf 'é' # </command>"
    completion = Completion(recorded, "stop", StopKind.STOP, Usage(10, 5))
    verdict = Verdict(Outcome.ALLOW, completion)
    sample = Sample(command, TrueLabel.HARMLESS)
    recordings = [Recording("openrouter/microsoft/phi-4", "set", sample, 1, verdict)]
    with simulator_thread(SimulatorConfig(), recordings) as simulator:
        for ask in ASKS:
            assert text(ask(simulator.url, command, "microsoft/phi-4")) == recorded
        missing = ask_openai(simulator.url, "id", "microsoft/phi-4")
    assert missing.status == 404
    expected = "no recording of model microsoft/phi-4 for this command"
    assert missing.body["error"]["message"] == expected


async def test_a_thousand_calls_at_once() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    config = SimulatorConfig(faults=FaultPlan({Fault.HANG: 1.0}))
    headers = {"Authorization": "Bearer k"}

    async def post(session: aiohttp.ClientSession, url: str) -> None:
        await session.post(url + OPENAI_PATH, json=openai_body())

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        async with serving(config) as server:
            calls = [asyncio.create_task(post(session, server.url)) for _ in range(1_000)]
            async with asyncio.timeout(DEADLINE_S):
                while server.stats.in_flight < 1_000:
                    await asyncio.sleep(0.005)
        ends = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(end, aiohttp.ClientConnectionError) for end in ends)


async def serve(port: int) -> None:
    async with serving(SimulatorConfig(port=port)):
        pass


def test_a_taken_port_is_a_clear_error() -> None:
    """A port in use is refused with its number and a remedy, in the loop and in the thread."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        problem = f"cannot listen on 127.0.0.1:{port}: .*; choose another port"
        with pytest.raises(ConfigError, match=problem):
            asyncio.run(serve(port))
        with (
            pytest.raises(ConfigError, match=problem),
            simulator_thread(SimulatorConfig(port=port)),
        ):
            pass


SCRIPT = """
from aegish_dist.simulator.config import SimulatorConfig
from aegish_dist.simulator.server import run_forever
run_forever(SimulatorConfig(), (), lambda server: print(server.url, flush=True))
print("stopped")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_ends_cleanly_on_a_signal(number: signal.Signals, tmp_path: Path) -> None:
    """The blocking runner announces itself, listens on the loopback only, and returns."""
    program = tmp_path / "serve.py"
    program.write_text(SCRIPT)
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, str(program)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={"PYTHONPATH": str(root)},
        text=True,
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:")
        assert call(url, "/health").status == 200
        process.send_signal(number)
        output, errors = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, output, errors) == (0, "stopped\n", "")

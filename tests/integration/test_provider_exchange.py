"""The HTTP client against servers on loopback that behave and misbehave."""

import asyncio
import base64
import gzip
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from aegish_dist.core.model import CallParameters, ModelSpec, WireFormat
from aegish_dist.core.outcome import ErrorClass, StopKind
from aegish_dist.core.run import Prompt
from aegish_dist.core.secrets import SecretStr
from aegish_dist.core.verdict import Completion, Usage
from aegish_dist.errors import ProviderError
from aegish_dist.providers import lenient, session
from aegish_dist.providers.contract import ModelClient
from aegish_dist.providers.session import provider_session
from tests.batch_clients import serving
from tests.defined import defined

PROMPT = Prompt("guard", "Judge shell commands.", "Validate this command: {command}")
KEY = "sk-proj-0123456789abcdef"


Server = AbstractAsyncContextManager[str]  # runs while it is entered; yields its address


async def never() -> web.StreamResponse:
    forever: asyncio.Future[web.StreamResponse] = asyncio.get_running_loop().create_future()
    return await forever


def chat(text: str) -> dict[str, object]:
    return {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}


def hello() -> web.Response:
    return web.json_response(chat("hello"))


@asynccontextmanager
async def sending(reply: bytes) -> AsyncIterator[str]:
    """A server that sends raw bytes and hangs up, without bytes by a reset; yields its address."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        await writer.drain()
        if reply:
            writer.close()
        else:
            writer.transport.abort()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def client_of(
    base_url: str, wire: WireFormat = WireFormat.OPENAI, time_limit_s: float = 30.0, key: str = KEY
) -> AsyncIterator[ModelClient]:
    spec = ModelSpec("test/m", wire, "m", base_url)
    parameters = CallParameters(time_limit_s=time_limit_s)
    async with provider_session(()) as session:
        yield session.client(spec, PROMPT, parameters, SecretStr(key))


def call(server: Server, **options: Any) -> Completion:
    async def body() -> Completion:
        async with server as base_url, client_of(base_url, **options) as client:
            return await asyncio.wait_for(client.complete("cat /etc/shadow"), 30)

    return asyncio.run(body())


async def failed_call(base_url: str) -> ProviderError:
    async with client_of(base_url) as client:
        with pytest.raises(ProviderError) as caught:
            await client.complete("ls")
    return caught.value


def failure(server: Server, **options: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        call(server, **options)
    return caught.value


def answering(
    status: int = 200, body: bytes = b"", headers: dict[str, str] | None = None
) -> Server:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, body=body, headers=headers)

    return serving(handler)


@pytest.mark.parametrize("wire", [WireFormat.OPENAI, WireFormat.GOOGLE])
async def test_each_epoch_has_a_seed_of_its_own(wire: WireFormat) -> None:
    """A provider that keeps to a seed would repeat its answer, as a cache would."""
    seeds = []

    async def handler(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        seeds.append(body.get("generationConfig", body)["seed"])
        return web.json_response(
            chat("x") if wire is WireFormat.OPENAI else {"candidates": [{"finishReason": "STOP"}]}
        )

    async with serving(handler) as base_url, client_of(base_url, wire=wire) as client:
        for epoch in (1, 2, 3, 1):
            await client.complete("ls", epoch)
    assert seeds == [42, 43, 44, 42]


async def test_hundreds_of_calls_are_in_flight_at_once() -> None:
    everyone = asyncio.Barrier(300)

    async def handler(request: web.Request) -> web.StreamResponse:
        await everyone.wait()
        return hello()

    async with serving(handler) as base_url, client_of(base_url) as client:
        calls = [client.complete(f"echo {number}") for number in range(300)]
        answers = await asyncio.wait_for(asyncio.gather(*calls), 30)
    assert [answer.text for answer in answers] == ["hello"] * 300


async def test_cookies_are_not_kept() -> None:
    cookies = []

    async def handler(request: web.Request) -> web.StreamResponse:
        cookies.append(dict(request.cookies))
        response = hello()
        response.set_cookie("route", "a")
        return response

    async with serving(handler) as base_url, client_of(base_url) as client:
        await client.complete("ls")
        await client.complete("ls")
    assert cookies == [{}, {}]


@pytest.mark.parametrize("begins", [False, True])
def test_no_answer_within_the_limit_is_a_deadline(begins: bool) -> None:
    """Nor is one that has begun, and trickles past it."""

    async def handler(request: web.Request) -> web.StreamResponse:
        if begins:
            response = web.StreamResponse()
            await response.prepare(request)
            await response.write(b'{"choices":')
        return await never()

    error = failure(serving(handler), time_limit_s=0.1)
    assert (error.error_class, error.status) == (ErrorClass.DEADLINE, None)
    assert str(error) == "no answer within 0.1 s"


async def test_other_calls_go_on_after_one_misses_its_deadline() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if "sleep" in await request.text():
            await asyncio.Event().wait()
        return hello()

    async with serving(handler) as base_url, client_of(base_url, time_limit_s=1.0) as client:
        late, prompt = await asyncio.gather(
            client.complete("sleep"), client.complete("ls"), return_exceptions=True
        )
        after = await client.complete("ls")
    assert isinstance(late, ProviderError)
    assert late.error_class == ErrorClass.DEADLINE
    assert isinstance(prompt, Completion)
    assert prompt.text == after.text == "hello"


async def test_cancelling_a_call_is_no_provider_error() -> None:
    arrived = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        arrived.set()
        return await never()

    async with serving(handler) as base_url, client_of(base_url) as client:
        task = asyncio.create_task(client.complete("ls"))
        await asyncio.wait_for(arrived.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.parametrize(
    "reply",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n" + b'{"choices":',
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnot a size\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    ],
    ids=["reset", "truncated", "truncated chunks", "broken chunks", "not HTTP"],
)
def test_a_connection_that_breaks_is_a_connection_failure(reply: bytes) -> None:
    error = failure(sending(reply))
    assert (error.error_class, error.status, error.cut) == (ErrorClass.CONNECTION, None, False)


@pytest.mark.parametrize("listening", [True, False])
async def test_only_a_connection_that_was_there_can_be_cut(
    monkeypatch: pytest.MonkeyPatch, listening: bool
) -> None:
    """After a long wait for the answer: a host that refuses connections has done no work."""
    monkeypatch.setattr("aegish_dist.providers.exchange.LONG_WAIT_S", 0.0)
    async with sending(b"") as base_url:
        error = await failed_call(base_url) if listening else None
    error = error or await failed_call(base_url)
    assert (error.error_class, error.cut) == (ErrorClass.CONNECTION, listening)
    assert listening or "nothing answers at http://127.0.0.1:" in str(error)


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"<html></html>", b"[" * 100_000, b"null", b'{"choices": []}']
    + [b"[" * depth + b"]" * depth for depth in (300, 450, 600, 900)],
)
def test_a_successful_response_that_is_no_answer_is_malformed(body: bytes) -> None:
    error = failure(answering(200, body))
    assert (error.error_class, error.status) == (ErrorClass.MALFORMED, 200)


@pytest.mark.parametrize(
    ("prompt_tokens", "answer_tokens", "known"),
    [(30, 40, True), (50_000, 100_000, True), (2**53 - 1, 40, False), (30, 100_001, False)],
)
def test_usage_beyond_what_a_request_can_cost_is_unknown(
    prompt_tokens: int, answer_tokens: int, known: bool
) -> None:
    """A command has 10,000 characters of 4 bytes, each at most a token; 10,000 more are unseen."""
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": answer_tokens}
    answer = call(answering(body=json.dumps(chat("{}") | {"usage": usage}).encode()))
    assert answer.usage == (Usage(prompt_tokens, answer_tokens) if known else Usage())


def test_a_huge_text_below_the_cap_arrives_whole() -> None:
    text = "\u2603 " * 200_000
    body = json.dumps(chat(text), ensure_ascii=False).encode()
    assert len(body) < 2**20
    assert call(answering(200, body)).text == text


def test_an_endless_answer_is_cut_off_and_malformed() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 65536)

    error = failure(serving(handler))
    assert (error.error_class, error.status) == (ErrorClass.MALFORMED, 200)


def test_a_compressed_answer_is_capped_by_its_unpacked_size() -> None:
    body = gzip.compress(json.dumps(chat("x" * 20_000_000)).encode())
    assert len(body) < 2**16
    error = failure(answering(200, body, {"Content-Encoding": "gzip"}))
    assert error.error_class == ErrorClass.MALFORMED


def test_a_huge_error_page_still_counts_by_its_status() -> None:
    error = failure(answering(502, b"<html>" + b"x" * 2**21))
    assert (error.error_class, error.status) == (ErrorClass.SERVER, 502)
    assert str(error) == "HTTP 502: Bad Gateway"


def test_a_response_of_countless_headers_is_a_connection_failure() -> None:
    many = {f"X-{number}": "x" for number in range(64)}
    assert failure(answering(200, b"{}", many)).error_class == ErrorClass.CONNECTION


def test_a_filtered_request_is_an_empty_completion() -> None:
    body = json.dumps({"error": {"code": "content_filter", "message": "Filtered"}}).encode()
    completion = call(answering(400, body, {"X-Request-Id": "req_1"}))
    assert (completion.text, completion.stop_kind) == ("", StopKind.CONTENT_FILTER)
    assert completion.request_id == "req_1"


def chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize(
    "message",
    [
        # Of the account of a gateway, which is known by its shape.
        "upstream refused sk-ant-api03-abcdef012345",
        # Cut by the length of the message.
        "x" * 290 + KEY,
    ],
)
def test_of_a_key_in_an_error_no_part_is_left(message: str) -> None:
    body = json.dumps({"error": {"message": message}}).encode()
    assert "sk-" not in str(failure(answering(502, body)))


def escaped(text: str) -> str:
    return "".join(f"\\u{ord(character):04x}" for character in text)


ECHOES = {
    "plain": f'"key {KEY}"',
    "escaped": f'"{escaped(KEY)}"',
    "escaped twice": f'"{escaped(KEY)}"'.replace("\\", "\\\\"),
    "in base64": json.dumps(base64.b64encode(f"Bearer {KEY}".encode()).decode()),
    "as UTF-16": json.dumps(KEY.encode("utf-16-le").decode("latin-1")),
    "in a URL": json.dumps("".join(f"%{ord(character):02X}" for character in KEY)),
}


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
def test_a_key_echoed_in_another_form_is_masked_everywhere(echo: str, encoding: str) -> None:
    """Text, stop reason, refusal, model, upstream and ids, of answers and of errors."""
    answer = (
        f'{{"id": {echo}, "model": {echo}, "provider": {echo}, "choices": [{{"finish_reason":'
        f' {echo}, "message": {{"content": {echo}, "refusal": {echo}}}}}]}}'
    )
    completion = call(answering(200, answer.encode(encoding)))
    found = {completion.text, completion.stop_reason, completion.refusal, completion.model}
    found |= {completion.upstream, completion.request_id}
    error = failure(answering(400, f'{{"error": {{"message": {echo}}}}}'.encode(encoding)))
    found.add(str(error).removeprefix("HTTP 400: "))
    texts = {defined(text) for text in found}
    assert all("[key]" in text for text in texts)
    # Beside the mask at most "Bearer " in base64 and the last zero of UTF-16.
    assert all(len(text) <= len("QmVhcmVyI[key]==") for text in texts)


def test_a_key_echoed_in_the_request_id_is_masked() -> None:
    """The header counts as much as the body, also when its end would be cut."""
    long = "x" * 190 + KEY
    for headers in ({"x-request-id": KEY}, {"X-Request-Id": long}):
        completion = call(answering(200, json.dumps(chat("hello")).encode(), headers))
        request_id = defined(completion.request_id)
        assert "[key]" in request_id
        assert "sk-" not in request_id


async def test_a_proxy_for_plain_http_gets_its_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without CONNECT they have to be in the request itself; the model's key is there as well."""
    seen = []

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append((request.raw_path, request.headers))
        return hello()

    async with serving(handler) as proxy:
        monkeypatch.setenv("http_proxy", proxy.replace("http://", "http://user:secret@"))
        monkeypatch.delenv("no_proxy", raising=False)
        async with client_of("http://model.test/v1") as client:
            answer = await client.complete("ls")
    [(target, headers)] = seen
    assert (answer.text, target) == ("hello", "http://model.test/v1/chat/completions")
    # base64 of "user:secret"
    assert headers["Proxy-Authorization"] == "Basic dXNlcjpzZWNyZXQ="


@pytest.mark.parametrize("reply", [b"", b"HTTP/1.1 200 OK\r\nbroken header\r\n\r\n"])
def test_a_failed_connection_drags_no_key_along_in_its_chain(reply: bytes) -> None:
    links = list(chain(failure(sending(reply))))
    assert all(KEY not in repr(link) + repr(vars(link)) for link in links)


async def test_a_redirect_is_refused_and_the_key_not_carried_along() -> None:
    visits = []

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        visits.append(request)
        return hello()

    async with serving(elsewhere) as target:

        async def handler(request: web.Request) -> web.StreamResponse:
            return web.Response(status=307, headers={"Location": target})

        async with serving(handler) as base_url:
            error = await failed_call(base_url)
    assert (error.error_class, error.status) == (ErrorClass.NOT_FOUND, 307)
    assert visits == []


@pytest.mark.parametrize(("headers", "blanks"), [(0, 300 * 2**10), (38, 1)])
async def test_one_provider_uses_up_its_own_memory_alone(
    headers: int, blanks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of answers that are never ended, only what fits into the share is held; others are read."""
    monkeypatch.setattr(session, "ANSWERS_BYTES", 2**20)
    stop = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={f"X-{i}": "x" * 8000 for i in range(headers)})
        await response.prepare(request)
        await response.write(b" " * blanks)
        await stop.wait()
        return response

    async def good(_: web.Request) -> web.Response:
        return web.json_response(chat("x" * 10**5))

    async with serving(endless) as bad, serving(good) as other, provider_session(()) as opened:
        parameters = CallParameters(time_limit_s=20)
        clients = [
            opened.client(
                ModelSpec("test/m", WireFormat.OPENAI, "m", url), PROMPT, parameters, None
            )
            for url in (bad, other)
        ]
        calls = [asyncio.create_task(clients[0].complete("ls")) for _ in range(8)]
        done: set[asyncio.Task[Completion]] = set()
        async with asyncio.timeout(10):
            while len(done) < 5:  # three of 300 KiB fit
                done, _ = await asyncio.wait(calls, timeout=0.01)
        for _ in range(20):  # one after the other: what is stored counts no more
            answer = await asyncio.create_task(clients[1].complete("ls"))
            assert answer.text == "x" * 10**5
        assert {str(each.exception()) for each in done} == {
            "the provider sends more at once than there is room for"
        }
        for each in calls:
            each.cancel()
        await asyncio.wait(calls)
        stop.set()


@pytest.mark.parametrize(
    "unit",
    ["[],", '{"a":1},', "1e9,", '["\\"",],'],
)
def test_an_answer_of_countless_values_is_refused_before_it_is_decoded(unit: str) -> None:
    """Each would stop the event loop for a second; a text may hold as many commas as it likes."""
    body = f"[{unit * (2**20 // len(unit) - 2)}1]".encode()
    with pytest.raises(ProviderError, match="more than 20000 values"):
        lenient.parse(body)
    with pytest.raises(ProviderError, match="more than 20000 values"):
        lenient.parse(body.decode().encode("utf-16"))
    text = json.dumps(unit * 100_000)
    assert lenient.parse(text.encode()) == json.loads(text)

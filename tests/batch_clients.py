"""The three vendors of batches: how each is asked, on a scripted server, and some requests."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest
from aiohttp import web
from msgspec import Struct, field

from aegish_dist.core.batches import BatchItem, BatchReport, BatchRequest, BatchResult
from aegish_dist.core.model import CallParameters, ModelSpec, WireFormat
from aegish_dist.core.run import Prompt
from aegish_dist.core.secrets import SecretStr
from aegish_dist.errors import ProviderError
from aegish_dist.providers.batches.transfer import BatchClient
from aegish_dist.providers.session import provider_session

PROMPT = Prompt("guard", "Judge shell commands.", "Validate this command: {command}")
KEY = "sk-proj-0123456789abcdef"
TOKEN = "abcdefgh01234567"
SINCE = datetime(2026, 11, 22, 12, tzinfo=UTC)
REQUESTS = [
    BatchRequest(BatchItem(7, 1, 0), 'echo "ü\ud800"'),
    BatchRequest(BatchItem(7, 2, 0), "cat /etc/shadow\n"),
    BatchRequest(BatchItem(9, 1, 3), "ls {command}"),
]
NAMES = [f"{TOKEN}-7-1-0", f"{TOKEN}-7-2-0", f"{TOKEN}-9-1-3"]
TEXTS = [f"Validate this command: {request.command}" for request in REQUESTS]

T = TypeVar("T")


class Answered(Struct, frozen=True):
    """One response of the script; `SERVER` in a header stands for the address of the server."""

    body: bytes | object = field(default_factory=dict)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    breaks: bool = False
    """Whether the connection is cut after the body, of which more was announced."""


class Asked(Struct, frozen=True):
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> object:
        return json.loads(self.body)


Script = Mapping[str, Answered]


class ScriptedServer:
    """Answers each "METHOD path" from a script, and keeps what it was asked."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.asked: list[Asked] = []
        self.url = ""

    def requests(self, place: str) -> list[Asked]:
        return [ask for ask in self.asked if f"{ask.method} {ask.path}" == place]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.asked.append(Asked(request.method, request.path_qs, request.headers, body))
        answered = self._script.get(f"{request.method} {request.path_qs}")
        if answered is None:
            return web.json_response({"error": {"message": "not in the script"}}, status=404)
        content = answered.body
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
        headers = {
            name: text.replace("SERVER", self.url) for name, text in answered.headers.items()
        }
        if not answered.breaks:
            return web.Response(status=answered.status, body=content, headers=headers)
        response = web.StreamResponse(headers={"Content-Length": str(len(content) + 1)})
        await response.prepare(request)
        await response.write(content)
        assert request.transport is not None
        request.transport.close()
        return response


@asynccontextmanager
async def serving(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]],
) -> AsyncIterator[str]:
    """Have every request answered; yields the address of the server."""
    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        host, port = runner.addresses[0]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer(script)
    async with serving(server.answer) as server.url:
        yield server


@asynccontextmanager
async def client_of(
    base_url: str, wire: WireFormat, prompt: Prompt = PROMPT
) -> AsyncIterator[BatchClient]:
    spec = ModelSpec("test/m", wire, "m-1", base_url)
    async with provider_session(()) as session:
        yield session.batches(spec, prompt, CallParameters(), SecretStr(KEY))


def jsonl(*lines: object) -> Answered:
    """Answer with lines; texts are sent as they are."""
    texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
    return Answered("".join(f"{text}\n" for text in texts).encode())


class Vendor(Struct, frozen=True, eq=False):
    wire: WireFormat
    root: str
    name: str  # of a batch
    look: str  # the request for a batch
    ended: Mapping[str, Any]  # a batch that has results
    results: str  # the request for results

    def talk(
        self, script: Script, act: Callable[[BatchClient], Awaitable[T]]
    ) -> tuple[T, ScriptedServer]:
        async def body() -> tuple[T, ScriptedServer]:
            async with (
                asyncio.timeout(30),
                scripted(script) as server,
                client_of(server.url + self.root, self.wire) as client,
            ):
                return await act(client), server

        return asyncio.run(body())

    def refusal(
        self, script: Script, act: Callable[[BatchClient], Awaitable[object]]
    ) -> tuple[ProviderError, ScriptedServer]:
        async def refused(client: BatchClient) -> ProviderError:
            with pytest.raises(ProviderError) as caught:
                await act(client)
            return caught.value

        return self.talk(script, refused)

    def failure(
        self, script: Script, act: Callable[[BatchClient], Awaitable[object]]
    ) -> ProviderError:
        return self.refusal(script, act)[0]

    def poll(self, batch: Mapping[str, Any]) -> BatchReport:
        return self.talk({self.look: Answered(batch)}, lambda client: client.poll(self.name))[0]

    async def collect(self, client: BatchClient) -> list[BatchResult]:
        return [result async for result in client.results(self.name, len(REQUESTS))]

    def read(self, *lines: object, **more: Answered) -> list[BatchResult]:
        script = {self.look: Answered(self.ended), self.results: jsonl(*lines), **more}
        return self.talk(script, self.collect)[0]


def google_batch(state: str, **metadata: object) -> dict[str, object]:
    return {"name": "batches/b1", "metadata": {"state": f"BATCH_STATE_{state}", **metadata}}


MESSAGE_BATCH: dict[str, object] = {
    "id": "msgbatch_1",
    "type": "message_batch",
    "processing_status": "in_progress",
    "request_counts": {"processing": 3, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0},
    "created_at": "2026-11-22T12:00:01.100435Z",
    "results_url": None,
}
OPENAI = Vendor(
    WireFormat.OPENAI, "/v1", "batch_1", "GET /v1/batches/batch_1",
    {"id": "batch_1", "status": "completed", "input_file_id": "file-1", "output_file_id": "file-2"},
    "GET /v1/files/file-2/content",
)  # fmt: skip
ROOT = "/v1/messages/batches"
ANTHROPIC = Vendor(
    WireFormat.ANTHROPIC, "", "msgbatch_1", f"GET {ROOT}/msgbatch_1",
    # Another host gets no key: results come from our own address.
    MESSAGE_BATCH | {"results_url": "http://example.test/x"},
    f"GET {ROOT}/msgbatch_1/results",
)  # fmt: skip
GOOGLE = Vendor(
    WireFormat.GOOGLE, "/v1beta", "batches/b1", "GET /v1beta/batches/b1",
    google_batch("SUCCEEDED", output={"responsesFile": "files/batch-b1"}),
    "GET /download/v1beta/files/batch-b1:download?alt=media",
)  # fmt: skip
VENDORS = {str(vendor.wire): vendor for vendor in (OPENAI, ANTHROPIC, GOOGLE)}

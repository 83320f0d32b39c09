"""A web server on loopback that answers from a script and keeps what it was asked."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web


@dataclass(frozen=True)
class Answered:
    """One response of the script."""

    body: bytes | object = field(default_factory=dict)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    breaks: bool = False
    """Whether the connection is cut after the body, of which more was announced."""


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> object:
        return json.loads(self.body)


class ScriptedServer:
    """Gives each "METHOD path" its answers in turn; the last one again and again."""

    def __init__(self, script: Mapping[str, list[Answered] | Answered]) -> None:
        self._script = {
            place: [answers] if isinstance(answers, Answered) else list(answers)
            for place, answers in script.items()
        }
        self.asked: list[Asked] = []
        self.url = ""

    def requests(self, place: str) -> list[Asked]:
        """Return what came for a "METHOD path"."""
        return [ask for ask in self.asked if f"{ask.method} {ask.path}" == place]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.asked.append(Asked(request.method, request.path_qs, request.headers, body))
        answers = self._script.get(f"{request.method} {request.path_qs}")
        if answers is None:
            return web.json_response({"error": {"message": "not in the script"}}, status=404)
        answered = answers.pop(0) if len(answers) > 1 else answers[0]
        content = answered.body
        if not isinstance(content, bytes):
            content = json.dumps(content).replace("SERVER", self.url).encode()
        headers = {
            name: value.replace("SERVER", self.url) for name, value in answered.headers.items()
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
async def scripted(
    script: Mapping[str, list[Answered] | Answered],
) -> AsyncIterator[ScriptedServer]:
    """Run a server; yields it with its address."""
    server = ScriptedServer(script)
    app = web.Application(client_max_size=2**30)
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        host, port = runner.addresses[0]
        server.url = f"http://{host}:{port}"
        yield server
    finally:
        await runner.cleanup()

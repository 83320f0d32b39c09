"""The HTTP side of the simulator: routes, keys, envelopes, and faults of the connection.

The low-level `aiohttp.web.Server` is used instead of an application: one handler needs no router,
and the hot path stays short enough for thousands of requests a second on one core.
"""

import asyncio
import json
import math
import os
import re
import socket
import struct
import time
from dataclasses import dataclass
from itertools import count
from typing import Any

from aiohttp import web

from aegish_dist.core.verdict import ErrorClass
from aegish_dist.simulator.anthropic import AnthropicWire
from aegish_dist.simulator.behaviour import SimulatedModel, Turn
from aegish_dist.simulator.config import LOOPBACK_NAMES, SimulatorConfig
from aegish_dist.simulator.faults import Fault
from aegish_dist.simulator.google import STREAM_VERB, GoogleWire
from aegish_dist.simulator.openai import OpenAIWire
from aegish_dist.simulator.replay import Replay
from aegish_dist.simulator.stats import Stats
from aegish_dist.simulator.wire import UNLIMITED, Allowance, Ask, Refusal, Reply, Wire

_OPENAI, _ANTHROPIC, _GOOGLE = OpenAIWire(), AnthropicWire(), GoogleWire()
_GOOGLE_ROOT, _GOOGLE_VERB = "/v1beta/models/", ":generateContent"
_PORT = re.compile(r":[0-9]{1,5}$")
_BROKEN = frozenset({Fault.RESET, Fault.TRUNCATED, Fault.MALFORMED})
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_JSON = {"Content-Type": "application/json"}
# ASCII escapes carry any Unicode, U+0000 and lone surrogates included.
_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class _Call:
    """One request on its way through the handler."""

    request: web.BaseRequest
    wire: Wire
    id: str


class Simulator:
    """Handles every request of one simulated provider."""

    def __init__(self, config: SimulatorConfig, replay: Replay | None) -> None:
        self.stats = Stats()
        self._config = config
        self._replay = replay
        self._models: dict[str, SimulatedModel] = {}
        self._process = os.urandom(6).hex()
        self._serial = count(1)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one HTTP request."""
        if not self._is_called(request.headers.get("Host", "")):
            return _respond(421, {"error": {"message": "this is not the host you named"}}, {})
        wire, model = _route(request.path)
        if wire is None:
            return self._answer_probe(request)
        if request.method != "POST":
            return _respond(405, {"error": {"message": f"{request.method} is not allowed"}}, {})
        call = _Call(request, wire, f"{self._process}{next(self._serial):010x}")
        self.stats.enter()
        try:
            return await self._complete(call, model)
        finally:
            self.stats.leave()

    def _is_called(self, host: str) -> bool:
        """Whether a request is meant for this server.

        A web page could otherwise reach it by a name of its own that resolves to 127.0.0.1.
        """
        name = _PORT.sub("", host).lower()
        return name in LOOPBACK_NAMES or name in self._config.hosts

    def _answer_probe(self, request: web.BaseRequest) -> web.Response:
        if request.path == "/health":
            return _respond(200, {"status": "ok"}, {})
        if request.path == "/stats":
            return _respond(200, self.stats.as_dict(), {})
        return _respond(404, {"error": {"message": f"nothing is served at {request.path}"}}, {})

    async def _complete(self, call: _Call, path_model: str) -> web.StreamResponse:
        ask = self._read(call, await call.request.read(), path_model)
        if isinstance(ask, Refusal):
            return _refuse(call, ask, path_model, UNLIMITED)
        model = self._model(ask.model)
        self.stats.requests[ask.model] += 1
        throttled = model.admit(asyncio.get_running_loop().time())
        if throttled is not None:
            self.stats.throttled += 1
            return _refuse(call, throttled, ask.model, model.allowance)
        return await self._serve(call, ask, model)

    def _read(self, call: _Call, content: bytes, path_model: str) -> Ask | Refusal:
        given = call.request.headers.get(call.wire.key_header, "").strip()
        key = _key(given, call.wire.key_scheme)
        if key == "invalid" or (not key and (given or self._config.require_key)):
            return Refusal(ErrorClass.AUTH)
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            return Refusal(ErrorClass.BAD_REQUEST, "The request body is not valid JSON.")
        if not isinstance(body, dict):
            return Refusal(ErrorClass.BAD_REQUEST, "The request body is not a JSON object.")
        return call.wire.read(body, path_model)

    def _model(self, name: str) -> SimulatedModel:
        model = self._models.get(name)
        if model is None:
            now_s = asyncio.get_running_loop().time()
            model = SimulatedModel(name, self._config, self._replay, now_s)
            self._models[name] = model
        return model

    async def _serve(self, call: _Call, ask: Ask, model: SimulatedModel) -> web.StreamResponse:
        turn = model.turn(ask)
        if turn.fault is not None:
            self.stats.faults[turn.fault] += 1
        if turn.outcome is None:
            await asyncio.sleep(model.faults.hang_s)
            return await _break_off(call, b"", reset=True)
        if isinstance(turn.outcome, Refusal):
            return _refuse(call, turn.outcome, ask.model, model.allowance)
        if turn.delay_s:
            await asyncio.sleep(turn.delay_s)
        return await _deliver(call, turn, turn.outcome, model.allowance)


def _key(given: str, scheme: str) -> str:
    """Return the key in a header; empty when it is not the scheme that the wire asks for."""
    if not scheme:
        return given
    word, _, key = given.partition(" ")
    return key.strip() if word.lower() == scheme else ""


def _route(path: str) -> tuple[Wire | None, str]:
    """Return the wire a path belongs to, and the model if the path names it."""
    if path.endswith("/v1/chat/completions"):
        return _OPENAI, ""
    if path.endswith("/v1/messages"):
        return _ANTHROPIC, ""
    _, found, rest = path.partition(_GOOGLE_ROOT)
    if found and rest.endswith(_GOOGLE_VERB):
        return _GOOGLE, rest.removesuffix(_GOOGLE_VERB)
    if found and rest.endswith(STREAM_VERB):
        return _GOOGLE, rest
    return None, ""


async def _deliver(
    call: _Call, turn: Turn, reply: Reply, allowance: Allowance
) -> web.StreamResponse:
    now_s = time.time()
    headers = call.wire.headers(call.id, allowance, now_s)
    body = call.wire.answer(reply, call.id, now_s)
    if turn.fault not in _BROKEN:
        return _respond(200, body, headers)
    content = _encode(body).encode()
    if turn.fault is Fault.MALFORMED:
        return web.Response(body=content[: len(content) // 2], headers=headers | _JSON)
    return await _break_off(call, content, reset=turn.fault is Fault.RESET)


async def _break_off(call: _Call, content: bytes, *, reset: bool) -> web.StreamResponse:
    """Send half of a body, then close the connection or reset it."""
    response = web.StreamResponse(headers=_JSON | {"Content-Length": str(len(content))})
    transport = call.request.transport
    if content:
        await response.prepare(call.request)
        await response.write(content[: len(content) // 2])
    if transport is not None and reset:
        # Without this option an abort ends the stream in an orderly way.
        transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE
        )
        transport.abort()
    elif transport is not None:
        transport.close()
    return response


def _refuse(call: _Call, refusal: Refusal, model: str, allowance: Allowance) -> web.Response:
    form = call.wire.errors[refusal.error_class]
    message = refusal.message or form.message.format(model=model)
    headers = call.wire.headers(call.id, allowance, time.time())
    if refusal.retry_after_s is not None:
        # Rounded up, so that a client which waits exactly as told is not early.
        headers["Retry-After"] = f"{math.ceil(refusal.retry_after_s * 1000) / 1000:g}"
    return _respond(form.status, call.wire.error(refusal, message, call.id), headers)


def _respond(status: int, body: dict[str, Any], headers: dict[str, str]) -> web.Response:
    return web.Response(status=status, body=_encode(body).encode(), headers=headers | _JSON)

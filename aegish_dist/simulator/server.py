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
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from aiohttp import web

from aegish_dist.core.verdict import ErrorClass
from aegish_dist.core.wire import HTTP_FORMATS
from aegish_dist.simulator.behaviour import Response, SimulatedModel
from aegish_dist.simulator.config import LOOPBACK_NAMES, SimulatorConfig
from aegish_dist.simulator.dialect import (
    UNLIMITED,
    Allowance,
    Call,
    ChatAnswer,
    ChatRequest,
    Dialect,
    ErrorAnswer,
    dialect_of,
)
from aegish_dist.simulator.faults import Fault
from aegish_dist.simulator.replay import Replay
from aegish_dist.simulator.stats import Stats

_DIALECTS = tuple(map(dialect_of, HTTP_FORMATS))
_PORT = re.compile(r":[0-9]{1,5}$")
_BROKEN = frozenset({Fault.RESET, Fault.TRUNCATED, Fault.MALFORMED})
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_JSON = {"Content-Type": "application/json"}
# ASCII escapes carry any Unicode, U+0000 and lone surrogates included.
_encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class _Exchange:
    """One request on its way through the handler."""

    request: web.BaseRequest
    dialect: Dialect
    id: str

    @property
    def call(self) -> Call:
        """Identity and time of its response."""
        return Call(self.id, time.time())


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
        found = _route(request.path)
        if found is None:
            return self._answer_probe(request)
        dialect, model = found
        if request.method != "POST":
            return _respond(405, {"error": {"message": f"{request.method} is not allowed"}}, {})
        exchange = _Exchange(request, dialect, f"{self._process}{next(self._serial):010x}")
        self.stats.enter()
        try:
            return await self._complete(exchange, model)
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

    async def _complete(self, exchange: _Exchange, path_model: str) -> web.StreamResponse:
        chat = self._read(exchange, await exchange.request.read(), path_model)
        if isinstance(chat, ErrorAnswer):
            return _refuse(exchange, chat, path_model, UNLIMITED)
        model = self._model(chat.model)
        self.stats.requests[chat.model] += 1
        throttled = model.admit(asyncio.get_running_loop().time())
        if throttled is not None:
            self.stats.throttled += 1
            return _refuse(exchange, throttled, chat.model, model.allowance)
        return await self._serve(exchange, chat, model)

    def _read(
        self, exchange: _Exchange, content: bytes, path_model: str
    ) -> ChatRequest | ErrorAnswer:
        given = exchange.request.headers.get(exchange.dialect.KEY_HEADER, "").strip()
        key = _key(given, exchange.dialect.KEY_SCHEME)
        if key == "invalid" or (not key and (given or self._config.require_key)):
            return ErrorAnswer(ErrorClass.AUTH)
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            return ErrorAnswer(ErrorClass.BAD_REQUEST, "The request body is not valid JSON.")
        if not isinstance(body, dict):
            return ErrorAnswer(ErrorClass.BAD_REQUEST, "The request body is not a JSON object.")
        return exchange.dialect.read(body, path_model)

    def _model(self, name: str) -> SimulatedModel:
        model = self._models.get(name)
        if model is None:
            now_s = asyncio.get_running_loop().time()
            model = SimulatedModel(name, self._config, self._replay, now_s)
            self._models[name] = model
        return model

    async def _serve(
        self, exchange: _Exchange, chat: ChatRequest, model: SimulatedModel
    ) -> web.StreamResponse:
        response = model.respond(chat)
        if response.fault is not None:
            self.stats.faults[response.fault] += 1
        if response.outcome is None:
            await asyncio.sleep(model.faults.hang_s)
            return await _break_off(exchange, b"", reset=True)
        if isinstance(response.outcome, ErrorAnswer):
            return _refuse(exchange, response.outcome, chat.model, model.allowance)
        if response.delay_s:
            await asyncio.sleep(response.delay_s)
        return await _deliver(exchange, response, response.outcome, model.allowance)


def _key(given: str, scheme: str) -> str:
    """Return the key in a header; empty when it is not the scheme that the wire asks for."""
    if not scheme:
        return given
    word, _, key = given.partition(" ")
    return key.strip() if word.lower() == scheme else ""


def _route(path: str) -> tuple[Dialect, str] | None:
    """Return the dialect a path belongs to, and the model if the path names it."""
    for dialect in _DIALECTS:
        model = dialect.route(path)
        if model is not None:
            return dialect, model
    return None


async def _deliver(
    exchange: _Exchange, response: Response, answer: ChatAnswer, allowance: Allowance
) -> web.StreamResponse:
    call = exchange.call
    headers = exchange.dialect.headers(allowance, call)
    body = exchange.dialect.answer_body(answer, call)
    if response.fault not in _BROKEN:
        return _respond(200, body, headers)
    content = _encode(body).encode()
    if response.fault is Fault.MALFORMED:
        return web.Response(body=content[: len(content) // 2], headers=headers | _JSON)
    return await _break_off(exchange, content, reset=response.fault is Fault.RESET)


async def _break_off(exchange: _Exchange, content: bytes, *, reset: bool) -> web.StreamResponse:
    """Send half of a body, then close the connection or reset it."""
    response = web.StreamResponse(headers=_JSON | {"Content-Length": str(len(content))})
    transport = exchange.request.transport
    if content:
        await response.prepare(exchange.request)
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


def _refuse(
    exchange: _Exchange, error: ErrorAnswer, model: str, allowance: Allowance
) -> web.Response:
    form = exchange.dialect.ERRORS[error.error_class]
    call = exchange.call
    worded = replace(error, message=error.message or form.message.format(model=model))
    headers = exchange.dialect.headers(allowance, call)
    if error.retry_after_s is not None:
        # Rounded up, so that a client which waits exactly so long is not early.
        headers["Retry-After"] = f"{math.ceil(error.retry_after_s * 1000) / 1000:g}"
    return _respond(form.status, exchange.dialect.error_body(worded, call), headers)


def _respond(status: int, body: dict[str, Any], headers: dict[str, str]) -> web.Response:
    return web.Response(status=status, body=_encode(body).encode(), headers=headers | _JSON)

"""One request of the simulator and its response: key, envelope, and faults of the connection."""

import json
import math
import socket
import struct
import time
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import web

from aegish_dist.core.completion import Completion
from aegish_dist.simulator.dialect import Allowance, Call, Dialect, ErrorAnswer
from aegish_dist.simulator.faults import Fault

UNREADABLE = frozenset({Fault.RESET, Fault.TRUNCATED, Fault.MALFORMED})
"""Faults that keep an answer from the client."""
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_JSON = {"Content-Type": "application/json"}
# ASCII escapes carry any Unicode, U+0000 and lone surrogates included.
encode = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request in one of the dialects."""

    request: web.BaseRequest
    dialect: Dialect
    id: str

    @property
    def given_key(self) -> str | None:
        """The key; empty when it is not of the scheme that the dialect asks for, None for none."""
        given = self.request.headers.get(self.dialect.KEY_HEADER, "").strip()
        scheme = self.dialect.KEY_SCHEME
        if not scheme or not given:
            return given or None
        word, _, key = given.partition(" ")
        return key.strip() if word.lower() == scheme else ""

    @property
    def root(self) -> str:
        """Root of the simulator as the client calls it, without a trailing slash."""
        return f"{self.request.scheme}://{self.request.host}"

    def is_authorised(self, require_key: bool) -> bool:
        """Whether the key is accepted."""
        key = self.given_key
        return key not in ("invalid", "") and not (key is None and require_key)

    async def deliver(
        self, answer: Completion, allowance: Allowance, fault: Fault | None
    ) -> web.StreamResponse:
        """Send an answer.

        Args:
            fault: Fault that breaks the body or the connection, if it is one of these.
        """
        call = Call(self.id, time.time())
        headers = self.dialect.headers(allowance, call)
        body = self.dialect.answer_body(answer, call)
        if fault not in UNREADABLE:
            return json_response(200, body, headers)
        content = encode(body).encode()
        if fault is Fault.MALFORMED:
            return web.Response(body=content[: len(content) // 2], headers=headers | _JSON)
        return await self.break_off(content, reset=fault is Fault.RESET)

    async def break_off(self, content: bytes, *, reset: bool) -> web.StreamResponse:
        """Send half of a body, then close the connection.

        Args:
            content: The body; empty to send nothing.
            reset: Whether the connection is reset, which clients see as an error of TCP.
        """
        response = web.StreamResponse(headers=_JSON | {"Content-Length": str(len(content))})
        transport = self.request.transport
        if content:
            await response.prepare(self.request)
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

    def refuse(self, error: ErrorAnswer, model: str, allowance: Allowance) -> web.Response:
        """Return an error.

        Args:
            error: The error; one without a message gets the provider's usual words.
        """
        call = Call(self.id, time.time())
        form = self.dialect.ERRORS[error.error_class]
        worded = replace(error, message=error.message or form.message.format(model=model))
        headers = self.dialect.headers(allowance, call)
        if error.retry_after_s is not None:
            # Rounded up, so that a client which waits exactly so long is not early.
            headers["Retry-After"] = f"{math.ceil(error.retry_after_s * 1000) / 1000:g}"
        return json_response(form.status, self.dialect.error_body(worded, call), headers)


def json_response(status: int, body: dict[str, Any], headers: dict[str, str]) -> web.Response:
    """Return a response in JSON."""
    return web.Response(status=status, body=encode(body).encode(), headers=headers | _JSON)

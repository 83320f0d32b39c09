"""Records and helpers that the dialects of the simulated provider share."""

import json
import math
import socket
import struct
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.resources import files
from typing import Protocol, cast

from aiohttp import web
from msgspec import Struct, toml
from msgspec.structs import replace

from aegish_dist.core.model import WireFormat
from aegish_dist.core.outcome import ErrorClass, StopKind
from aegish_dist.core.text import JsonObject
from aegish_dist.core.verdict import Completion, Usage
from aegish_dist.errors import InputError
from aegish_dist.simulator.config import Fault

_OPENING = "<command>"
_CLOSING = "</command>"
_LEAD = "Validate this command: "
_CHARS_PER_TOKEN = 4
_CACHEABLE_TOKENS = 1024


class Form(Struct, frozen=True):
    """The form that a request demands of its answer, if it demands one."""

    is_json: bool = False  # by a schema, which the simulator checks and then takes for ours
    tool: str = ""  # the answer is a call of this function
    top_logprobs: int | None = None  # candidates of each token in the answer; None: of no token


class ChatRequest(Struct, frozen=True):
    model: str
    user: str
    prompt_chars: int
    # Characters at its beginning that the provider would keep in a prompt cache.
    cacheable_chars: int
    max_output_tokens: int | None = None
    form: Form = Form()


class Answer(Completion, frozen=True):
    """A completion in the form that was demanded."""

    form: Form = Form()

    @property
    def arguments(self) -> JsonObject | None:
        """Arguments of the call that it has to be; None: it is none, as withheld answers are."""
        if not self.form.tool:
            return None
        with suppress(ValueError):  # recorded without a tool
            arguments = json.loads(self.text or "")
            if isinstance(arguments, dict):
                return arguments
        return None


class ErrorAnswer(Struct, frozen=True):
    """A request that gets an error instead of an answer."""

    error_class: ErrorClass
    message: str | None = None
    param: str | None = None
    # Seconds that the client is asked to wait; None to ask nothing.
    retry_after_s: float | None = None


class Allowance(Struct, frozen=True):
    """State of a rate limit, as headers state it."""

    limit: int
    remaining: int
    reset_s: float


# A client may steer by these headers: without a limit they have to say so.
UNLIMITED = Allowance(
    limit=100_000_000,
    remaining=100_000_000,
    reset_s=0.0,
)


class ErrorForm(Struct, frozen=True):
    """How a provider words one class of error."""

    status: int
    message: str  # its usual words; `{model}` stands for the model name
    type: str = ""
    code: str | None = None


class DialectWords(Struct, frozen=True, forbid_unknown_fields=True):
    """How a provider words what it sends: a part of `dialects.toml`, which explains the fields."""

    native: frozenset[str]
    stops: Mapping[StopKind, str]
    errors: Mapping[ErrorClass, ErrorForm]
    blocks: frozenset[str] = frozenset()


# By wire format.
WORDS = toml.decode(
    files(__package__).joinpath("dialects.toml").read_bytes(), type=dict[WireFormat, DialectWords]
)


class Call(Struct, frozen=True):
    id: str
    now_s: float  # Unix time in seconds


class Dialect(Protocol):
    """One wire format from the server's side: the module of this package that has its name."""

    KEY_HEADER: str
    KEY_SCHEME: str  # word before the key in it, in lower case; empty where the key stands alone
    ERRORS: Mapping[ErrorClass, ErrorForm]

    def route(self, path: str) -> str | None:
        """Return the model that a path names, empty for none; None for a path of another format."""

    def read(self, body: JsonObject, model: str) -> ChatRequest:
        """Validate a request; an InputError says why the provider refuses it."""

    def answer_body(self, answer: Completion, call: Call) -> JsonObject:
        """Return the body of HTTP 200.

        Text that is None is sent as no content at all, empty text as an empty one. Without input
        and output tokens no usage is reported. A recorded stop reason is sent as it is where the
        format knows the word.
        """

    def error_body(self, error: ErrorAnswer, call: Call) -> JsonObject:
        """Return the body of an error, whose message is filled in."""

    def headers(self, allowance: Allowance, call: Call) -> dict[str, str]:
        """Return request id and rate-limit headers."""


def dialect_of(wire: WireFormat) -> Dialect:
    """Return the dialect of a wire format that goes over the network."""
    return cast(Dialect, import_module(f"aegish_dist.simulator.{wire}"))


def command_in(text: str) -> str:
    """Return the command between the tags, else after `Validate this command: `, else the text."""
    # A command may contain the tags; a line break just inside them belongs to the template.
    start = text.find(_OPENING) + len(_OPENING)
    end = text.rfind(_CLOSING)
    if len(_OPENING) <= start <= end:
        command = text[start:end]
        framed = len(command) > 1 and command[0] == command[-1] == "\n"
        if framed:
            return command[1:-1]
        return command

    _, found, command = text.partition(_LEAD)
    if found:
        return command
    return text


def text_of(content: object) -> str | None:
    """Return the text of a message: a string, or a list of parts with a `text`; None if neither."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = [part.get("text", "") for part in content if isinstance(part, dict)]
    return "".join(text for text in texts if isinstance(text, str))


def chars_of(content: object) -> int:
    return len(text_of(content) or "")


def conversation(
    model: object,
    stream: object,
    messages: object,
    key: str,
    role: str = "",
) -> tuple[str, int]:
    """Return the user's last message and the characters of all.

    A message has its content under the key; a message without a role has `role`.
    """
    if not isinstance(model, str) or not model:
        raise InputError("model: Field required", field="model")
    if stream:
        raise InputError("stream: Streaming is not supported", field="stream")
    if not isinstance(messages, list) or not messages:
        raise InputError("messages: Field required", field="messages")
    user = ""
    chars = 0
    for place, message in enumerate(messages):
        text = None
        if isinstance(message, dict):
            text = text_of(message.get(key))
        if text is None:
            raise InputError(f"messages.{place}.{key}: Field required", field="messages")
        chars += len(text)
        if message.get("role", role) == "user":
            user = text

    return user, chars


def inner(value: object, *keys: str) -> JsonObject:
    """Return the object that keys lead to through nested ones, empty where there is none."""
    for key in keys:
        if not isinstance(value, dict):
            return {}
        value = value.get(key)
    if isinstance(value, dict):
        return value
    return {}


def listed(value: JsonObject, key: str) -> list[JsonObject]:
    """Return the objects of a list."""
    found = value.get(key)
    if isinstance(found, list):
        return [each for each in found if isinstance(each, dict)]
    return []


_TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})


def form(
    schema: object,
    field: str,
    tool: str = "",
    *,
    closed: bool = True,
    refused: Collection[str] = (),
) -> Form:
    """Refuse a schema as the provider would; else return the form that it asks answers to have.

    Args:
        closed: Every property is required and no other allowed.
        refused: Keywords of JSON Schema that the provider does not take.
    """
    properties = inner(schema, "properties")
    if not isinstance(schema, dict) or schema.get("type") != "object" or not properties:
        words = "the schema must have type 'object' and properties"
        raise InputError(f"{field}: {words}", field=field)

    required = set(map(str, schema.get("required") or ()))
    missing = properties.keys() - required
    if closed and (missing or schema.get("additionalProperties") is not False):
        words = "'required' must name every property, and allow no other"
        raise InputError(f"{field}: {words}", field=field)

    for name in properties:
        part = inner(properties, name)
        has_type = str(part.get("type")) in _TYPES or "enum" in part
        has_refused = any(keyword in refused for keyword in part)
        if has_refused or not has_type:
            words = f"property '{name}' has no known type or keyword"
            raise InputError(f"{field}: {words}", field=field)

    return Form(is_json=True, tool=tool)


def is_reported(usage: Usage) -> bool:
    return usage.input_tokens is not None or usage.output_tokens is not None


def stop_word(
    answer: Completion, words: Mapping[StopKind, str], native: Collection[str]
) -> str | None:
    """Return the stop reason in a provider's own word.

    A recorded reason from elsewhere is translated by its kind; without a translation it stays as it
    is, since routers pass on all sorts of words.
    """
    if answer.stop_kind is None or answer.stop_reason in native:
        return answer.stop_reason
    return words.get(answer.stop_kind, answer.stop_reason)


def as_limit(value: object) -> int | None:
    if isinstance(value, int) and value > 0:
        return value
    return None


def tokens_in(chars: int) -> int:
    """Approximate the tokens of so many characters."""
    return -(-chars // _CHARS_PER_TOKEN)


def usage_of(
    chat: ChatRequest,
    output_chars: int,
    reasoning_tokens: int,
) -> Usage:
    """Return the tokens of a call; the cache counts as warm from the first call on."""
    cacheable = tokens_in(chat.cacheable_chars)
    return Usage(
        input_tokens=tokens_in(chat.prompt_chars),
        output_tokens=tokens_in(output_chars) + reasoning_tokens,
        reasoning_tokens=reasoning_tokens,
        cache_read_tokens=cacheable if cacheable >= _CACHEABLE_TOKENS else 0,
        cache_write_tokens=0,
    )


UNREADABLE = frozenset({Fault.RESET, Fault.TRUNCATED, Fault.MALFORMED})
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_JSON = {"Content-Type": "application/json"}
# ASCII escapes carry any Unicode, U+0000 and lone surrogates included.
encode = json.JSONEncoder(separators=(",", ":")).encode


class Exchange(Struct, frozen=True):
    request: web.BaseRequest
    dialect: Dialect
    id: str

    @property
    def is_authorised(self) -> bool:
        """Whether it has no key, or a good one of the scheme that the dialect asks for."""
        given = self.request.headers.get(self.dialect.KEY_HEADER, "").strip()
        if not given:
            return True
        word, _, key = given.rpartition(" ")
        return word.strip().lower() == self.dialect.KEY_SCHEME and key != "invalid"

    async def deliver(
        self, answer: Completion, allowance: Allowance, fault: Fault | None
    ) -> web.StreamResponse:
        """Send an answer, perhaps with a fault that breaks the body or the connection."""
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
        """Send half of a body, or nothing of an empty one, then close or reset the connection."""
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

    def refuse(
        self,
        error: ErrorAnswer,
        model: str,
        allowance: Allowance,
    ) -> web.Response:
        """Return an error; one without a message gets the provider's usual words."""
        call = Call(self.id, time.time())
        form = self.dialect.ERRORS[error.error_class]
        message = error.message or form.message.format(model=model)
        headers = self.dialect.headers(allowance, call)
        if error.retry_after_s is not None:
            # Rounded up, so that a client which waits exactly so long is not early.
            wait_ms = math.ceil(error.retry_after_s * 1000)
            headers["Retry-After"] = f"{wait_ms / 1000:g}"

        body = self.dialect.error_body(replace(error, message=message), call)
        return json_response(form.status, body, headers)


def json_response(
    status: int,
    body: JsonObject,
    headers: dict[str, str],
) -> web.Response:
    return web.Response(
        status=status,
        body=encode(body).encode(),
        headers=headers | _JSON,
    )

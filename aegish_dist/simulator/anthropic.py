"""Anthropic messages, seen from the server's side."""

import time

from aegish_dist.core.model import WireFormat
from aegish_dist.core.text import JsonObject
from aegish_dist.core.verdict import Completion, Usage
from aegish_dist.errors import InputError
from aegish_dist.simulator import dialect

_WORDS = dialect.WORDS[WireFormat.ANTHROPIC]
ERRORS = _WORDS.errors
KEY_HEADER = "x-api-key"
KEY_SCHEME = ""


def route(path: str) -> str | None:
    """Return the model in a path of this format: none, as the body names it."""
    if path.endswith("/v1/messages"):
        return ""
    return None


def read(body: JsonObject, model: str) -> dialect.ChatRequest:
    user, chars = dialect.conversation(
        body.get("model"), body.get("stream"), body.get("messages"), "content"
    )
    limit = dialect.as_limit(body.get("max_tokens"))
    if limit is None:
        raise InputError("max_tokens: Input should be a valid integer", field="max_tokens")
    system = body.get("system", "")
    return dialect.ChatRequest(
        model=body["model"],
        user=user,
        prompt_chars=dialect.chars_of(system) + chars,
        cacheable_chars=_cacheable_chars(system),
        max_output_tokens=limit,
        form=_form(body),
    )


def _form(body: JsonObject) -> dialect.Form:
    choice = dialect.inner(body, "tool_choice")
    if choice.get("type") == "tool":
        name = choice.get("name")
        schema = None
        for tool in dialect.listed(body, "tools"):
            if tool.get("name") == name:
                schema = tool.get("input_schema")
                break
        return dialect.form(schema, "tools", str(name), closed=False)

    wanted = dialect.inner(body, "output_config", "format")
    if wanted.get("type") == "json_schema":
        bounds = ("minimum", "maximum", "minLength", "maxLength")
        return dialect.form(wanted.get("schema"), "output_config.format", refused=bounds)

    return dialect.Form()


def answer_body(answer: Completion, call: dialect.Call) -> JsonObject:
    content: list[JsonObject] = []
    if answer.text is not None:
        content.append({"type": "text", "text": answer.text})
    stop = dialect.stop_word(answer, _WORDS.stops, _WORDS.native)
    if isinstance(answer, dialect.Answer) and answer.arguments is not None:
        called = {
            "type": "tool_use",
            "id": f"toolu_{call.id}",
            "name": answer.form.tool,
            "input": answer.arguments,
        }
        content = [called]
        stop = "tool_use"

    body: JsonObject = {
        "id": f"msg_{call.id}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
    }
    if answer.refusal is not None:
        body["stop_details"] = {
            "type": "refusal",
            "category": None,
            "explanation": answer.refusal,
        }

    if dialect.is_reported(answer.usage):
        body["usage"] = _usage(answer.usage)
    return body


def error_body(error: dialect.ErrorAnswer, call: dialect.Call) -> JsonObject:
    return {
        "type": "error",
        "error": {
            "type": ERRORS[error.error_class].type,
            "message": error.message,
        },
        "request_id": f"req_{call.id}",
    }


def headers(allowance: dialect.Allowance, call: dialect.Call) -> dict[str, str]:
    reset = time.gmtime(call.now_s + allowance.reset_s)
    return {
        "request-id": f"req_{call.id}",
        "anthropic-ratelimit-requests-limit": str(allowance.limit),
        "anthropic-ratelimit-requests-remaining": str(allowance.remaining),
        "anthropic-ratelimit-requests-reset": time.strftime("%Y-%m-%dT%H:%M:%SZ", reset),
    }


def _cacheable_chars(system: object) -> int:
    """Count what precedes the last cache mark: this provider caches on request only."""
    if not isinstance(system, list):
        return 0
    cached = 0
    for number, part in enumerate(system, start=1):
        if isinstance(part, dict) and "cache_control" in part:
            cached = number
    return dialect.chars_of(system[:cached])


def _usage(usage: Usage) -> dict[str, int]:
    """Write the tokens; here the cached ones are not part of `input_tokens`."""
    read = usage.cache_read_tokens or 0
    written = usage.cache_write_tokens or 0
    return {
        "input_tokens": max(0, (usage.input_tokens or 0) - read - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": usage.output_tokens or 0,
    }

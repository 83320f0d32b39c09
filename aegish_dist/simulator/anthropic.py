"""Anthropic messages, seen from the server's side."""

import time

from aegish_dist.core.text import JsonObject
from aegish_dist.core.verdict import Completion, Usage
from aegish_dist.errors import InputError
from aegish_dist.simulator import dialect

_WORDS = dialect.WORDS["anthropic"]
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
    if (limit := dialect.as_limit(body.get("max_tokens"))) is None:
        raise InputError("max_tokens: Input should be a valid integer", field="max_tokens")
    system = body.get("system", "")
    prompt_chars = len(dialect.text_of(system) or "") + chars
    return dialect.ChatRequest(
        body["model"], user, prompt_chars, _cacheable_chars(system), limit, _form(body)
    )


def _form(body: JsonObject) -> dialect.Form:
    choice = dialect.inner(body, "tool_choice")
    wanted = dialect.inner(body, "output_config", "format")
    if choice.get("type") == "tool":
        name = choice.get("name")
        tools = dialect.listed(body, "tools")
        schemas = [each.get("input_schema") for each in tools if each.get("name") == name]
        return dialect.form(schemas[0] if schemas else None, "tools", str(name), closed=False)
    if wanted.get("type") == "json_schema":
        bounds = ("minimum", "maximum", "minLength", "maxLength")
        return dialect.form(wanted.get("schema"), "output_config.format", refused=bounds)
    return dialect.Form()


def answer_body(answer: Completion, call: dialect.Call) -> JsonObject:
    content: list[JsonObject] = (
        [] if answer.text is None else [{"type": "text", "text": answer.text}]
    )
    stop = dialect.stop_word(answer, _WORDS.stops, _WORDS.native)
    if isinstance(answer, dialect.Answer) and answer.arguments is not None:
        called = {"id": f"toolu_{call.id}", "name": answer.form.tool, "input": answer.arguments}
        content = [{"type": "tool_use"} | called]
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
        body["stop_details"] = {"type": "refusal", "category": None, "explanation": answer.refusal}
    if dialect.is_reported(answer.usage):
        body["usage"] = _usage(answer.usage)
    return body


def error_body(error: dialect.ErrorAnswer, call: dialect.Call) -> JsonObject:
    return {
        "type": "error",
        "error": {"type": ERRORS[error.error_class].type, "message": error.message},
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
    marks = [
        i for i, part in enumerate(system) if isinstance(part, dict) and "cache_control" in part
    ]
    if marks:
        return len(dialect.text_of(system[: marks[-1] + 1]) or "")
    return 0


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

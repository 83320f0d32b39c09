"""Anthropic messages, seen from the server's side."""

import time
from collections.abc import Mapping
from typing import Any

from aegish_dist.core.verdict import Completion, ErrorClass, StopKind, Usage
from aegish_dist.simulator.dialect import (
    Allowance,
    Call,
    ChatRequest,
    ErrorAnswer,
    ErrorForm,
    as_limit,
    stop_word,
    text_of,
)

_STOP_WORDS = {
    StopKind.STOP: "end_turn",
    StopKind.MAX_TOKENS: "max_tokens",
    StopKind.CONTENT_FILTER: "refusal",
}
_NATIVE = {
    *_STOP_WORDS.values(),
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "model_context_window_exceeded",
}
ERRORS: Mapping[ErrorClass, ErrorForm] = {
    ErrorClass.BAD_REQUEST: ErrorForm(400, "invalid_request_error", "Invalid request."),
    ErrorClass.AUTH: ErrorForm(401, "authentication_error", "invalid x-api-key"),
    ErrorClass.NOT_FOUND: ErrorForm(404, "not_found_error", "model: {model}"),
    ErrorClass.RATE_LIMIT: ErrorForm(
        429, "rate_limit_error", "This request would exceed your organization's rate limit."
    ),
    # This provider reports spent credit as a bad request; only the words differ.
    ErrorClass.QUOTA: ErrorForm(
        400,
        "invalid_request_error",
        "Your credit balance is too low to access the Anthropic API.",
    ),
    ErrorClass.SERVER: ErrorForm(500, "api_error", "Internal server error"),
    ErrorClass.OVERLOADED: ErrorForm(529, "overloaded_error", "Overloaded"),
}


KEY_HEADER = "x-api-key"
KEY_SCHEME = ""


def route(path: str) -> str | None:
    """Return the model in a path of this format: none, as the body names it."""
    return "" if path.endswith("/v1/messages") else None


def read(body: dict[str, Any], model: str) -> ChatRequest | ErrorAnswer:
    for field in ("model", "max_tokens", "messages"):
        if not body.get(field):
            return ErrorAnswer(ErrorClass.BAD_REQUEST, f"{field}: Field required", field)
    if not isinstance(body["model"], str) or not isinstance(body["messages"], list):
        return ErrorAnswer(ErrorClass.BAD_REQUEST, "model, messages: Input should be valid")
    if body.get("stream"):
        return ErrorAnswer(ErrorClass.BAD_REQUEST, "stream: Streaming is not supported")
    if (limit := as_limit(body["max_tokens"])) is None:
        return ErrorAnswer(ErrorClass.BAD_REQUEST, "max_tokens: Input should be a valid integer")
    system = body.get("system", "")
    user, prompt_chars = "", len(text_of(system) or "")
    for place, message in enumerate(body["messages"]):
        text = text_of(message.get("content")) if isinstance(message, dict) else None
        if text is None:
            return ErrorAnswer(ErrorClass.BAD_REQUEST, f"messages.{place}.content: Field required")
        prompt_chars += len(text)
        if message.get("role") == "user":
            user = text
    return ChatRequest(body["model"], user, prompt_chars, _cacheable_chars(system), limit)


def answer_body(answer: Completion, call: Call) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": f"msg_{call.id}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [] if answer.text is None else [{"type": "text", "text": answer.text}],
        "stop_reason": stop_word(answer, _STOP_WORDS, _NATIVE),
        "stop_sequence": None,
    }
    if answer.refusal is not None:
        body["stop_details"] = {
            "type": "refusal",
            "category": None,
            "explanation": answer.refusal,
        }
    if (usage := _usage(answer.usage)) is not None:
        body["usage"] = usage
    return body


def error_body(error: ErrorAnswer, call: Call) -> dict[str, Any]:
    return {
        "type": "error",
        "error": {"type": ERRORS[error.error_class].type, "message": error.message},
        "request_id": f"req_{call.id}",
    }


def headers(allowance: Allowance, call: Call) -> dict[str, str]:
    """Return request id and rate-limit headers."""
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
    return len(text_of(system[: marks[-1] + 1]) or "") if marks else 0


def _usage(usage: Usage) -> dict[str, int] | None:
    """Write the tokens; here the cached ones are not part of `input_tokens`."""
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    return {
        "input_tokens": max(0, (usage.input_tokens or 0) - read - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": usage.output_tokens or 0,
    }

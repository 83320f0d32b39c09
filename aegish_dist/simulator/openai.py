"""OpenAI chat completions, seen from the server's side."""

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
    StopKind.STOP: "stop",
    StopKind.MAX_TOKENS: "length",
    StopKind.CONTENT_FILTER: "content_filter",
}
_NATIVE = {*_STOP_WORDS.values(), "tool_calls", "function_call"}
_INVALID = "invalid_request_error"
ERRORS: Mapping[ErrorClass, ErrorForm] = {
    ErrorClass.BAD_REQUEST: ErrorForm(400, _INVALID, "Invalid request."),
    ErrorClass.AUTH: ErrorForm(401, _INVALID, "Incorrect API key provided.", "invalid_api_key"),
    ErrorClass.NOT_FOUND: ErrorForm(
        404,
        _INVALID,
        "The model `{model}` does not exist or you do not have access to it.",
        "model_not_found",
    ),
    ErrorClass.RATE_LIMIT: ErrorForm(
        429, "requests", "Rate limit reached for {model}.", "rate_limit_exceeded"
    ),
    ErrorClass.QUOTA: ErrorForm(
        429,
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details.",
        "insufficient_quota",
    ),
    ErrorClass.SERVER: ErrorForm(
        500, "server_error", "The server had an error while processing your request."
    ),
    ErrorClass.OVERLOADED: ErrorForm(
        503, "server_error", "The engine is currently overloaded, please try again later."
    ),
}


KEY_HEADER = "Authorization"
KEY_SCHEME = "bearer"


def route(path: str) -> str | None:
    """Return the model in a path of this format: none, as the body names it."""
    return "" if path.endswith("/v1/chat/completions") else None


def read(body: dict[str, Any], model: str) -> ChatRequest | ErrorAnswer:
    model = body.get("model") or model
    if not isinstance(model, str) or not model:
        return ErrorAnswer(ErrorClass.BAD_REQUEST, "you must provide a model parameter", "model")
    words = "Unsupported value: 'stream' does not support true with this model."
    if body.get("stream"):
        return ErrorAnswer(ErrorClass.BAD_REQUEST, words, "stream")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return ErrorAnswer(
            ErrorClass.BAD_REQUEST, "Missing required parameter: 'messages'.", "messages"
        )
    user, prompt_chars = "", 0
    for place, message in enumerate(messages):
        text = text_of(message.get("content")) if isinstance(message, dict) else None
        if text is None:
            field = f"messages[{place}].content"
            return ErrorAnswer(ErrorClass.BAD_REQUEST, f"Invalid type for '{field}'.", field)
        prompt_chars += len(text)
        if message.get("role") == "user":
            user = text
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    return ChatRequest(model, user, prompt_chars, prompt_chars - len(user), as_limit(limit))


def answer_body(answer: Completion, call: Call) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": f"chatcmpl-{call.id}",
        "object": "chat.completion",
        "created": int(call.now_s),
        "model": answer.model,
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": answer.text,
                    "refusal": answer.refusal,
                },
                "logprobs": None,
                "finish_reason": stop_word(answer, _STOP_WORDS, _NATIVE),
            }
        ],
    }
    if (usage := _usage(answer.usage)) is not None:
        body["usage"] = usage
    if answer.upstream is not None:
        body["provider"] = answer.upstream
    return body


def error_body(error: ErrorAnswer, call: Call) -> dict[str, Any]:
    form = ERRORS[error.error_class]
    return {
        "error": {
            "message": error.message,
            "type": form.type,
            "param": error.param,
            "code": form.code,
        }
    }


def headers(allowance: Allowance, call: Call) -> dict[str, str]:
    """Return request id and rate-limit headers."""
    return {
        "x-request-id": f"req_{call.id}",
        "x-ratelimit-limit-requests": str(allowance.limit),
        "x-ratelimit-remaining-requests": str(allowance.remaining),
        "x-ratelimit-reset-requests": _duration(allowance.reset_s),
    }


def _usage(usage: Usage) -> dict[str, Any] | None:
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    prompt, completion = usage.input_tokens or 0, usage.output_tokens or 0
    body: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if usage.cache_read_tokens is not None:
        body["prompt_tokens_details"] = {"cached_tokens": usage.cache_read_tokens}
    if usage.reasoning_tokens is not None:
        body["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return body


def _duration(seconds: float) -> str:
    """Write seconds the way this provider does: `0s`, `120ms`, `1.5s`, `2m0s`."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    minutes, rest = divmod(round(seconds, 3), 60)
    return f"{minutes:.0f}m{rest:g}s" if minutes else f"{rest:g}s"

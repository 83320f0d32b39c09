"""Gemini generateContent, seen from the server's side."""

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
    StopKind.STOP: "STOP",
    StopKind.MAX_TOKENS: "MAX_TOKENS",
    StopKind.CONTENT_FILTER: "SAFETY",
    StopKind.OTHER: "OTHER",
}
_BLOCK_WORDS = {"SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "IMAGE_SAFETY"}
_NATIVE = {
    *_STOP_WORDS.values(),
    *_BLOCK_WORDS,
    "RECITATION",
    "LANGUAGE",
    "SPII",
    "MALFORMED_FUNCTION_CALL",
}
_RPC = "type.googleapis.com/google.rpc."
ERRORS: Mapping[ErrorClass, ErrorForm] = {
    ErrorClass.BAD_REQUEST: ErrorForm(400, "INVALID_ARGUMENT", "Invalid request."),
    ErrorClass.AUTH: ErrorForm(
        401,
        "UNAUTHENTICATED",
        "Request is missing required authentication credential or it is not valid.",
    ),
    ErrorClass.NOT_FOUND: ErrorForm(
        404, "NOT_FOUND", "models/{model} is not found for API version v1beta."
    ),
    ErrorClass.RATE_LIMIT: ErrorForm(
        429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota)."
    ),
    ErrorClass.QUOTA: ErrorForm(
        429,
        "RESOURCE_EXHAUSTED",
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    ErrorClass.SERVER: ErrorForm(500, "INTERNAL", "An internal error has occurred."),
    ErrorClass.OVERLOADED: ErrorForm(
        503, "UNAVAILABLE", "The model is overloaded. Please try again later."
    ),
}

_VERB, _STREAM_VERB = ":generateContent", ":streamGenerateContent"
KEY_HEADER = "x-goog-api-key"
KEY_SCHEME = ""


def route(path: str) -> str | None:
    """Return the model in a path of this format, with the verb of a request to stream."""
    _, found, rest = path.partition("/v1beta/models/")
    if found and rest.endswith(_VERB):
        return rest.removesuffix(_VERB)
    return rest if found and rest.endswith(_STREAM_VERB) else None


def read(body: dict[str, Any], model: str) -> ChatRequest | ErrorAnswer:
    if model.endswith(_STREAM_VERB):
        words = "streamGenerateContent is not supported"
        return ErrorAnswer(ErrorClass.BAD_REQUEST, words)
    if not model:
        return ErrorAnswer(ErrorClass.BAD_REQUEST, "GenerateContentRequest.model: is required")
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        return ErrorAnswer(
            ErrorClass.BAD_REQUEST,
            "* GenerateContentRequest.contents: contents is not specified",
        )
    system = body.get("systemInstruction", body.get("system_instruction"))
    system_chars = len(_parts_text(system) or "")
    user, prompt_chars = "", system_chars
    for place, content in enumerate(contents):
        text = _parts_text(content)
        if text is None:
            field = f"GenerateContentRequest.contents[{place}].parts"
            return ErrorAnswer(ErrorClass.BAD_REQUEST, f"* {field}: must not be empty")
        prompt_chars += len(text)
        if content.get("role", "user") == "user":
            user = text
    return ChatRequest(
        model, user, prompt_chars, system_chars, _limit(body.get("generationConfig"))
    )


def answer_body(answer: Completion, call: Call) -> dict[str, Any]:
    """Return a `GenerateContentResponse`; a prompt that was blocked has no candidates."""
    body: dict[str, Any] = {"modelVersion": answer.model, "responseId": call.id}
    reason = stop_word(answer, _STOP_WORDS, _NATIVE)
    blocked = answer.stop_kind is StopKind.CONTENT_FILTER and reason in _BLOCK_WORDS
    if blocked and answer.text is None:
        body["promptFeedback"] = {"blockReason": reason}
        if answer.refusal is not None:
            body["promptFeedback"]["blockReasonMessage"] = answer.refusal
    else:
        body["candidates"] = [_candidate(answer, reason)]
    if (usage := _usage(answer.usage)) is not None:
        body["usageMetadata"] = usage
    return body


def error_body(error: ErrorAnswer, call: Call) -> dict[str, Any]:
    """Return an `error` object with the details a client can act on."""
    form = ERRORS[error.error_class]
    body: dict[str, Any] = {"code": form.status, "message": error.message, "status": form.type}
    if error.retry_after_s is not None:
        delay = f"{error.retry_after_s:.3f}s"
        body["details"] = [{"@type": f"{_RPC}RetryInfo", "retryDelay": delay}]
    if error.error_class is ErrorClass.QUOTA:
        quota = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}
        body["details"] = [{"@type": f"{_RPC}QuotaFailure", "violations": [quota]}]
    return {"error": body}


def headers(allowance: Allowance, call: Call) -> dict[str, str]:
    """Return no headers: this provider has neither request id nor rate limits in them."""
    return {}


def _parts_text(content: object) -> str | None:
    return text_of(content.get("parts")) if isinstance(content, dict) else None


def _limit(config: object) -> int | None:
    return as_limit(config.get("maxOutputTokens")) if isinstance(config, dict) else None


def _candidate(answer: Completion, reason: str | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model"}}
    if answer.text is not None:
        candidate["content"]["parts"] = [{"text": answer.text}]
    if reason is not None:
        candidate["finishReason"] = reason
    if answer.refusal is not None:
        candidate["finishMessage"] = answer.refusal
    return candidate


def _usage(usage: Usage) -> dict[str, int] | None:
    """Write the tokens; here the thoughts are not part of the candidates."""
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    prompt, output = usage.input_tokens or 0, usage.output_tokens or 0
    body = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": max(0, output - (usage.reasoning_tokens or 0)),
        "totalTokenCount": prompt + output,
    }
    if usage.reasoning_tokens is not None:
        body["thoughtsTokenCount"] = usage.reasoning_tokens
    if usage.cache_read_tokens is not None:
        body["cachedContentTokenCount"] = usage.cache_read_tokens
    return body

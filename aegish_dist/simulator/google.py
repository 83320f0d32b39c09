"""Gemini generateContent, seen from the server's side."""

from collections.abc import Mapping
from typing import Any

from aegish_dist.core.completion import StopKind, Usage
from aegish_dist.core.verdict import ErrorClass
from aegish_dist.simulator.wire import (
    Allowance,
    Ask,
    ErrorForm,
    Refusal,
    Reply,
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
_ERRORS = {
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


STREAM_VERB = ":streamGenerateContent"


class GoogleWire:
    """`POST /v1beta/models/{model}:generateContent`."""

    key_header = "x-goog-api-key"
    key_scheme = ""
    errors: Mapping[ErrorClass, ErrorForm] = _ERRORS

    def read(self, body: dict[str, Any], model: str) -> Ask | Refusal:
        """Validate a request body."""
        if model.endswith(STREAM_VERB):
            words = "streamGenerateContent is not supported"
            return Refusal(ErrorClass.BAD_REQUEST, words)
        if not model:
            return Refusal(ErrorClass.BAD_REQUEST, "GenerateContentRequest.model: is required")
        contents = body.get("contents")
        if not isinstance(contents, list) or not contents:
            return Refusal(
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
                return Refusal(ErrorClass.BAD_REQUEST, f"* {field}: must not be empty")
            prompt_chars += len(text)
            if content.get("role", "user") == "user":
                user = text
        return Ask(model, user, prompt_chars, system_chars, _limit(body.get("generationConfig")))

    def answer(self, reply: Reply, call_id: str, now_s: float) -> dict[str, Any]:
        """Return a `GenerateContentResponse`; a prompt that was blocked has no candidates."""
        body: dict[str, Any] = {"modelVersion": reply.model, "responseId": call_id}
        reason = stop_word(reply, _STOP_WORDS, _NATIVE)
        blocked = reply.stop_kind is StopKind.CONTENT_FILTER and reason in _BLOCK_WORDS
        if blocked and reply.text is None:
            body["promptFeedback"] = {"blockReason": reason}
            if reply.refusal is not None:
                body["promptFeedback"]["blockReasonMessage"] = reply.refusal
        else:
            body["candidates"] = [_candidate(reply, reason)]
        if (usage := _usage(reply.usage)) is not None:
            body["usageMetadata"] = usage
        return body

    def error(self, refusal: Refusal, message: str, call_id: str) -> dict[str, Any]:
        """Return an `error` object with the details a client can act on."""
        form = _ERRORS[refusal.error_class]
        error: dict[str, Any] = {"code": form.status, "message": message, "status": form.type}
        if refusal.retry_after_s is not None:
            delay = f"{refusal.retry_after_s:.3f}s"
            error["details"] = [{"@type": f"{_RPC}RetryInfo", "retryDelay": delay}]
        if refusal.error_class is ErrorClass.QUOTA:
            quota = {"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}
            error["details"] = [{"@type": f"{_RPC}QuotaFailure", "violations": [quota]}]
        return {"error": error}

    def headers(self, call_id: str, allowance: Allowance, now_s: float) -> dict[str, str]:
        """Return no headers: this provider has neither request id nor rate limits in them."""
        return {}


def _parts_text(content: object) -> str | None:
    return text_of(content.get("parts")) if isinstance(content, dict) else None


def _limit(config: object) -> int | None:
    return as_limit(config.get("maxOutputTokens")) if isinstance(config, dict) else None


def _candidate(reply: Reply, reason: str | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model"}}
    if reply.text is not None:
        candidate["content"]["parts"] = [{"text": reply.text}]
    if reason is not None:
        candidate["finishReason"] = reason
    if reply.refusal is not None:
        candidate["finishMessage"] = reply.refusal
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

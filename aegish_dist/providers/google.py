"""Gemini generateContent."""

from urllib.parse import quote

from msgspec.structs import replace

from aegish_dist.core.model import CallParameters, ModelSpec
from aegish_dist.core.outcome import ErrorClass, StopKind
from aegish_dist.core.run import Prompt
from aegish_dist.core.verdict import Completion, Usage
from aegish_dist.errors import ProviderError
from aegish_dist.providers import lenient
from aegish_dist.providers.contract import (
    ANSWER_SCHEMA,
    TOOL,
    RequestTemplate,
    merged,
    stop_kind,
    template,
)
from aegish_dist.providers.lenient import Headers, JsonObject

STOP_KINDS = {
    "STOP": StopKind.STOP,
    "MAX_TOKENS": StopKind.MAX_TOKENS,
    "SAFETY": StopKind.CONTENT_FILTER,
    "RECITATION": StopKind.CONTENT_FILTER,
    "BLOCKLIST": StopKind.CONTENT_FILTER,
    "PROHIBITED_CONTENT": StopKind.CONTENT_FILTER,
    "SPII": StopKind.CONTENT_FILTER,
    "MODEL_ARMOR": StopKind.CONTENT_FILTER,
    "ESCALATION": StopKind.CONTENT_FILTER,
    "CONTINUATION": StopKind.MAX_TOKENS,
}
# Google has limited or disabled the account under its prohibited use policy: no answer.
ACCOUNT_DISABLED = "PUP_LIMITED_DISABLED"

FUNCTION = {**TOOL, "parametersJsonSchema": ANSWER_SCHEMA}
FORCED = {"mode": "ANY", "allowedFunctionNames": [TOOL["name"]]}


def encode(
    spec: ModelSpec,
    prompt: Prompt,
    parameters: CallParameters,
) -> RequestTemplate:
    generation: dict[str, object] = {
        "maxOutputTokens": parameters.max_output_tokens,
        "seed": parameters.seed,
        "temperature": parameters.temperature,
    }
    if spec.structured == "schema":
        generation |= {
            "responseMimeType": "application/json",
            "responseJsonSchema": ANSWER_SCHEMA,
        }
    defaults: dict[str, object] = {
        "systemInstruction": {"parts": [{"text": prompt.system}]} if prompt.system else None,
        "generationConfig": merged(generation, {}),
    }
    if spec.structured == "tool":
        defaults |= {
            "tools": [{"functionDeclarations": [FUNCTION]}],
            "toolConfig": {"functionCallingConfig": FORCED},
        }

    contents = [{"role": "user", "parts": [{"text": prompt.template}]}]
    body = merged(defaults, spec.parameters) | {"contents": contents}
    name = quote(spec.name, safe="")  # it comes from a run: it must not choose the path
    return template(f"{spec.base_url}/models/{name}:generateContent", body)


def request_headers(key: str | None) -> dict[str, str]:
    return {} if key is None else {"x-goog-api-key": key}


def decode(payload: object, headers: Headers) -> Completion:
    """Read the first candidate, or the word that the prompt itself was blocked."""
    candidates = lenient.objects(payload, "candidates")
    answer = _candidate(candidates[0]) if candidates else _blocked(payload)
    return replace(
        answer,
        usage=_usage(lenient.mapping(payload, "usageMetadata")),
        model=lenient.label(payload, "modelVersion"),
        request_id=lenient.label(payload, "responseId"),
    )


def _candidate(candidate: JsonObject) -> Completion:
    reason = lenient.label(candidate, "finishReason")
    if reason == ACCOUNT_DISABLED:
        raise ProviderError(
            f"the account is limited or disabled ({reason})",
            error_class=ErrorClass.AUTH,
            status=200,
        )

    parts = lenient.objects(candidate, "content", "parts")
    called = lenient.arguments(lenient.at(part, "functionCall", "args") for part in parts)
    said = [part for part in parts if part.get("thought") is not True]
    return Completion(
        text=called or "".join(lenient.text(part, "text") or "" for part in said),
        stop_reason=reason,
        stop_kind=stop_kind(reason, STOP_KINDS),
        refusal=lenient.text(candidate, "finishMessage") or None,
    )


def _blocked(payload: object) -> Completion:
    reason = lenient.label(payload, "promptFeedback", "blockReason")
    if reason is None:
        raise lenient.malformed("the answer holds neither a candidate nor a block reason")
    return Completion(
        text="",
        stop_reason=reason,
        stop_kind=StopKind.CONTENT_FILTER,
        refusal=lenient.text(payload, "promptFeedback", "blockReasonMessage") or None,
    )


def _usage(usage: JsonObject) -> Usage:
    """Count thoughts as output, which Google reports apart from the candidates."""
    thoughts = lenient.count(usage, "thoughtsTokenCount")
    candidates = lenient.count(usage, "candidatesTokenCount")
    return Usage(
        input_tokens=lenient.count(usage, "promptTokenCount"),
        output_tokens=lenient.total((candidates, thoughts)),
        reasoning_tokens=thoughts,
        cache_read_tokens=lenient.count(usage, "cachedContentTokenCount"),
    )

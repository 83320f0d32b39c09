"""Anthropic messages."""

from aegish_dist.core.model import CallParameters, ModelSpec, Structured
from aegish_dist.core.outcome import StopKind
from aegish_dist.core.run import Prompt
from aegish_dist.core.verdict import Completion, Usage
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

# Read on 2026-11-23: the vendor's API pages and the clients of others send this version with
# `x-api-key`. The vendor's Python SDK 2.12 sends 2026-10-21 with `Authorization: Bearer`; nothing
# that the vendor has published says what that version changes, or that this one ends.
API_VERSION = "2023-06-01"
STOP_KINDS = {
    "end_turn": StopKind.STOP,
    "stop_sequence": StopKind.STOP,
    "tool_use": StopKind.STOP,
    "max_tokens": StopKind.MAX_TOKENS,
    "model_context_window_exceeded": StopKind.MAX_TOKENS,
    "refusal": StopKind.CONTENT_FILTER,
}
STRUCTURED: dict[Structured | None, dict[str, object]] = {
    None: {},
    "schema": {
        "output_config": {
            "format": {
                "type": "json_schema",
                "schema": ANSWER_SCHEMA,
            }
        }
    },
    "tool": {
        "tools": [{**TOOL, "input_schema": ANSWER_SCHEMA}],
        "tool_choice": {
            "type": "tool",
            "name": TOOL["name"],
            "disable_parallel_tool_use": True,
        },
    },
}


def encode(
    spec: ModelSpec,
    prompt: Prompt,
    parameters: CallParameters,
) -> RequestTemplate:
    """Prepare a request; the wire format has no seed."""
    system = {
        "type": "text",
        "text": prompt.system,
        "cache_control": {"type": "ephemeral"},
    }
    defaults = {
        "model": spec.name,
        "max_tokens": parameters.max_output_tokens,
        "temperature": parameters.temperature,
        # Cacheable: it is the same for every sample of a run.
        "system": [system] if prompt.system else None,
        **STRUCTURED[spec.structured],
    }
    messages = [{"role": "user", "content": prompt.template}]
    body = merged(defaults, spec.parameters) | {"messages": messages}
    return template(f"{spec.base_url}/v1/messages", body)


def request_headers(key: str | None) -> dict[str, str]:
    version = {"anthropic-version": API_VERSION}
    return version if key is None else version | {"x-api-key": key}


def decode(payload: object, headers: Headers) -> Completion:
    content = lenient.at(payload, "content")
    if not isinstance(content, list):
        raise lenient.malformed("the answer holds no content")
    reason = lenient.label(payload, "stop_reason")
    details = [
        lenient.text(payload, "stop_details", "category"),
        lenient.text(payload, "stop_details", "explanation"),
    ]
    calls = [part for part in lenient.objects(content) if part.get("type") == "tool_use"]
    called = lenient.arguments(call.get("input") for call in calls)
    return Completion(
        text=called or lenient.joined_text(content),
        stop_reason=reason,
        stop_kind=stop_kind(reason, STOP_KINDS),
        usage=_usage(lenient.mapping(payload, "usage")),
        refusal=": ".join(words for words in details if words) or None,
        model=lenient.label(payload, "model"),
        request_id=lenient.label(headers.get("request-id")) or lenient.label(payload, "id"),
    )


def _usage(usage: JsonObject) -> Usage:
    """Count cached tokens as input, which Anthropic reports apart from it."""
    cache_read = lenient.count(usage, "cache_read_input_tokens")
    cache_write = lenient.count(usage, "cache_creation_input_tokens")
    fresh = lenient.count(usage, "input_tokens")
    return Usage(
        input_tokens=lenient.total((fresh, cache_read, cache_write)),
        output_tokens=lenient.count(usage, "output_tokens"),
        reasoning_tokens=lenient.count(usage, "output_tokens_details", "thinking_tokens"),
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
        cache_write_1h_tokens=lenient.count(usage, "cache_creation", "ephemeral_1h_input_tokens"),
    )

"""OpenAI chat completions, also spoken by OpenRouter, Hugging Face, vLLM, Ollama and others."""

import math
from urllib.parse import urlsplit

from aegish_dist.core.model import CallParameters, ModelSpec, Structured
from aegish_dist.core.outcome import StopKind
from aegish_dist.core.output import ActionJson, Output
from aegish_dist.core.run import Prompt
from aegish_dist.core.verdict import Completion, Usage
from aegish_dist.opinions.mapping import tokens_of
from aegish_dist.providers import failures, lenient
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
    "stop": StopKind.STOP,
    "eos": StopKind.STOP,
    "eos_token": StopKind.STOP,
    "stop_sequence": StopKind.STOP,
    "tool_calls": StopKind.STOP,
    "length": StopKind.MAX_TOKENS,
    "max_tokens": StopKind.MAX_TOKENS,
    "model_length": StopKind.MAX_TOKENS,
    "content_filter": StopKind.CONTENT_FILTER,
}
FUNCTION = {
    **TOOL,
    "strict": True,
    "parameters": ANSWER_SCHEMA,
}
STRUCTURED: dict[Structured | None, dict[str, object]] = {
    None: {},
    "schema": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                **TOOL,
                "strict": True,
                "schema": ANSWER_SCHEMA,
            },
        }
    },
    "tool": {
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": {
            "type": "function",
            "function": {"name": TOOL["name"]},
        },
    },
}
TOKENS_READ = 16  # the first ones of an answer, whose candidates are kept


def encode(
    spec: ModelSpec,
    prompt: Prompt,
    parameters: CallParameters,
) -> RequestTemplate:
    defaults = {
        "model": spec.name,
        spec.max_tokens_field or _by_host(spec.base_url): parameters.max_output_tokens,
        "seed": parameters.seed,
        "temperature": parameters.temperature,
        **STRUCTURED[spec.structured],
        **_logprobs(spec.output),
    }
    messages = (
        [
            {
                "role": "system",
                "content": prompt.system,
            }
        ]
        if prompt.system
        else []
    )
    messages.append({"role": "user", "content": prompt.template})
    body = merged(defaults, spec.parameters) | {"messages": messages}
    return template(f"{spec.base_url}/chat/completions", body)


def _logprobs(output: Output | None) -> dict[str, object]:
    """Ask for candidates, of JSON for fewer: 200 tokens with ten are what a response may hold."""
    if output is None or not tokens_of(output):
        return {}
    return {
        "logprobs": True,
        "top_logprobs": 10 if isinstance(output, ActionJson) else 20,
    }


def _by_host(base_url: str) -> str:
    """OpenAI's reasoning models refuse max_tokens; other hosts often know nothing else."""
    host = urlsplit(base_url).hostname or ""
    # Regional hosts have eu. or us. before the name.
    if host == "api.openai.com" or host.endswith(".api.openai.com"):
        return "max_completion_tokens"
    return "max_tokens"


def request_headers(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def decode(payload: object, headers: Headers) -> Completion:
    """Read a chat completion, or the error that some routers send with status 200."""
    choices = lenient.objects(payload, "choices")
    choice = choices[0] if choices else {}
    reason = lenient.label(choice, "finish_reason")
    error = lenient.at(payload, "error") or choice.get("error")
    if error or reason == "error":
        return failures.settle(_status(error), {"error": error}, headers)
    if not choices:
        raise lenient.malformed("the answer holds no choice")
    message = lenient.mapping(choice, "message")
    refusal = lenient.text(message, "refusal") or None
    kind = StopKind.CONTENT_FILTER if refusal else stop_kind(reason, STOP_KINDS)
    calls = lenient.objects(message, "tool_calls")
    called = lenient.arguments(lenient.at(call, "function", "arguments") for call in calls)
    tokens = lenient.objects(choice, "logprobs", "content")
    return Completion(
        text=called or _text(message.get("content")),
        stop_reason=reason,
        stop_kind=kind,
        usage=_usage(lenient.mapping(payload, "usage")),
        refusal=refusal,
        model=lenient.label(payload, "model"),
        upstream=lenient.label(payload, "provider"),
        request_id=lenient.label(headers.get("x-request-id")) or lenient.label(payload, "id"),
        logprobs=tuple(map(_candidates, tokens[:TOKENS_READ])),
    )


def _candidates(token: JsonObject) -> dict[str, float]:
    """Return the tokens that could have stood in a place, the one that does first."""
    logprobs: dict[str, float] = {}
    for candidate in (token, *lenient.objects(token, "top_logprobs")):
        text = lenient.text(candidate, "token")
        logprob = candidate.get("logprob")
        # A list of what is likely holds no NaN, and what is not likely at all adds nothing.
        if text is not None and isinstance(logprob, int | float) and -1_000 < logprob <= 0:
            logprobs[text] = max(float(logprob), logprobs.get(text, -math.inf))

    return logprobs


def _status(error: object) -> int:
    """Return the HTTP status that an embedded error names, 502 when it names none."""
    code = lenient.at(error, "code")
    if isinstance(code, str) and code.isdecimal() and len(code) == 3:
        code = int(code)
    if isinstance(code, int) and 400 <= code < 600:
        return code
    return 502


def _text(content: object) -> str | None:
    """Return the text of a message, which some hosts send in parts."""
    if isinstance(content, list):
        return lenient.joined_text(content)
    return lenient.text(content)


def _usage(usage: JsonObject) -> Usage:
    input_tokens = lenient.count(usage, "prompt_tokens")
    output_tokens = lenient.count(usage, "completion_tokens")
    reasoning_tokens = lenient.count(usage, "completion_tokens_details", "reasoning_tokens")
    # xAI leaves reasoning out of completion_tokens; the total shows it.
    apart = lenient.total((input_tokens, output_tokens, reasoning_tokens))
    if reasoning_tokens and output_tokens is not None and usage.get("total_tokens") == apart:
        output_tokens += reasoning_tokens
    return Usage(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        reasoning_tokens=reasoning_tokens,
        cache_read_tokens=lenient.count(usage, "prompt_tokens_details", "cached_tokens"),
        cache_write_tokens=lenient.count(usage, "prompt_tokens_details", "cache_write_tokens"),
    )

"""OpenAI chat completions, seen from the server's side."""

import math
import re
from operator import itemgetter

from msgspec.structs import replace

from aegish_dist.core.model import WireFormat
from aegish_dist.core.text import JsonObject
from aegish_dist.core.verdict import Completion, Usage
from aegish_dist.errors import InputError
from aegish_dist.opinions.parsing import parse
from aegish_dist.simulator import dialect

_WORDS = dialect.WORDS[WireFormat.OPENAI]
ERRORS = _WORDS.errors
KEY_HEADER = "Authorization"
KEY_SCHEME = "bearer"
MOST_LOGPROBS = 20
_ACTIONS = ("ALLOW", "WARN", "BLOCK")


def route(path: str) -> str | None:
    """Return the model in a path of this format: none, as the body names it."""
    if path.endswith("/v1/chat/completions"):
        return ""
    return None


def read(body: JsonObject, model: str) -> dialect.ChatRequest:
    named = body.get("model") or model
    user, prompt_chars = dialect.conversation(
        named, body.get("stream"), body.get("messages"), "content"
    )
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    return dialect.ChatRequest(
        model=named,
        user=user,
        prompt_chars=prompt_chars,
        cacheable_chars=prompt_chars - len(user),
        max_output_tokens=dialect.as_limit(limit),
        form=_form(body),
    )


def _form(body: JsonObject) -> dialect.Form:
    top = body.get("top_logprobs", 0)
    wants_logprobs = body.get("logprobs") is True
    if not isinstance(top, int) or not 0 <= top <= MOST_LOGPROBS or (top and not wants_logprobs):
        words = f"top_logprobs must be from 0 to {MOST_LOGPROBS}, and logprobs true"
        raise InputError(words, field="top_logprobs")

    form = _answer_form(body)
    if wants_logprobs:
        return replace(form, top_logprobs=top)
    return form


def _answer_form(body: JsonObject) -> dialect.Form:
    """Return the form by a tool that has to be called, or by a schema of the text."""
    forced = dialect.inner(body, "tool_choice", "function").get("name")
    schema = None
    if forced:
        for tool in dialect.listed(body, "tools"):
            function = dialect.inner(tool, "function")
            if function.get("name") == forced:
                schema = function.get("parameters")
                break
        return dialect.form(schema, "tools", str(forced))

    wanted = dialect.inner(body, "response_format")
    if wanted.get("type") != "json_schema":
        return dialect.Form()
    named = dialect.inner(wanted, "json_schema")
    if named.get("name"):
        schema = named.get("schema")
    return dialect.form(schema, "response_format")


def answer_body(answer: Completion, call: dialect.Call) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": answer.text}
    message["refusal"] = answer.refusal
    if isinstance(answer, dialect.Answer) and answer.arguments is not None:
        function = {"name": answer.form.tool, "arguments": answer.text}
        called = {
            "id": f"call_{call.id}",
            "type": "function",
            "function": function,
        }
        message |= {"content": None, "tool_calls": [called]}

    body: JsonObject = {
        "id": f"chatcmpl-{call.id}",
        "object": "chat.completion",
        "created": int(call.now_s),
        "model": answer.model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": _logprobs(answer),
                "finish_reason": dialect.stop_word(answer, _WORDS.stops, _WORDS.native),
            }
        ],
    }
    if dialect.is_reported(answer.usage):
        body["usage"] = _usage(answer.usage)
    if answer.upstream is not None:
        body["provider"] = answer.upstream
    return body


def _logprobs(answer: Completion) -> JsonObject | None:
    """Return the tokens of an answer, which is as sure of its action as it says."""
    if not isinstance(answer, dialect.Answer) or answer.form.top_logprobs is None:
        return None
    read = parse(answer.text)
    stated = 0.5 if read.confidence is None else read.confidence
    # The action stays the likeliest of three, and leaves the others a chance.
    confidence = min(max(stated, 0.34), 0.98)
    tokens = []
    for text in re.findall(r"\w+|\W+", answer.text or ""):
        chances = {text: 0.98}
        if text == read.action:
            chances = dict.fromkeys(_ACTIONS, (1 - confidence) / 2)
            chances[text] = confidence
        likeliest = sorted(chances.items(), key=itemgetter(1), reverse=True)
        token = _token(text, chances[text])
        token["top_logprobs"] = [_token(*each) for each in likeliest[: answer.form.top_logprobs]]
        tokens.append(token)

    return {"content": tokens, "refusal": None}


def _token(text: str, chance: float) -> JsonObject:
    return {
        "token": text,
        "logprob": math.log(chance),
        "bytes": list(text.encode("utf-8", "surrogatepass")),
    }


def error_body(error: dialect.ErrorAnswer, call: dialect.Call) -> JsonObject:
    form = ERRORS[error.error_class]
    return {
        "error": {
            "message": error.message,
            "type": form.type,
            "param": error.param,
            "code": form.code,
        }
    }


def headers(allowance: dialect.Allowance, call: dialect.Call) -> dict[str, str]:
    return {
        "x-request-id": f"req_{call.id}",
        "x-ratelimit-limit-requests": str(allowance.limit),
        "x-ratelimit-remaining-requests": str(allowance.remaining),
        "x-ratelimit-reset-requests": _duration(allowance.reset_s),
    }


def _usage(usage: Usage) -> JsonObject:
    prompt = usage.input_tokens or 0
    completion = usage.output_tokens or 0
    body: JsonObject = {
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
    if minutes:
        return f"{minutes:.0f}m{rest:g}s"
    return f"{rest:g}s"

"""Gemini generateContent, seen from the server's side."""

from aegish_dist.core.model import WireFormat
from aegish_dist.core.outcome import ErrorClass, StopKind
from aegish_dist.core.text import JsonObject
from aegish_dist.core.verdict import Completion, Usage
from aegish_dist.errors import InputError
from aegish_dist.simulator import dialect

_RPC = "type.googleapis.com/google.rpc."
_WORDS = dialect.WORDS[WireFormat.GOOGLE]
ERRORS = _WORDS.errors

_VERB = ":generateContent"
_STREAM_VERB = ":streamGenerateContent"
KEY_HEADER = "x-goog-api-key"
KEY_SCHEME = ""


def route(path: str) -> str | None:
    """Return the model in a path of this format, with the verb of a request to stream."""
    _, found, rest = path.partition("/v1beta/models/")
    if found and rest.endswith(_VERB):
        return rest.removesuffix(_VERB)
    if found and rest.endswith(_STREAM_VERB):
        return rest
    return None


def read(body: JsonObject, model: str) -> dialect.ChatRequest:
    user, chars = dialect.conversation(
        model, model.endswith(_STREAM_VERB), body.get("contents"), "parts", role="user"
    )
    system = dialect.inner(body, "systemInstruction") or dialect.inner(body, "system_instruction")
    system_chars = dialect.chars_of(system.get("parts"))
    limit = dialect.inner(body, "generationConfig").get("maxOutputTokens")
    return dialect.ChatRequest(
        model=model,
        user=user,
        prompt_chars=system_chars + chars,
        cacheable_chars=system_chars,
        max_output_tokens=dialect.as_limit(limit),
        form=_form(body),
    )


def _form(body: JsonObject) -> dialect.Form:
    calling = dialect.inner(body, "toolConfig", "functionCallingConfig")
    if calling.get("mode") == "ANY":
        functions = []
        for group in dialect.listed(body, "tools"):
            functions += dialect.listed(group, "functionDeclarations")
        function = functions[0] if functions else {}
        name = function.get("name")
        if calling.get("allowedFunctionNames", [name]) != [name]:
            words = "allowed_function_names: unknown function"
            raise InputError(words, field="toolConfig")
        # The vendor's own client sends the second form.
        schema = function.get("parametersJsonSchema", function.get("parameters_json_schema"))
        return dialect.form(schema, "tools", str(name), closed=False)

    wanted = dialect.inner(body, "generationConfig")
    schema = wanted.get("responseJsonSchema")
    if schema is None:
        return dialect.Form()
    if wanted.get("responseMimeType") != "application/json":
        words = "response_mime_type: a response schema needs 'application/json'"
        raise InputError(words, field="generationConfig")

    return dialect.form(schema, "generationConfig", closed=False)


def answer_body(answer: Completion, call: dialect.Call) -> JsonObject:
    """Return a `GenerateContentResponse`; a prompt that was blocked has no candidates."""
    body: JsonObject = {"modelVersion": answer.model, "responseId": call.id}
    reason = dialect.stop_word(answer, _WORDS.stops, _WORDS.native)
    blocked = answer.stop_kind is StopKind.CONTENT_FILTER and reason in _WORDS.blocks
    if blocked and answer.text is None:
        body["promptFeedback"] = {"blockReason": reason}
        if answer.refusal is not None:
            body["promptFeedback"]["blockReasonMessage"] = answer.refusal
    else:
        body["candidates"] = [_candidate(answer, reason)]

    if dialect.is_reported(answer.usage):
        body["usageMetadata"] = _usage(answer.usage)
    return body


def error_body(error: dialect.ErrorAnswer, call: dialect.Call) -> JsonObject:
    """Return an `error` object with the details a client can act on."""
    form = ERRORS[error.error_class]
    body: JsonObject = {
        "code": form.status,
        "message": error.message,
        "status": form.type,
    }
    if error.retry_after_s is not None:
        retry = {
            "@type": f"{_RPC}RetryInfo",
            "retryDelay": f"{error.retry_after_s:.3f}s",
        }
        body["details"] = [retry]

    if error.error_class is ErrorClass.QUOTA:
        failure = {
            "@type": f"{_RPC}QuotaFailure",
            "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel"}],
        }
        body["details"] = [failure]

    return {"error": body}


def headers(allowance: dialect.Allowance, call: dialect.Call) -> dict[str, str]:
    """Return no headers: this provider has neither request id nor rate limits in them."""
    return {}


def _candidate(answer: Completion, reason: str | None) -> JsonObject:
    content: JsonObject = {"role": "model"}
    if isinstance(answer, dialect.Answer) and answer.arguments is not None:
        called = {
            "name": answer.form.tool,
            "args": answer.arguments,
        }
        content["parts"] = [{"functionCall": called}]
    elif answer.text is not None:
        content["parts"] = [{"text": answer.text}]

    candidate: JsonObject = {"index": 0, "content": content}
    if reason is not None:
        candidate["finishReason"] = reason
    if answer.refusal is not None:
        candidate["finishMessage"] = answer.refusal
    return candidate


def _usage(usage: Usage) -> dict[str, int]:
    """Write the tokens; here the thoughts are not part of the candidates."""
    prompt = usage.input_tokens or 0
    output = usage.output_tokens or 0
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

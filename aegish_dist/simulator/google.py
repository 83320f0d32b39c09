"""Gemini generateContent and batches of it, seen from the server's side.

A batch has its requests in an uploaded file, and its results in another.
"""

import time
from typing import Any

from aegish_dist.core.batches import Unanswered
from aegish_dist.core.outcome import ErrorClass, StopKind
from aegish_dist.core.verdict import Completion, Usage
from aegish_dist.simulator import batches, dialect
from aegish_dist.simulator.config import Endpoint

_RPC = "type.googleapis.com/google.rpc."
_WORDS = dialect.WORDS["google"]
ERRORS = _WORDS.errors

_VERB, _STREAM_VERB = ":generateContent", ":streamGenerateContent"
KEY_HEADER = "x-goog-api-key"
KEY_SCHEME = ""


def route(path: str) -> str | None:
    """Return the model in a path of this format, with the verb of a request to stream."""
    _, found, rest = path.partition("/v1beta/models/")
    if found and rest.endswith(_VERB):
        return rest.removesuffix(_VERB)
    return rest if found and rest.endswith(_STREAM_VERB) else None


def read(body: dict[str, Any], model: str) -> dialect.ChatRequest | dialect.ErrorAnswer:
    found = dialect.conversation(
        model, model.endswith(_STREAM_VERB), body.get("contents"), "parts", role="user"
    )
    if isinstance(found, dialect.ErrorAnswer):
        return found
    system = dialect.inner(body, "systemInstruction") or dialect.inner(body, "system_instruction")
    system_chars = len(dialect.text_of(system.get("parts")) or "")
    limit = dialect.as_limit(dialect.inner(body, "generationConfig").get("maxOutputTokens"))
    form = _form(body)
    if isinstance(form, dialect.ErrorAnswer):
        return form
    chars = system_chars + found[1]
    return dialect.ChatRequest(model, found[0], chars, system_chars, limit, form)


def _form(body: dict[str, Any]) -> dialect.Form | dialect.ErrorAnswer:
    calling = dialect.inner(body, "toolConfig", "functionCallingConfig")
    if calling.get("mode") == "ANY":
        groups = dialect.listed(body, "tools")
        known = [each for group in groups for each in dialect.listed(group, "functionDeclarations")]
        called = known[0] if known else {}
        if calling.get("allowedFunctionNames", [called.get("name")]) != [called.get("name")]:
            return dialect.refusal("allowed_function_names: unknown function", "toolConfig")
        # The vendor's own client sends the second form.
        schema = called.get("parametersJsonSchema", called.get("parameters_json_schema"))
        return dialect.form(schema, "tools", str(called.get("name")), closed=False)
    wanted = dialect.inner(body, "generationConfig")
    if (schema := wanted.get("responseJsonSchema")) is None:
        return dialect.Form()
    if wanted.get("responseMimeType") != "application/json":
        words = "response_mime_type: a response schema needs 'application/json'"
        return dialect.refusal(words, "generationConfig")
    return dialect.form(schema, "generationConfig", closed=False)


def answer_body(answer: Completion, call: dialect.Call) -> dict[str, Any]:
    """Return a `GenerateContentResponse`; a prompt that was blocked has no candidates."""
    body: dict[str, Any] = {"modelVersion": answer.model, "responseId": call.id}
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


def error_body(error: dialect.ErrorAnswer, call: dialect.Call) -> dict[str, Any]:
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


def headers(allowance: dialect.Allowance, call: dialect.Call) -> dict[str, str]:
    """Return no headers: this provider has neither request id nor rate limits in them."""
    return {}


def _candidate(answer: Completion, reason: str | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model"}}
    if isinstance(answer, dialect.Answer) and answer.arguments is not None:
        called = {"name": answer.form.tool, "args": answer.arguments}
        candidate["content"]["parts"] = [{"functionCall": called}]
    elif answer.text is not None:
        candidate["content"]["parts"] = [{"text": answer.text}]
    if reason is not None:
        candidate["finishReason"] = reason
    if answer.refusal is not None:
        candidate["finishMessage"] = answer.refusal
    return candidate


def _usage(usage: Usage) -> dict[str, int]:
    """Write the tokens; here the thoughts are not part of the candidates."""
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


MAX_FILE_BYTES = 2 * 2**30
_TYPE = "type.googleapis.com/google.ai.generativelanguage.v1beta."
# Codes of google.rpc.Code: results and operations have these, HTTP bodies the status of HTTP.
_INVALID, _CANCELLED = 3, 1


async def _upload(call: batches.BatchCall) -> batches.Reply:
    """Begin to take a file, or take a part of it; the last one says `finalize`."""
    command = call.request.headers.get("X-Goog-Upload-Command", "")
    if "upload_id" not in call.request.query:
        return await _begin_upload(call, command)
    upload = call.store.uploads.get(call.request.query["upload_id"])
    content = await call.body(MAX_FILE_BYTES)
    if upload is None or content is None:
        return dialect.refusal("No such upload, or it is too large.")
    name, received = upload
    if call.request.headers.get("X-Goog-Upload-Offset", "") != str(len(received)):
        return dialect.refusal("The offset of the upload is not where it ended.")
    received += content
    if "finalize" not in command:
        return dialect.json_response(200, {}, {"X-Goog-Upload-Status": "active"})
    del call.store.uploads[call.request.query["upload_id"]]
    file = call.store.add_file(name, "UPLOADED", bytes(received))
    described = {
        "name": f"files/{file.id}",
        "displayName": file.name,
        "mimeType": "application/jsonl",
        "sizeBytes": str(len(file.content)),
        "createTime": batches.timestamp(file.created_s),
        "updateTime": batches.timestamp(file.created_s),
        "uri": f"{call.exchange.root}/v1beta/files/{file.id}",
        "state": "ACTIVE",
        "source": file.purpose,
    }
    return dialect.json_response(200, {"file": described}, {"X-Goog-Upload-Status": "final"})


async def _begin_upload(call: batches.BatchCall, command: str) -> batches.Reply:
    if command != "start":
        return dialect.refusal("Only resumable uploads are supported.")
    body = await call.json()
    upload = batches.new_id()
    call.store.uploads[upload] = (
        str(dialect.inner(body, "file").get("displayName", "")),
        bytearray(),
    )
    url = f"{call.exchange.root}{call.request.path}?upload_id={upload}"
    return dialect.json_response(
        200, {}, {"X-Goog-Upload-URL": url, "X-Goog-Upload-Status": "active"}
    )


def _list_batches(call: batches.BatchCall) -> batches.Reply:
    query = call.request.query
    limit = batches.number_in(query.get("pageSize"), 50, 1_000)
    found, more = call.store.page(limit, query.get("pageToken", ""))
    entries: dict[str, Any] = {"operations": [_operation(each, call) for each in found]}
    return entries | ({"nextPageToken": found[-1].id} if more else {})


def _delete_file(file: batches.StoredFile, call: batches.BatchCall) -> batches.Reply:
    del call.store.files[file.id]
    return {}


async def _create(call: batches.BatchCall) -> batches.Reply:
    body = await call.json()
    batch = dialect.inner(body, "batch")
    given = dialect.inner(batch, "inputConfig") or dialect.inner(batch, "input_config")
    name = str(given.get("fileName", given.get("file_name", "")))
    file = call.store.files.get(name.removeprefix("files/"))
    if file is None:
        return dialect.ErrorAnswer(ErrorClass.NOT_FOUND, f"File '{name}' is not found.")
    model = call.found["model"]
    facts = {"model": f"models/{model}", "displayName": batch.get("displayName")}
    requests = _file_requests(file.content, model)
    return _operation(call.store.create(requests, facts, _leave_file), call)


def _file_requests(content: bytes, model: str) -> batches.Source:
    number = 0
    for number, line in enumerate(content.splitlines(), start=1):
        entry = batches.json_object(line)
        if entry is None:
            words = f"Line {number} of the input file is not a JSON object."
            yield batches.BatchProblem("INVALID_ARGUMENT", words, number)
            return
        yield str(entry.get("key", "")), read(dialect.inner(entry, "request"), model)
    if not number:
        yield batches.BatchProblem("INVALID_ARGUMENT", "The input file is empty.")


def _leave_file(store: batches.BatchStore, batch: batches.SimulatedBatch) -> None:
    """Keep the results in a file; an expired batch has none."""
    if batch.answers:
        content = batch.written(_line_body)
        file = store.add_file(f"batch-{batch.id}", "GENERATED", content)
        batch.files["responsesFile"] = f"files/{file.id}"


def _line_body(line: batches.BatchAnswer, call: dialect.Call) -> dict[str, Any]:
    match line.outcome:
        case Completion():
            return {"key": line.name, "response": answer_body(line.outcome, call)}
        case Unanswered():
            error = {"code": _CANCELLED, "message": "The batch was cancelled."}
        case _:
            code = _WORDS.codes.get(line.outcome.error_class, 2)
            error = {"code": code, "message": line.outcome.message}
    return {"key": line.name, "error": error}


def _cancel(batch: batches.SimulatedBatch, _call: batches.BatchCall) -> batches.Reply:
    batch.cancel()
    return {}


def _operation(batch: batches.SimulatedBatch, _call: batches.BatchCall) -> dict[str, Any]:
    name = f"batches/{batch.id}"
    metadata: dict[str, Any] = {
        "@type": f"{_TYPE}GenerateContentBatch",
        "name": name,
        **batch.facts,
        "createTime": batches.timestamp(batch.created_s),
        "updateTime": batches.timestamp(time.time() if batch.ended_s is None else batch.ended_s),
        "batchStats": _stats(batch),
        "state": _WORDS.phases[batch.phase],
    }
    if not batch.has_ended:
        return {"name": name, "metadata": metadata}
    ended = {"name": name, "metadata": metadata, "done": True}
    metadata["endTime"] = metadata["updateTime"]
    if batch.problems:
        return ended | {"error": {"code": _INVALID, "message": batch.problems[0].message}}
    metadata["output"] = batch.files
    return ended | {"response": {"@type": f"{_TYPE}GenerateContentBatchOutput", **batch.files}}


def _stats(batch: batches.SimulatedBatch) -> dict[str, str]:
    """Count the requests, as texts and without zeros, as this provider writes large integers."""
    answered, failed = batch.counts
    counts = {
        "requestCount": batch.size,
        "successfulRequestCount": answered,
        "failedRequestCount": failed,
        "pendingRequestCount": batch.size - answered - failed,
    }
    return {name: str(number) for name, number in counts.items() if number}


_FILES = "/v1beta/files"
_FILE = rf"{_FILES}/(?P<file>[^/:]+)"
_BATCHES = "/v1beta/batches"
_BATCH = rf"{_BATCHES}/(?P<batch>[^/:]+)"
ROUTES = (
    ("POST", f"/upload{_FILES}", Endpoint.UPLOAD, _upload),
    ("GET", f"{_FILE}:download", Endpoint.RESULTS, batches.read_file),
    ("DELETE", _FILE, Endpoint.DELETE, _delete_file),
    ("POST", r"/v1beta/models/(?P<model>.+):batchGenerateContent", Endpoint.CREATE, _create),
    ("GET", _BATCHES, Endpoint.LIST, _list_batches),
    ("GET", _BATCH, Endpoint.POLL, _operation),
    ("POST", f"{_BATCH}:cancel", Endpoint.CANCEL, _cancel),
)

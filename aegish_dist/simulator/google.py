"""Gemini generateContent and batches of it, seen from the server's side.

A batch has its requests in the body or in an uploaded file, and its results likewise.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from aegish_dist.core.batches import Unanswered
from aegish_dist.core.outcome import ErrorClass, StopKind
from aegish_dist.core.verdict import Completion, Usage
from aegish_dist.simulator.batch_lifecycle import (
    BatchPhase,
    BatchProblem,
    BatchStore,
    NamedRequest,
    RequestOutcome,
    ResultLine,
    SimulatedBatch,
    StoredFile,
    T,
    page,
    written,
)
from aegish_dist.simulator.batch_service import (
    BatchCall,
    BatchReply,
    Reply,
    Route,
    json_object,
    number_in,
    read_body,
    timestamp,
)
from aegish_dist.simulator.config import Endpoint
from aegish_dist.simulator.dialect import (
    Allowance,
    Call,
    ChatRequest,
    ErrorAnswer,
    ErrorForm,
    as_limit,
    is_reported,
    read_messages,
    refusal,
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
        return refusal("streamGenerateContent is not supported")
    if not model:
        return refusal("GenerateContentRequest.model: is required")
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        return refusal("* GenerateContentRequest.contents: contents is not specified")
    system = body.get("systemInstruction", body.get("system_instruction"))
    system_chars = len(text_of(system.get("parts")) or "") if isinstance(system, dict) else 0
    found = read_messages(contents, "parts", role="user")
    if isinstance(found, int):
        return refusal(f"* GenerateContentRequest.contents[{found}].parts: must not be empty")
    config = body.get("generationConfig")
    limit = as_limit(config.get("maxOutputTokens")) if isinstance(config, dict) else None
    return ChatRequest(model, found[0], system_chars + found[1], system_chars, limit)


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
    if is_reported(answer.usage):
        body["usageMetadata"] = _usage(answer.usage)
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


def _candidate(answer: Completion, reason: str | None) -> dict[str, Any]:
    candidate: dict[str, Any] = {"index": 0, "content": {"role": "model"}}
    if answer.text is not None:
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


MAX_INLINE_BYTES = 20 * 2**20
MAX_FILE_BYTES = 2 * 2**30
_MAX_DESCRIPTION_BYTES = 2**20
MISSING = {"file": "File '{id}' is not found.", "batch": "Batch '{id}' is not found."}
_TYPE = "type.googleapis.com/google.ai.generativelanguage.v1beta."
_STATES = {
    BatchPhase.VALIDATING: "BATCH_STATE_PENDING",
    BatchPhase.IN_PROGRESS: "BATCH_STATE_RUNNING",
    BatchPhase.CANCELLING: "BATCH_STATE_RUNNING",
    BatchPhase.COMPLETED: "BATCH_STATE_SUCCEEDED",
    BatchPhase.EXPIRED: "BATCH_STATE_EXPIRED",
    BatchPhase.CANCELLED: "BATCH_STATE_CANCELLED",
    BatchPhase.FAILED: "BATCH_STATE_FAILED",
}
# Codes of google.rpc.Code: results and operations have these, HTTP bodies the status of HTTP.
_INVALID, _CANCELLED = 3, 1
_CODES = {
    ErrorClass.BAD_REQUEST: _INVALID,
    ErrorClass.AUTH: 16,
    ErrorClass.NOT_FOUND: 5,
    ErrorClass.RATE_LIMIT: 8,
    ErrorClass.QUOTA: 8,
    ErrorClass.SERVER: 13,
    ErrorClass.OVERLOADED: 14,
}


async def _begin_upload(call: BatchCall) -> Reply:
    if call.request.headers.get("X-Goog-Upload-Command", "") != "start":
        return refusal("Only resumable uploads are supported.")
    if (
        number_in(call.request.headers.get("X-Goog-Upload-Header-Content-Length", ""), 0, 2**62)
        > MAX_FILE_BYTES
    ):
        return refusal(f"Files may have {MAX_FILE_BYTES} bytes.")
    body = json_object(await read_body(call.request.content, _MAX_DESCRIPTION_BYTES)) or {}
    file = body.get("file")
    described = file if isinstance(file, dict) else {}
    upload = call.store.begin_upload(str(described.get("displayName", "")))
    url = f"{call.exchange.root}{call.request.path}?upload_id={upload}"
    return BatchReply({}, {"X-Goog-Upload-URL": url, "X-Goog-Upload-Status": "active"})


async def _upload(call: BatchCall) -> Reply:
    """Take a part of a file; the last one says `finalize`."""
    if "upload_id" not in call.request.query:
        return await _begin_upload(call)
    upload = call.store.uploads.get(call.request.query["upload_id"])
    content = await read_body(call.request.content, MAX_FILE_BYTES)
    if upload is None or content is None:
        return refusal("No such upload, or it is too large.")
    name, received = upload
    if call.request.headers.get("X-Goog-Upload-Offset", "") != str(len(received)):
        return refusal("The offset of the upload is not where it ended.")
    received += content
    if "finalize" not in call.request.headers.get("X-Goog-Upload-Command", ""):
        return BatchReply({}, {"X-Goog-Upload-Status": "active"})
    del call.store.uploads[call.request.query["upload_id"]]
    file = call.store.add_file(name, "UPLOADED", bytes(received))
    return BatchReply({"file": _file_body(file, call)}, {"X-Goog-Upload-Status": "final"})


def _list_files(call: BatchCall) -> Reply:
    return _page(call, "files", call.store.files.values(), (10, 100), _file_body)


def _list_batches(call: BatchCall) -> Reply:
    return _page(call, "operations", call.store.listed(), (50, 1_000), _operation)


def _page(
    call: BatchCall,
    key: str,
    items: Iterable[T],
    limits: tuple[int, int],
    body: Callable[[T, BatchCall], dict[str, Any]],
) -> Reply:
    limit = number_in(call.request.query.get("pageSize"), *limits)
    found, more = page(items, limit, call.request.query.get("pageToken", ""))
    entries: dict[str, Any] = {key: [body(each, call) for each in found]}
    return entries | ({"nextPageToken": found[-1].id} if more else {})


def _read_file(file: StoredFile, _call: BatchCall) -> Reply:
    if file.purpose != "GENERATED":
        return refusal("Only generated files can be downloaded.")
    return BatchReply(file.content, {"Content-Type": "application/octet-stream"})


def _delete_file(file: StoredFile, call: BatchCall) -> Reply:
    del call.store.files[file.id]
    return {}


def _file_body(file: StoredFile, call: BatchCall) -> dict[str, Any]:
    uri = f"{call.exchange.root}/v1beta/files/{file.id}"
    body = {
        "name": f"files/{file.id}",
        "displayName": file.name,
        "mimeType": "application/jsonl",
        "sizeBytes": str(len(file.content)),
        "createTime": timestamp(file.created_s),
        "updateTime": timestamp(file.created_s),
        "uri": uri,
        "state": "ACTIVE",
        "source": file.purpose,
    }
    downloadable = {"downloadUri": f"{uri}:download?alt=media"}
    return body | downloadable if file.purpose == "GENERATED" else body


async def _create(call: BatchCall) -> Reply:
    body = json_object(await read_body(call.request.content, MAX_INLINE_BYTES))
    if body is None or not isinstance(batch := body.get("batch"), dict):
        return refusal("Invalid JSON payload received, or more than 20 MB of it.")
    given = batch.get("inputConfig", batch.get("input_config"))
    given = given if isinstance(given, dict) else {}
    facts = {"model": f"models/{call.found['model']}", "displayName": batch.get("displayName")}
    inline = given.get("requests")
    if isinstance(inline, dict) and isinstance(inline.get("requests"), list):
        entries = inline["requests"]
        kept = [each.get("metadata") if isinstance(each, dict) else None for each in entries]
        names = [
            str(each.get("key", place)) if isinstance(each, dict) else str(place)
            for place, each in enumerate(kept)
        ]
        facts["inline"] = dict(zip(names, kept, strict=True))
        requests = _inline_requests(entries, names, call.found["model"])
        return _operation(call.store.create(requests, facts), call)
    name = str(given.get("fileName", given.get("file_name", "")))
    file = call.store.files.get(name.removeprefix("files/"))
    if file is None:
        return ErrorAnswer(ErrorClass.NOT_FOUND, f"File '{name}' is not found.")
    requests = _file_requests(file.content, call.found["model"])
    return _operation(call.store.create(requests, facts, _leave_file), call)


def _inline_requests(
    entries: list[Any], names: list[str], model: str
) -> Iterator[NamedRequest | BatchProblem]:
    for entry, name in zip(entries, names, strict=True):
        yield _request(entry, name, model)
    if not entries:
        yield BatchProblem("INVALID_ARGUMENT", "The batch has no requests.")


def _file_requests(content: bytes, model: str) -> Iterator[NamedRequest | BatchProblem]:
    number = 0
    for number, line in enumerate(content.splitlines(), start=1):
        entry = json_object(line)
        if entry is None:
            words = f"Line {number} of the input file is not a JSON object."
            yield BatchProblem("INVALID_ARGUMENT", words, number)
            return
        yield _request(entry, str(entry.get("key", "")), model)
    if not number:
        yield BatchProblem("INVALID_ARGUMENT", "The input file is empty.")


def _request(entry: object, name: str, model: str) -> NamedRequest:
    body = entry.get("request") if isinstance(entry, dict) else None
    if not isinstance(body, dict):
        return NamedRequest(name, refusal("GenerateContentRequest is not specified"))
    return NamedRequest(name, read(body, model))


def _leave_file(store: BatchStore, batch: SimulatedBatch) -> None:
    """Keep the results in a file; an expired batch has none."""
    if batch.outcomes:
        content = written(
            batch, lambda line, call: {"key": line.name} | _result(line.outcome, call)
        )
        file = store.add_file(f"batch-{batch.id}", "GENERATED", content)
        batch.files["responsesFile"] = file.id


def _result(outcome: RequestOutcome, call: Call) -> dict[str, Any]:
    match outcome:
        case Completion():
            return {"response": answer_body(outcome, call)}
        case Unanswered():
            return {"error": {"code": _CANCELLED, "message": "The batch was cancelled."}}
        case _:
            code = _CODES.get(outcome.error_class, 2)
            words = outcome.message or ERRORS[outcome.error_class].message
            return {"error": {"code": code, "message": words}}


def _cancel(batch: SimulatedBatch, _call: BatchCall) -> Reply:
    batch.cancel()
    return {}


def _delete(batch: SimulatedBatch, call: BatchCall) -> Reply:
    batch.cancel()
    call.store.remove(batch)
    return {}


def _operation(batch: SimulatedBatch, _call: BatchCall) -> dict[str, Any]:
    name = f"batches/{batch.id}"
    metadata: dict[str, Any] = {
        "@type": f"{_TYPE}GenerateContentBatch",
        "name": name,
        "model": batch.facts["model"],
        "displayName": batch.facts["displayName"],
        "createTime": timestamp(batch.created_s),
        "updateTime": timestamp(time.time() if batch.ended_s is None else batch.ended_s),
        "batchStats": _stats(batch),
        "state": _STATES[batch.phase],
    }
    if not batch.has_ended:
        return {"name": name, "metadata": metadata}
    metadata["endTime"] = metadata["updateTime"]
    if batch.problems:
        error = {"code": _INVALID, "message": batch.problems[0].message}
        return {"name": name, "metadata": metadata, "done": True, "error": error}
    output = _output(batch)
    response = {"@type": f"{_TYPE}GenerateContentBatchOutput", **output}
    metadata["output"] = output
    return {"name": name, "metadata": metadata, "done": True, "response": response}


def _output(batch: SimulatedBatch) -> dict[str, Any]:
    """Return the results: inline ones in the order of their requests, else their file."""
    if "inline" not in batch.facts:
        return {use: f"files/{id}" for use, id in batch.files.items()}
    metadata = batch.facts["inline"]
    places = {name: place for place, name in enumerate(metadata)}
    lines = sorted(batch.lines, key=lambda line: places.get(line.name, len(places)))
    entries = [
        _inline_entry(
            line, metadata.get(line.name), Call(f"{batch.id}{place:06x}", batch.created_s)
        )
        for place, line in enumerate(lines)
    ]
    return {"inlinedResponses": {"inlinedResponses": entries}} if entries else {}


def _inline_entry(line: ResultLine, metadata: object, call: Call) -> dict[str, Any]:
    entry = {} if line.broken else _result(line.outcome, call)
    return entry if metadata is None else entry | {"metadata": metadata}


def _stats(batch: SimulatedBatch) -> dict[str, str]:
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
ROUTES: tuple[Route, ...] = (
    ("POST", f"/upload{_FILES}", Endpoint.UPLOAD, _upload),
    ("GET", _FILES, Endpoint.LIST, _list_files),
    ("GET", _FILE, Endpoint.POLL, _file_body),
    ("GET", f"{_FILE}:download", Endpoint.RESULTS, _read_file),
    ("DELETE", _FILE, Endpoint.DELETE, _delete_file),
    ("POST", r"/v1beta/models/(?P<model>.+):batchGenerateContent", Endpoint.CREATE, _create),
    ("GET", _BATCHES, Endpoint.LIST, _list_batches),
    ("GET", _BATCH, Endpoint.POLL, _operation),
    ("POST", f"{_BATCH}:cancel", Endpoint.CANCEL, _cancel),
    ("DELETE", _BATCH, Endpoint.DELETE, _delete),
)

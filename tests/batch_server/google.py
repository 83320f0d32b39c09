"""Gemini's batches: the requests are an uploaded file, and the results another one."""

import time
from typing import Any

from aegish_dist.core.batches import Unanswered
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.verdict import Completion
from aegish_dist.simulator import dialect
from aegish_dist.simulator.google import answer_body, read
from tests.batch_server import batches
from tests.batch_server.batches import BatchPhase
from tests.batch_server.plan import Endpoint

_PHASES = {
    BatchPhase.VALIDATING: "BATCH_STATE_PENDING",
    BatchPhase.IN_PROGRESS: "BATCH_STATE_RUNNING",
    BatchPhase.CANCELLING: "BATCH_STATE_RUNNING",
    BatchPhase.COMPLETED: "BATCH_STATE_SUCCEEDED",
    BatchPhase.EXPIRED: "BATCH_STATE_EXPIRED",
    BatchPhase.CANCELLED: "BATCH_STATE_CANCELLED",
    BatchPhase.FAILED: "BATCH_STATE_FAILED",
}
_CODES = {
    ErrorClass.BAD_REQUEST: 3,
    ErrorClass.AUTH: 16,
    ErrorClass.NOT_FOUND: 5,
    ErrorClass.RATE_LIMIT: 8,
    ErrorClass.QUOTA: 8,
    ErrorClass.SERVER: 13,
    ErrorClass.OVERLOADED: 14,
}
"""Codes of google.rpc.Code, which results have in place of the status of HTTP."""
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
        return batches.refusal("No such upload, or it is too large.")
    name, received = upload
    if call.request.headers.get("X-Goog-Upload-Offset", "") != str(len(received)):
        return batches.refusal("The offset of the upload is not where it ended.")
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
        "uri": f"{call.root}/v1beta/files/{file.id}",
        "state": "ACTIVE",
        "source": file.purpose,
    }
    return dialect.json_response(200, {"file": described}, {"X-Goog-Upload-Status": "final"})


async def _begin_upload(call: batches.BatchCall, command: str) -> batches.Reply:
    if command != "start":
        return batches.refusal("Only resumable uploads are supported.")
    body = await call.json()
    upload = batches.new_id()
    call.store.uploads[upload] = (
        str(dialect.inner(body, "file").get("displayName", "")),
        bytearray(),
    )
    url = f"{call.root}{call.request.path}?upload_id={upload}"
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
        yield str(entry.get("key", "")), batches.read(read, dialect.inner(entry, "request"), model)
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
            code = _CODES.get(line.outcome.error_class, 2)
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
        "state": _PHASES[batch.phase],
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

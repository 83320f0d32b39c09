"""OpenAI's batches: files of requests are uploaded, and results are files again."""

from typing import Any

from aiohttp import BodyPartReader, MultipartReader

from aegish_dist.core.batches import Unanswered
from aegish_dist.core.verdict import Completion
from aegish_dist.simulator import dialect
from aegish_dist.simulator.openai import ERRORS, answer_body, error_body, read
from tests.batch_server import batches
from tests.batch_server.plan import Endpoint

MAX_REQUESTS = 50_000
MAX_BYTES = 200 * 2**20
_WINDOW_S = 86_400
_ENDPOINT = "/v1/chat/completions"


async def _upload(call: batches.BatchCall) -> batches.Reply:
    length = call.request.content_length
    if length is None or length > MAX_BYTES:
        return batches.refusal(f"File exceeds the maximum of {MAX_BYTES} bytes.", "file")
    parts: dict[str, tuple[str, bytes]] = {}
    try:
        reader = MultipartReader(call.request.headers, call.request.content)
        while isinstance(part := await reader.next(), BodyPartReader):
            parts[part.name or ""] = part.filename or "", bytes(await part.read())
    except (ValueError, AssertionError) as error:
        return batches.refusal(f"Could not parse the multipart form: {error}", "file")
    if "file" not in parts or parts.get("purpose") != ("", b"batch"):
        return batches.refusal("A form with a file and the purpose 'batch' is required.", "purpose")
    name, content = parts["file"]
    file = call.store.add_file(name, "batch", content)
    return {
        "id": f"file-{file.id}",
        "object": "file",
        "bytes": len(content),
        "created_at": int(file.created_s),
        "filename": name,
        "purpose": file.purpose,
        "status": "processed",
    }


def _delete_file(file: batches.StoredFile, call: batches.BatchCall) -> batches.Reply:
    del call.store.files[file.id]
    return {"id": f"file-{file.id}", "object": "file", "deleted": True}


def _list_batches(call: batches.BatchCall) -> batches.Reply:
    return {"object": "list"} | batches.listing(call, _describe, (20, 100), "batch_")


async def _create(call: batches.BatchCall) -> batches.Reply:
    body = await call.json()
    file = call.store.files.get(str(body.get("input_file_id")).removeprefix("file-"))
    usable = {
        "endpoint": body.get("endpoint") == _ENDPOINT,
        "completion_window": body.get("completion_window") == "24h",
        "input_file_id": file is not None and file.purpose == "batch",
    }
    wrong = next((field for field, holds in usable.items() if not holds), None)
    if wrong or file is None:
        return batches.refusal(f"Invalid value for '{wrong}'.", wrong)
    facts = {"input_file_id": f"file-{file.id}", "metadata": body.get("metadata")}
    return _describe(call.store.create(_requests(file.content), facts, _leave_files), call)


def _requests(content: bytes) -> batches.Source:
    """Read an input file; a problem of any line refuses the whole."""
    names: set[str] = set()
    lines = content.splitlines()
    if not 0 < len(lines) <= MAX_REQUESTS:
        words = f"The file has {len(lines)} requests of at most {MAX_REQUESTS}."
        yield batches.BatchProblem("too_many_tasks" if lines else "empty_file", words)
        return
    for number, line in enumerate(lines, start=1):
        entry = batches.json_object(line)
        code = "invalid_json_line" if entry is None else _problem(entry, names)
        if entry is None or code is not None:
            yield batches.BatchProblem(
                str(code), "This line is not a request of the batch.", number
            )
            continue
        names.add(entry["custom_id"])
        yield entry["custom_id"], batches.read(read, entry["body"], "")


def _problem(entry: dict[str, Any], names: set[str]) -> str | None:
    """Return the code of what is wrong with a line; None when it is a request."""
    name = entry.get("custom_id")
    holds = {
        "missing_required_parameter": isinstance(entry.get("body"), dict)
        and isinstance(name, str)
        and name != "",
        "invalid_method": entry.get("method") == "POST",
        "invalid_url": entry.get("url") == _ENDPOINT,
        "duplicate_custom_id": str(name) not in names,
    }
    return next((code for code, condition in holds.items() if not condition), None)


def _leave_files(store: batches.BatchStore, batch: batches.SimulatedBatch) -> None:
    """Keep the results: answers in one file, all else in another, neither when it is empty."""
    for use, kept in (("output", _is_answer), ("error", lambda line: not _is_answer(line))):
        content = batch.written(_line_body, kept)
        if content:
            file = store.add_file(f"batch_{batch.id}_{use}.jsonl", "batch_output", content)
            batch.files[f"{use}_file_id"] = f"file-{file.id}"


def _is_answer(line: batches.BatchAnswer) -> bool:
    return isinstance(line.outcome, Completion)


def _line_body(line: batches.BatchAnswer, call: dialect.Call) -> dict[str, Any]:
    body: dict[str, Any] = {"id": f"batch_req_{call.id}", "custom_id": line.name}
    if isinstance(line.outcome, Unanswered):
        error = {"code": f"batch_{line.outcome}", "message": "This request was not executed."}
        return body | {"response": None, "error": error}
    if isinstance(line.outcome, Completion):
        status, answer = 200, answer_body(line.outcome, call)
    else:
        status = ERRORS[line.outcome.error_class].status
        answer = error_body(line.outcome, call)
    response = {"status_code": status, "request_id": f"req_{call.id}", "body": answer}
    return body | {"response": response, "error": None}


def _cancel(batch: batches.SimulatedBatch, call: batches.BatchCall) -> batches.Reply:
    if batch.has_ended:
        return batches.refusal(f"Cannot cancel a batch with status '{batch.phase}'.")
    batch.cancel()
    return _describe(batch, call)


def _describe(batch: batches.SimulatedBatch, _call: batches.BatchCall) -> dict[str, Any]:
    errors = [
        {"code": each.code, "message": each.message, "param": None, "line": each.line}
        for each in batch.problems
    ]
    answered, failed = batch.counts
    end = batch.phase if batch.has_ended else batches.BatchPhase.COMPLETED
    moments = {
        "in_progress_at": None if batch.phase is batches.BatchPhase.VALIDATING else batch.created_s,
        "cancelling_at": batch.cancelled_s,
        f"{end}_at": batch.ended_s,
    }
    return {
        "id": f"batch_{batch.id}",
        "object": "batch",
        "endpoint": _ENDPOINT,
        "errors": {"object": "list", "data": errors} if errors else None,
        **batch.facts,
        "completion_window": "24h",
        "status": batch.phase.value,
        "output_file_id": batch.files.get("output_file_id"),
        "error_file_id": batch.files.get("error_file_id"),
        "created_at": int(batch.created_s),
        "expires_at": int(batch.created_s) + _WINDOW_S,
        **{name: None if moment is None else int(moment) for name, moment in moments.items()},
        "request_counts": {"total": batch.size, "completed": answered, "failed": failed},
    }


_FILES = "/v1/files"
_FILE = rf"{_FILES}/file-(?P<file>[^/]+)"
_BATCHES = "/v1/batches"
_BATCH = rf"{_BATCHES}/batch_(?P<batch>[^/]+)"
ROUTES = (
    ("POST", _FILES, Endpoint.UPLOAD, _upload),
    ("GET", f"{_FILE}/content", Endpoint.RESULTS, batches.read_file),
    ("DELETE", _FILE, Endpoint.DELETE, _delete_file),
    ("POST", _BATCHES, Endpoint.CREATE, _create),
    ("GET", _BATCHES, Endpoint.LIST, _list_batches),
    ("GET", _BATCH, Endpoint.POLL, _describe),
    ("POST", f"{_BATCH}/cancel", Endpoint.CANCEL, _cancel),
)

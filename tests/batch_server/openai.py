"""OpenAI's batches: files of requests are uploaded, and results are files again."""

import json
from collections.abc import Iterator
from typing import Any

from aiohttp import BodyPartReader, MultipartReader

from aegish_dist.core.batches import Unanswered
from aegish_dist.core.verdict import Completion
from aegish_dist.simulator.dialect import Call, ChatRequest
from aegish_dist.simulator.openai import ERRORS, answer_body, error_body, read
from tests.batch_server.batches import BatchAnswer, BatchCall, Reply, SimulatedBatch


async def _upload(call: BatchCall) -> Reply:
    parts = {}
    reader = MultipartReader(call.request.headers, call.request.content)
    while isinstance(part := await reader.next(), BodyPartReader):
        parts[part.name] = bytes(await part.read())
    name = call.store.add_file(parts["file"])
    size = len(parts["file"])
    return {"id": name, "object": "file", "bytes": size, "purpose": parts["purpose"].decode()}


async def _content(call: BatchCall) -> Reply:
    return call.file


async def _delete_file(call: BatchCall) -> Reply:
    del call.store.files[call.name]
    return {"id": call.name, "object": "file", "deleted": True}


async def _create(call: BatchCall) -> Reply:
    body = await call.json()
    facts = {key: body[key] for key in ("input_file_id", "endpoint", "completion_window")}
    facts["metadata"] = body.get("metadata")
    requests = _requests(call.store.files[body["input_file_id"]])
    return _describe(call.store.create("batch_", requests, facts))


def _requests(content: bytes) -> Iterator[tuple[str, ChatRequest]]:
    for line in content.splitlines():
        entry = json.loads(line)
        yield entry["custom_id"], read(entry["body"], "")


async def _look(call: BatchCall) -> Reply:
    """Describe a batch; when it has ended, its answers are in one file and all else in another."""
    batch = call.batch
    if batch.has_ended and "output_file_id" not in batch.facts:
        for use, answers in {
            "output": [answer for answer in batch.answers if answer.is_answered],
            "error": [answer for answer in batch.answers if not answer.is_answered],
        }.items():
            content = batch.written(answers, _line_body)
            batch.facts[f"{use}_file_id"] = call.store.add_file(content) if answers else None
    return _describe(batch)


def _line_body(line: BatchAnswer, call: Call) -> dict[str, Any]:
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


async def _list(call: BatchCall) -> Reply:
    return {"object": "list"} | call.listing(_describe, "after")


async def _cancel(call: BatchCall) -> Reply:
    call.batch.cancel()
    return _describe(call.batch)


def _describe(batch: SimulatedBatch) -> dict[str, Any]:
    if batch.cancelled_s is None:
        status = "completed" if batch.has_ended else "in_progress"
    else:
        status = "cancelled" if batch.has_ended else "cancelling"
    total, answered = len(batch.answers), batch.answered
    failed = total - answered if batch.has_ended else 0
    return {
        "id": batch.id,
        "object": "batch",
        "status": status,
        "created_at": int(batch.created_s),
        "request_counts": {"total": total, "completed": answered, "failed": failed},
        **batch.facts,
    }


_FILE = "/v1/files/(?P<name>file-[^/]+)"
_BATCH = "/v1/batches/(?P<name>batch_[^/]+)"
ROUTES = (
    ("POST", "/v1/files", _upload),
    ("GET", f"{_FILE}/content", _content),
    ("DELETE", _FILE, _delete_file),
    ("POST", "/v1/batches", _create),
    ("GET", "/v1/batches", _list),
    ("GET", _BATCH, _look),
    ("POST", f"{_BATCH}/cancel", _cancel),
)

"""Anthropic's batches: the requests are one body, and the results a stream of lines."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from aegish_dist.core.batches import Unanswered
from aegish_dist.core.verdict import Completion
from aegish_dist.simulator.anthropic import answer_body, error_body, read
from aegish_dist.simulator.dialect import Call
from tests.batch_server.batches import BatchAnswer, BatchCall, Reply, SimulatedBatch


async def _create(call: BatchCall) -> Reply:
    entries = (await call.json())["requests"]
    requests = [(entry["custom_id"], read(entry["params"], "")) for entry in entries]
    return _describe(call.store.create("msgbatch_", requests, {}))


def _line_body(line: BatchAnswer, call: Call) -> dict[str, Any]:
    result: dict[str, Any] = {"type": _kind(line)}
    if isinstance(line.outcome, Completion):
        result["message"] = answer_body(line.outcome, call)
    elif not isinstance(line.outcome, Unanswered):
        result["error"] = error_body(line.outcome, call)
    return {"custom_id": line.name, "result": result}


async def _look(call: BatchCall) -> Reply:
    # A client of the vendor follows this address; it has to be absolute.
    url = f"{call.request.scheme}://{call.request.host}{call.request.path}/results"
    return _describe(call.batch) | {"results_url": url if call.batch.has_ended else None}


async def _list(call: BatchCall) -> Reply:
    return call.listing(_describe, "after_id")


async def _cancel(call: BatchCall) -> Reply:
    call.batch.cancel()
    return _describe(call.batch)


async def _results(call: BatchCall) -> Reply:
    return call.batch.written(call.batch.answers, _line_body)


def _describe(batch: SimulatedBatch) -> dict[str, Any]:
    going = "in_progress" if batch.cancelled_s is None else "canceling"
    created = datetime.fromtimestamp(batch.created_s, UTC)
    # This provider counts no request before the end.
    counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
    if batch.has_ended:
        counts |= Counter(map(_kind, batch.answers))
    else:
        counts["processing"] = len(batch.answers)
    return {
        "id": batch.id,
        "type": "message_batch",
        "processing_status": "ended" if batch.has_ended else going,
        "request_counts": counts,
        "created_at": created.isoformat().replace("+00:00", "Z"),
    }


def _kind(answer: BatchAnswer) -> str:
    if isinstance(answer.outcome, Unanswered):
        return "canceled"
    return "succeeded" if answer.is_answered else "errored"


_BATCHES = "/v1/messages/batches"
_BATCH = f"{_BATCHES}/(?P<name>msgbatch_[^/]+)"
ROUTES = (
    ("POST", _BATCHES, _create),
    ("GET", _BATCHES, _list),
    ("GET", _BATCH, _look),
    ("POST", f"{_BATCH}/cancel", _cancel),
    ("GET", f"{_BATCH}/results", _results),
)

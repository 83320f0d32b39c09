"""Anthropic's batches: the requests are one body, and the results a stream of lines."""

import re
from collections import Counter
from typing import Any

from aiohttp import web

from aegish_dist.core.batches import Unanswered
from aegish_dist.core.verdict import Completion
from aegish_dist.simulator import dialect
from aegish_dist.simulator.anthropic import answer_body, error_body, read
from tests.batch_server import batches
from tests.batch_server.plan import Endpoint

MAX_REQUESTS = 100_000
MAX_BYTES = 256 * 2**20
_WINDOW_S = 86_400
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_UNANSWERED = {Unanswered.EXPIRED: "expired", Unanswered.CANCELLED: "canceled"}


async def _create(call: batches.BatchCall) -> batches.Reply:
    entries = (await call.json(MAX_BYTES)).get("requests")
    if not isinstance(entries, list) or not entries:
        return batches.refusal("requests: Field required")
    if len(entries) > MAX_REQUESTS:
        return batches.refusal(f"requests: List should have at most {MAX_REQUESTS} items")
    names: set[str] = set()
    for place, entry in enumerate(entries):
        if (problem := _problem(entry, names)) is not None:
            return batches.refusal(f"requests.{place}.{problem}")
        names.add(entry["custom_id"])
    requests = ((each["custom_id"], batches.read(read, each["params"], "")) for each in entries)
    return _describe(call.store.create(requests, {}, size=len(entries)), call)


def _problem(entry: object, names: set[str]) -> str | None:
    """Return why a request refuses the whole batch; None when it does not."""
    if not isinstance(entry, dict) or not isinstance(entry.get("params"), dict):
        return "params: Field required"
    name = entry.get("custom_id")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        return f"custom_id: String should match pattern '^{_NAME.pattern}$'"
    return "custom_id: must be unique within the batch" if name in names else None


def _line_body(line: batches.BatchAnswer, call: dialect.Call) -> dict[str, Any]:
    result: dict[str, Any] = {"type": _kind(line)}
    if isinstance(line.outcome, Completion):
        result["message"] = answer_body(line.outcome, call)
    elif isinstance(line.outcome, dialect.ErrorAnswer):
        result["error"] = error_body(line.outcome, call)
    return {"custom_id": line.name, "result": result}


def _list(call: batches.BatchCall) -> batches.Reply:
    return batches.listing(call, _describe, (20, 1_000), "msgbatch_", after="after_id")


def _cancel(batch: batches.SimulatedBatch, call: batches.BatchCall) -> batches.Reply:
    batch.cancel()
    return _describe(batch, call)


def _results(batch: batches.SimulatedBatch, _call: batches.BatchCall) -> batches.Reply:
    if not batch.has_ended:
        return batches.refusal("Results are available once the batch has ended.")
    return web.Response(body=batch.written(_line_body), content_type="application/x-jsonl")


def _describe(batch: batches.SimulatedBatch, call: batches.BatchCall) -> dict[str, Any]:
    name = f"msgbatch_{batch.id}"
    url = f"{call.root}/v1/messages/batches/{name}/results"
    cancelled, ended = batch.cancelled_s, batch.ended_s
    status = "canceling" if batch.phase is batches.BatchPhase.CANCELLING else "in_progress"
    return {
        "id": name,
        "type": "message_batch",
        "processing_status": "ended" if batch.has_ended else status,
        "request_counts": _counts(batch),
        "created_at": batches.timestamp(batch.created_s),
        "expires_at": batches.timestamp(batch.created_s + _WINDOW_S),
        "ended_at": None if ended is None else batches.timestamp(ended),
        "cancel_initiated_at": None if cancelled is None else batches.timestamp(cancelled),
        "archived_at": None,
        "results_url": url if batch.has_ended else None,
    }


def _counts(batch: batches.SimulatedBatch) -> dict[str, int]:
    """Count the requests by result; this provider counts none before the end."""
    counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
    if not batch.has_ended:
        return counts | {"processing": batch.size}
    return counts | Counter(map(_kind, batch.answers))


def _kind(answer: batches.BatchAnswer) -> str:
    if isinstance(answer.outcome, Unanswered):
        return _UNANSWERED[answer.outcome]
    return "succeeded" if isinstance(answer.outcome, Completion) else "errored"


_BATCHES = "/v1/messages/batches"
_BATCH = rf"{_BATCHES}/msgbatch_(?P<batch>[^/]+)"
ROUTES = (
    ("POST", _BATCHES, Endpoint.CREATE, _create),
    ("GET", _BATCHES, Endpoint.LIST, _list),
    ("GET", _BATCH, Endpoint.POLL, _describe),
    ("POST", f"{_BATCH}/cancel", Endpoint.CANCEL, _cancel),
    ("GET", f"{_BATCH}/results", Endpoint.RESULTS, _results),
)

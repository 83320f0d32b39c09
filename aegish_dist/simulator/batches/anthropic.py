"""Anthropic message batches: requests in one body, results as a stream of lines."""

import re
from collections.abc import Iterator
from typing import Any

from aegish_dist.core.batches import Unanswered
from aegish_dist.core.verdict import Completion
from aegish_dist.simulator.anthropic import answer_body, error_body, read
from aegish_dist.simulator.batches.lifecycle import (
    BatchPhase,
    BatchStore,
    NamedRequest,
    ResultLine,
    SimulatedBatch,
    page,
    written,
)
from aegish_dist.simulator.batches.service import (
    BatchCall,
    BatchReply,
    BatchRoute,
    about_batch,
    json_object,
    life_cycle,
    number_in,
    read_body,
    refusal,
    timestamp,
)
from aegish_dist.simulator.config import Endpoint
from aegish_dist.simulator.dialect import Call, ErrorAnswer

MAX_REQUESTS = 100_000
MAX_BYTES = 256 * 2**20
_WINDOW_S = 86_400
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MISSING = "Message Batch with id 'msgbatch_{id}' not found."
_UNANSWERED = {Unanswered.EXPIRED: "expired", Unanswered.CANCELLED: "canceled"}
_OPEN = {
    BatchPhase.VALIDATING: "in_progress",
    BatchPhase.IN_PROGRESS: "in_progress",
    BatchPhase.CANCELLING: "canceling",
}


async def _create(call: BatchCall) -> BatchReply | ErrorAnswer:
    content = await read_body(call.body, MAX_BYTES)
    if content is None:
        error = {"type": "request_too_large", "message": "Request exceeds the maximum size"}
        return BatchReply({"type": "error", "error": error}, status=413)
    entries = (json_object(content) or {}).get("requests")
    if not isinstance(entries, list) or not entries:
        return refusal("requests: Field required")
    if len(entries) > MAX_REQUESTS:
        return refusal(f"requests: List should have at most {MAX_REQUESTS} items")
    names: set[str] = set()
    for place, entry in enumerate(entries):
        if (problem := _problem(entry, names)) is not None:
            return refusal(f"requests.{place}.{problem}")
        names.add(entry["custom_id"])
    batch = call.store.create(_requests(entries), {}, _leave_results)
    batch.size = len(entries)
    return BatchReply(_describe(batch, call))


def _problem(entry: object, names: set[str]) -> str | None:
    """Return why a request refuses the whole batch; None when it does not."""
    if not isinstance(entry, dict) or not isinstance(entry.get("params"), dict):
        return "params: Field required"
    name = entry.get("custom_id")
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        return f"custom_id: String should match pattern '^{_NAME.pattern}$'"
    return "custom_id: must be unique within the batch" if name in names else None


def _requests(entries: list[dict[str, Any]]) -> Iterator[NamedRequest]:
    for entry in entries:
        yield NamedRequest(entry["custom_id"], read(entry["params"], ""))


def _leave_results(store: BatchStore, batch: SimulatedBatch) -> None:
    content = written(batch, _line_body)
    batch.files["results"] = store.add_file(f"{batch.id}.jsonl", "results", content).id


def _line_body(line: ResultLine, call: Call) -> dict[str, Any]:
    match line.outcome:
        case Unanswered():
            result: dict[str, Any] = {"type": _UNANSWERED[line.outcome]}
        case Completion():
            result = {"type": "succeeded", "message": answer_body(line.outcome, call)}
        case _:
            result = {"type": "errored", "error": error_body(line.outcome, call)}
    return {"custom_id": line.name, "result": result}


async def _list(call: BatchCall) -> BatchReply:
    before, after = (
        call.query.get(name, "").removeprefix("msgbatch_") for name in ("before_id", "after_id")
    )
    limit = number_in(call.query.get("limit"), 20, 1_000)
    found, more = page(call.store.listed(), limit, after=after, before=before)
    entries = [_describe(batch, call) for batch in found]
    ids = [entry["id"] for entry in entries] or [None]
    ends = {"first_id": ids[0], "last_id": ids[-1]}
    return BatchReply({"data": entries, "has_more": more, **ends})


def _cancel(batch: SimulatedBatch, call: BatchCall) -> BatchReply:
    batch.cancel(call.now_s)
    return BatchReply(_describe(batch, call))


def _delete(batch: SimulatedBatch, call: BatchCall) -> BatchReply | ErrorAnswer:
    if not batch.has_ended:
        return refusal("Message Batches can only be deleted once they've finished processing.")
    call.store.remove(batch)
    return BatchReply({"id": f"msgbatch_{batch.id}", "type": "message_batch_deleted"})


def _results(batch: SimulatedBatch, call: BatchCall) -> BatchReply | ErrorAnswer:
    if not batch.has_ended:
        return refusal("Results are available once the batch has ended.")
    content = call.store.files[batch.files["results"]].content
    return BatchReply(content, {"Content-Type": "application/x-jsonl"})


def _describe(batch: SimulatedBatch, call: BatchCall) -> dict[str, Any]:
    name = f"msgbatch_{batch.id}"
    url = f"{call.exchange.root}/v1/messages/batches/{name}/results"
    cancelled, ended = batch.cancelled_s, batch.ended_s
    return {
        "id": name,
        "type": "message_batch",
        "processing_status": _OPEN.get(batch.phase, "ended"),
        "request_counts": _counts(batch),
        "created_at": timestamp(batch.created_s),
        "expires_at": timestamp(batch.created_s + _WINDOW_S),
        "ended_at": None if ended is None else timestamp(ended),
        "cancel_initiated_at": None if cancelled is None else timestamp(cancelled),
        "archived_at": None,
        "results_url": url if batch.has_ended else None,
    }


def _counts(batch: SimulatedBatch) -> dict[str, int]:
    """Count the requests by result; this provider counts none before the end."""
    counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
    if not batch.has_ended:
        return counts | {"processing": batch.size}
    for outcome in batch.outcomes:
        match outcome:
            case Unanswered():
                counts[_UNANSWERED[outcome]] += 1
            case Completion():
                counts["succeeded"] += 1
            case _:
                counts["errored"] += 1
    return counts


_BATCHES = r"(?:/.*)?/v1/messages/batches"
_BATCH = rf"{_BATCHES}/msgbatch_(?P<id>[^/]+)"
_RESULTS = re.compile(rf"{_BATCH}/results")
ROUTES = (
    *life_cycle(
        _BATCHES,
        _BATCH,
        create=_create,
        listed=_list,
        missing=_MISSING,
        describe=_describe,
        cancel=_cancel,
    ),
    BatchRoute("DELETE", re.compile(_BATCH), Endpoint.DELETE, about_batch(_MISSING, _delete)),
    BatchRoute("GET", _RESULTS, Endpoint.RESULTS, about_batch(_MISSING, _results)),
)
"""Paths of this dialect, whatever root precedes them."""

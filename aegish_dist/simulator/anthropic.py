"""Anthropic messages and batches of them, seen from the server's side.

A batch has its requests in one body, and its results are a stream of lines.
"""

import re
import time
from collections import Counter
from typing import Any

from aiohttp import web

from aegish_dist.core.batches import Unanswered
from aegish_dist.core.verdict import Completion, Usage
from aegish_dist.simulator import batches, dialect
from aegish_dist.simulator.config import Endpoint

_WORDS = dialect.WORDS["anthropic"]
ERRORS = _WORDS.errors
KEY_HEADER = "x-api-key"
KEY_SCHEME = ""


def route(path: str) -> str | None:
    """Return the model in a path of this format: none, as the body names it."""
    return "" if path.endswith("/v1/messages") else None


def read(body: dict[str, Any], model: str) -> dialect.ChatRequest | dialect.ErrorAnswer:
    found = dialect.conversation(
        body.get("model"), body.get("stream"), body.get("messages"), "content"
    )
    if isinstance(found, dialect.ErrorAnswer):
        return found
    if (limit := dialect.as_limit(body.get("max_tokens"))) is None:
        return dialect.refusal("max_tokens: Input should be a valid integer", "max_tokens")
    form = _form(body)
    if isinstance(form, dialect.ErrorAnswer):
        return form
    system = body.get("system", "")
    prompt_chars = len(dialect.text_of(system) or "") + found[1]
    return dialect.ChatRequest(
        body["model"], found[0], prompt_chars, _cacheable_chars(system), limit, form
    )


def _form(body: dict[str, Any]) -> dialect.Form | dialect.ErrorAnswer:
    choice = dialect.inner(body, "tool_choice")
    wanted = dialect.inner(body, "output_config", "format")
    if choice.get("type") == "tool":
        name, tools = choice.get("name"), dialect.listed(body, "tools")
        schemas = [each.get("input_schema") for each in tools if each.get("name") == name]
        return dialect.form(schemas[0] if schemas else None, "tools", str(name), closed=False)
    if wanted.get("type") == "json_schema":
        bounds = ("minimum", "maximum", "minLength", "maxLength")
        return dialect.form(wanted.get("schema"), "output_config.format", refused=bounds)
    return dialect.Form()


def answer_body(answer: Completion, call: dialect.Call) -> dict[str, Any]:
    content: list[dict[str, Any]] = (
        [] if answer.text is None else [{"type": "text", "text": answer.text}]
    )
    stop = dialect.stop_word(answer, _WORDS.stops, _WORDS.native)
    if isinstance(answer, dialect.Answer) and answer.arguments is not None:
        called = {"id": f"toolu_{call.id}", "name": answer.form.tool, "input": answer.arguments}
        content, stop = [{"type": "tool_use"} | called], "tool_use"
    body: dict[str, Any] = {
        "id": f"msg_{call.id}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
    }
    if answer.refusal is not None:
        body["stop_details"] = {"type": "refusal", "category": None, "explanation": answer.refusal}
    if dialect.is_reported(answer.usage):
        body["usage"] = _usage(answer.usage)
    return body


def error_body(error: dialect.ErrorAnswer, call: dialect.Call) -> dict[str, Any]:
    return {
        "type": "error",
        "error": {"type": ERRORS[error.error_class].type, "message": error.message},
        "request_id": f"req_{call.id}",
    }


def headers(allowance: dialect.Allowance, call: dialect.Call) -> dict[str, str]:
    reset = time.gmtime(call.now_s + allowance.reset_s)
    return {
        "request-id": f"req_{call.id}",
        "anthropic-ratelimit-requests-limit": str(allowance.limit),
        "anthropic-ratelimit-requests-remaining": str(allowance.remaining),
        "anthropic-ratelimit-requests-reset": time.strftime("%Y-%m-%dT%H:%M:%SZ", reset),
    }


def _cacheable_chars(system: object) -> int:
    """Count what precedes the last cache mark: this provider caches on request only."""
    if not isinstance(system, list):
        return 0
    marks = [
        i for i, part in enumerate(system) if isinstance(part, dict) and "cache_control" in part
    ]
    return len(dialect.text_of(system[: marks[-1] + 1]) or "") if marks else 0


def _usage(usage: Usage) -> dict[str, int]:
    """Write the tokens; here the cached ones are not part of `input_tokens`."""
    read, written = usage.cache_read_tokens or 0, usage.cache_write_tokens or 0
    return {
        "input_tokens": max(0, (usage.input_tokens or 0) - read - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": read,
        "output_tokens": usage.output_tokens or 0,
    }


MAX_REQUESTS = 100_000
MAX_BYTES = 256 * 2**20
_WINDOW_S = 86_400
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_UNANSWERED = {Unanswered.EXPIRED: "expired", Unanswered.CANCELLED: "canceled"}


async def _create(call: batches.BatchCall) -> batches.Reply:
    entries = (await call.json(MAX_BYTES)).get("requests")
    if not isinstance(entries, list) or not entries:
        return dialect.refusal("requests: Field required")
    if len(entries) > MAX_REQUESTS:
        return dialect.refusal(f"requests: List should have at most {MAX_REQUESTS} items")
    names: set[str] = set()
    for place, entry in enumerate(entries):
        if (problem := _problem(entry, names)) is not None:
            return dialect.refusal(f"requests.{place}.{problem}")
        names.add(entry["custom_id"])
    requests = ((each["custom_id"], read(each["params"], "")) for each in entries)
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
        return dialect.refusal("Results are available once the batch has ended.")
    return web.Response(body=batch.written(_line_body), content_type="application/x-jsonl")


def _describe(batch: batches.SimulatedBatch, call: batches.BatchCall) -> dict[str, Any]:
    name = f"msgbatch_{batch.id}"
    url = f"{call.exchange.root}/v1/messages/batches/{name}/results"
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

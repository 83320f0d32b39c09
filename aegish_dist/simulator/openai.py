"""OpenAI chat completions and batches of them, seen from the server's side.

Files of requests are uploaded for a batch, and its results are files again.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import BodyPartReader, MultipartReader

from aegish_dist.core.batches import Unanswered
from aegish_dist.core.outcome import ErrorClass, StopKind
from aegish_dist.core.verdict import Completion, Usage
from aegish_dist.simulator.batch_lifecycle import (
    BatchPhase,
    BatchProblem,
    BatchStore,
    NamedRequest,
    ResultLine,
    SimulatedBatch,
    StoredFile,
    page,
    written,
)
from aegish_dist.simulator.batch_service import (
    BatchCall,
    BatchReply,
    BatchRoute,
    about_file,
    json_object,
    life_cycle,
    number_in,
    read_body,
)
from aegish_dist.simulator.config import Endpoint
from aegish_dist.simulator.dialect import (
    Allowance,
    Call,
    ChatRequest,
    ErrorAnswer,
    ErrorForm,
    as_limit,
    refusal,
    stop_word,
    text_of,
)

_STOP_WORDS = {
    StopKind.STOP: "stop",
    StopKind.MAX_TOKENS: "length",
    StopKind.CONTENT_FILTER: "content_filter",
}
_NATIVE = {*_STOP_WORDS.values(), "tool_calls", "function_call"}
_INVALID = "invalid_request_error"
ERRORS: Mapping[ErrorClass, ErrorForm] = {
    ErrorClass.BAD_REQUEST: ErrorForm(400, _INVALID, "Invalid request."),
    ErrorClass.AUTH: ErrorForm(401, _INVALID, "Incorrect API key provided.", "invalid_api_key"),
    ErrorClass.NOT_FOUND: ErrorForm(
        404,
        _INVALID,
        "The model `{model}` does not exist or you do not have access to it.",
        "model_not_found",
    ),
    ErrorClass.RATE_LIMIT: ErrorForm(
        429, "requests", "Rate limit reached for {model}.", "rate_limit_exceeded"
    ),
    ErrorClass.QUOTA: ErrorForm(
        429,
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details.",
        "insufficient_quota",
    ),
    ErrorClass.SERVER: ErrorForm(
        500, "server_error", "The server had an error while processing your request."
    ),
    ErrorClass.OVERLOADED: ErrorForm(
        503, "server_error", "The engine is currently overloaded, please try again later."
    ),
}


KEY_HEADER = "Authorization"
KEY_SCHEME = "bearer"


def route(path: str) -> str | None:
    """Return the model in a path of this format: none, as the body names it."""
    return "" if path.endswith("/v1/chat/completions") else None


def read(body: dict[str, Any], model: str) -> ChatRequest | ErrorAnswer:
    model = body.get("model") or model
    if not isinstance(model, str) or not model:
        return refusal("you must provide a model parameter", "model")
    words = "Unsupported value: 'stream' does not support true with this model."
    if body.get("stream"):
        return refusal(words, "stream")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return refusal("Missing required parameter: 'messages'.", "messages")
    user, prompt_chars = "", 0
    for place, message in enumerate(messages):
        text = text_of(message.get("content")) if isinstance(message, dict) else None
        if text is None:
            field = f"messages[{place}].content"
            return refusal(f"Invalid type for '{field}'.", field)
        prompt_chars += len(text)
        if message.get("role") == "user":
            user = text
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    return ChatRequest(model, user, prompt_chars, prompt_chars - len(user), as_limit(limit))


def answer_body(answer: Completion, call: Call) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": f"chatcmpl-{call.id}",
        "object": "chat.completion",
        "created": int(call.now_s),
        "model": answer.model,
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": answer.text,
                    "refusal": answer.refusal,
                },
                "logprobs": None,
                "finish_reason": stop_word(answer, _STOP_WORDS, _NATIVE),
            }
        ],
    }
    if (usage := _usage(answer.usage)) is not None:
        body["usage"] = usage
    if answer.upstream is not None:
        body["provider"] = answer.upstream
    return body


def error_body(error: ErrorAnswer, call: Call) -> dict[str, Any]:
    form = ERRORS[error.error_class]
    return {
        "error": {
            "message": error.message,
            "type": form.type,
            "param": error.param,
            "code": form.code,
        }
    }


def headers(allowance: Allowance, call: Call) -> dict[str, str]:
    return {
        "x-request-id": f"req_{call.id}",
        "x-ratelimit-limit-requests": str(allowance.limit),
        "x-ratelimit-remaining-requests": str(allowance.remaining),
        "x-ratelimit-reset-requests": _duration(allowance.reset_s),
    }


def _usage(usage: Usage) -> dict[str, Any] | None:
    if usage.input_tokens is None and usage.output_tokens is None:
        return None
    prompt, completion = usage.input_tokens or 0, usage.output_tokens or 0
    body: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if usage.cache_read_tokens is not None:
        body["prompt_tokens_details"] = {"cached_tokens": usage.cache_read_tokens}
    if usage.reasoning_tokens is not None:
        body["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return body


def _duration(seconds: float) -> str:
    """Write seconds the way this provider does: `0s`, `120ms`, `1.5s`, `2m0s`."""
    if 0 < seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    minutes, rest = divmod(round(seconds, 3), 60)
    return f"{minutes:.0f}m{rest:g}s" if minutes else f"{rest:g}s"


MAX_REQUESTS = 50_000
MAX_BYTES = 200 * 2**20
_WINDOW_S = 86_400
_ENDPOINT = "/v1/chat/completions"
_NO_FILE = "No such File object: file-{id}"
_UNANSWERED = {
    Unanswered.EXPIRED: (
        "batch_expired",
        "This request could not be executed before the completion window expired.",
    ),
    Unanswered.CANCELLED: (
        "batch_cancelled",
        "This request was not executed because the batch was cancelled.",
    ),
}
_MOMENTS = {
    BatchPhase.COMPLETED: "completed_at",
    BatchPhase.EXPIRED: "expired_at",
    BatchPhase.CANCELLED: "cancelled_at",
    BatchPhase.FAILED: "failed_at",
}


async def _upload(call: BatchCall) -> BatchReply | ErrorAnswer:
    form = _Form()
    try:
        reader = MultipartReader(call.exchange.request.headers, call.body)
        while isinstance(part := await reader.next(), BodyPartReader):
            await form.take(part)
    except (ValueError, AssertionError) as error:
        return refusal(f"Could not parse the multipart form: {error}", "file")
    if form.is_too_large:
        return refusal(f"File exceeds the maximum of {MAX_BYTES} bytes.", "file")
    purpose = form.fields.get("purpose", b"").decode("utf-8", "replace")
    if purpose != "batch":
        return refusal(f"Invalid value for 'purpose': '{purpose}'.", "purpose")
    if "file" not in form.fields:
        return refusal("Missing required parameter: 'file'.", "file")
    return BatchReply(_file_body(call.store.add_file(form.name, purpose, form.fields["file"])))


@dataclass(slots=True)
class _Form:
    """The fields of a form as they arrive."""

    fields: dict[str, bytes] = field(default_factory=dict)
    name: str = ""
    is_too_large: bool = False

    async def take(self, part: BodyPartReader) -> None:
        """Read one field; of one that is too large nothing is kept."""
        content = bytearray()
        while chunk := await part.read_chunk(2**16):
            self.is_too_large = self.is_too_large or len(content) + len(chunk) > MAX_BYTES
            if not self.is_too_large:
                content += chunk
        self.name = part.filename or self.name
        self.fields[part.name or ""] = bytes(content)


def _file_body(file: StoredFile) -> dict[str, Any]:
    return {
        "id": f"file-{file.id}",
        "object": "file",
        "bytes": len(file.content),
        "created_at": int(file.created_s),
        "filename": file.name,
        "purpose": file.purpose,
        "status": "processed",
    }


def _read_file(file: StoredFile, call: BatchCall) -> BatchReply:
    return BatchReply(file.content, {"Content-Type": "application/octet-stream"})


def _delete_file(file: StoredFile, call: BatchCall) -> BatchReply:
    del call.store.files[file.id]
    return BatchReply({"id": f"file-{file.id}", "object": "file", "deleted": True})


async def _list_files(call: BatchCall) -> BatchReply:
    purpose = call.query.get("purpose")
    files = (file for file in call.store.files.values() if purpose in (None, file.purpose))
    limit = number_in(call.query.get("limit"), 10_000, 10_000)
    found, more = page(files, limit, after=call.query.get("after", "").removeprefix("file-"))
    return _list_body(map(_file_body, found), more)


async def _list_batches(call: BatchCall) -> BatchReply:
    after = call.query.get("after", "").removeprefix("batch_")
    found, more = page(
        call.store.listed(), number_in(call.query.get("limit"), 20, 100), after=after
    )
    return _list_body((_describe(batch, call) for batch in found), more)


def _list_body(bodies: Iterable[dict[str, Any]], more: bool) -> BatchReply:
    entries = list(bodies)
    ids = [entry["id"] for entry in entries] or [None]
    ends = {"first_id": ids[0], "last_id": ids[-1]}
    return BatchReply({"object": "list", "data": entries, **ends, "has_more": more})


async def _create(call: BatchCall) -> BatchReply | ErrorAnswer:
    body = json_object(await read_body(call.body, 2**20))
    if body is None:
        return refusal("The request body is not a JSON object.")
    if body.get("endpoint") != _ENDPOINT:
        return refusal(f"Invalid value for 'endpoint': this host has {_ENDPOINT}.", "endpoint")
    if body.get("completion_window") != "24h":
        return refusal("Invalid value for 'completion_window': '24h'.", "completion_window")
    file = call.store.files.get(str(body.get("input_file_id")).removeprefix("file-"))
    if file is None or file.purpose != "batch":
        return refusal("Invalid value for 'input_file_id': no such file.", "input_file_id")
    metadata = body.get("metadata")
    if not _is_metadata(metadata):
        return refusal("Invalid value for 'metadata'.", "metadata")
    facts = {"input_file_id": f"file-{file.id}", "metadata": metadata}
    return BatchReply(
        _describe(call.store.create(_requests(file.content), facts, _leave_files), call)
    )


def _is_metadata(metadata: object) -> bool:
    """Whether it is nothing, or 16 texts at most of 512 characters at most."""
    if metadata is None:
        return True
    return (
        isinstance(metadata, dict)
        and len(metadata) <= 16
        and all(len(key) <= 64 for key in metadata)
        and all(isinstance(value, str) and len(value) <= 512 for value in metadata.values())
    )


def _requests(content: bytes) -> Iterator[NamedRequest | BatchProblem]:
    """Read an input file; a problem of any line refuses the whole."""
    names: set[str] = set()
    model = ""
    number = 0
    for number, line in enumerate(content.splitlines(), start=1):
        if number > MAX_REQUESTS:
            words = f"The batch exceeds the maximum of {MAX_REQUESTS} requests."
            yield BatchProblem("too_many_tasks", words)
            return
        request = _request(line, number)
        if isinstance(request, NamedRequest):
            yield _clash(request, names, model, number) or request
            names.add(request.name)
            if isinstance(request.chat, ChatRequest):
                model = request.chat.model
        else:
            yield request
    if not number:
        yield BatchProblem("empty_file", "The input file is empty.")


def _clash(request: NamedRequest, names: set[str], model: str, number: int) -> BatchProblem | None:
    """Return the problem of a request that does not go with those before it."""
    if request.name in names:
        words = f"The custom_id '{request.name}' is used more than once."
        return BatchProblem("duplicate_custom_id", words, number)
    if isinstance(request.chat, ChatRequest) and model not in ("", request.chat.model):
        words = "All requests of a batch have to name the same model."
        return BatchProblem("mismatched_model", words, number)
    return None


def _request(line: bytes, number: int) -> NamedRequest | BatchProblem:
    entry = json_object(line)
    if entry is None:
        return BatchProblem("invalid_json_line", "This line is not a JSON object.", number)
    name, body = entry.get("custom_id"), entry.get("body")
    if not isinstance(name, str) or not name or not isinstance(body, dict):
        words = "Missing required parameter: 'custom_id' or 'body'."
        return BatchProblem("missing_required_parameter", words, number)
    if entry.get("method") != "POST":
        return BatchProblem("invalid_method", "The method has to be 'POST'.", number)
    if entry.get("url") != _ENDPOINT:
        words = "The url differs from the endpoint of the batch."
        return BatchProblem("invalid_url", words, number)
    return NamedRequest(name, read(body, ""))


def _leave_files(store: BatchStore, batch: SimulatedBatch) -> None:
    """Keep the results: answers in one file, all else in another, neither when it is empty."""
    for use, kept in (("output", _is_answer), ("error", lambda line: not _is_answer(line))):
        content = written(batch, _line_body, kept)
        if content:
            file = store.add_file(f"batch_{batch.id}_{use}.jsonl", "batch_output", content)
            batch.files[f"{use}_file_id"] = f"file-{file.id}"


def _is_answer(line: ResultLine) -> bool:
    return isinstance(line.outcome, Completion)


def _line_body(line: ResultLine, call: Call) -> dict[str, Any]:
    body: dict[str, Any] = {"id": f"batch_req_{call.id}", "custom_id": line.name}
    if isinstance(line.outcome, Unanswered):
        code, message = _UNANSWERED[line.outcome]
        return body | {"response": None, "error": {"code": code, "message": message}}
    if isinstance(line.outcome, Completion):
        status, answer = 200, answer_body(line.outcome, call)
    else:
        status = ERRORS[line.outcome.error_class].status
        answer = error_body(line.outcome, call)
    response = {"status_code": status, "request_id": f"req_{call.id}", "body": answer}
    return body | {"response": response, "error": None}


def _cancel(batch: SimulatedBatch, call: BatchCall) -> BatchReply | ErrorAnswer:
    if batch.has_ended:
        return refusal(f"Cannot cancel a batch with status '{batch.phase}'.")
    batch.cancel(call.now_s)
    return BatchReply(_describe(batch, call))


def _describe(batch: SimulatedBatch, call: BatchCall) -> dict[str, Any]:
    failed = sum(not isinstance(outcome, Completion) for outcome in batch.outcomes)
    answered = len(batch.outcomes) - failed if batch.has_ended else batch.answered(call.now_s)
    moments = {
        "in_progress_at": None if batch.phase is BatchPhase.VALIDATING else batch.created_s,
        "cancelling_at": batch.cancelled_s,
        _MOMENTS.get(batch.phase, "completed_at"): batch.ended_s,
    }
    return {
        "id": f"batch_{batch.id}",
        "object": "batch",
        "endpoint": _ENDPOINT,
        "errors": _errors(batch.problems) if batch.problems else None,
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


def _errors(problems: list[BatchProblem]) -> dict[str, Any]:
    entries = [
        {"code": each.code, "message": each.message, "param": None, "line": each.line}
        for each in problems
    ]
    return {"object": "list", "data": entries}


_FILES = r"(?:/.*)?/v1/files"
_FILE = rf"{_FILES}/file-(?P<id>[^/]+)"
_CONTENT = re.compile(rf"{_FILE}/content")
_DESCRIBE_FILE = about_file(_NO_FILE, lambda file, call: BatchReply(_file_body(file)))
_BATCHES = r"(?:/.*)?/v1/batches"
ROUTES = (
    BatchRoute("POST", re.compile(_FILES), Endpoint.UPLOAD, _upload),
    BatchRoute("GET", re.compile(_FILES), Endpoint.LIST, _list_files),
    BatchRoute("GET", re.compile(_FILE), Endpoint.POLL, _DESCRIBE_FILE),
    BatchRoute("GET", _CONTENT, Endpoint.RESULTS, about_file(_NO_FILE, _read_file)),
    BatchRoute("DELETE", re.compile(_FILE), Endpoint.DELETE, about_file(_NO_FILE, _delete_file)),
    *life_cycle(
        _BATCHES,
        rf"{_BATCHES}/batch_(?P<id>[^/]+)",
        create=_create,
        listed=_list_batches,
        missing="No batch found with id 'batch_{id}'.",
        describe=_describe,
        cancel=_cancel,
    ),
)
"""Paths of this dialect, whatever root precedes them."""

"""OpenAI chat completions and batches of them, seen from the server's side.

Files of requests are uploaded for a batch, and its results are files again.
"""

import math
import re
from operator import itemgetter
from typing import Any

from aiohttp import BodyPartReader, MultipartReader
from msgspec.structs import replace

from aegish_dist.core.batches import Unanswered
from aegish_dist.core.outcome import Outcome
from aegish_dist.core.parsing import parse
from aegish_dist.core.verdict import Completion, Usage
from aegish_dist.simulator import batches, dialect
from aegish_dist.simulator.config import Endpoint

_WORDS = dialect.WORDS["openai"]
ERRORS = _WORDS.errors
KEY_HEADER = "Authorization"
KEY_SCHEME = "bearer"
MOST_LOGPROBS = 20
_ACTIONS = (Outcome.ALLOW, Outcome.WARN, Outcome.BLOCK)


def route(path: str) -> str | None:
    """Return the model in a path of this format: none, as the body names it."""
    return "" if path.endswith("/v1/chat/completions") else None


def read(body: dict[str, Any], model: str) -> dialect.ChatRequest | dialect.ErrorAnswer:
    named = body.get("model") or model
    found = dialect.conversation(named, body.get("stream"), body.get("messages"), "content")
    if isinstance(found, dialect.ErrorAnswer):
        return found
    user, prompt_chars = found
    limit = dialect.as_limit(body.get("max_completion_tokens", body.get("max_tokens")))
    form = _form(body)
    if isinstance(form, dialect.ErrorAnswer):
        return form
    return dialect.ChatRequest(named, user, prompt_chars, prompt_chars - len(user), limit, form)


def _form(body: dict[str, Any]) -> dialect.Form | dialect.ErrorAnswer:
    form: dialect.Form | dialect.ErrorAnswer = dialect.Form()
    wanted = dialect.inner(body, "response_format")
    if forced := dialect.inner(body, "tool_choice", "function").get("name"):
        functions = [dialect.inner(each, "function") for each in dialect.listed(body, "tools")]
        parameters = [each.get("parameters") for each in functions if each.get("name") == forced]
        form = dialect.form(parameters[0] if parameters else None, "tools", str(forced))
    elif wanted.get("type") == "json_schema":
        schema = dialect.inner(wanted, "json_schema")
        form = dialect.form(schema.get("schema") if schema.get("name") else None, "response_format")
    top, wants = body.get("top_logprobs", 0), body.get("logprobs")
    if not isinstance(top, int) or not 0 <= top <= MOST_LOGPROBS or (top and wants is not True):
        words = f"top_logprobs must be from 0 to {MOST_LOGPROBS}, and logprobs true"
        return dialect.refusal(words, "top_logprobs")
    if wants is True and isinstance(form, dialect.Form):
        return replace(form, top_logprobs=top)
    return form


def answer_body(answer: Completion, call: dialect.Call) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text}
    message["refusal"] = answer.refusal
    if isinstance(answer, dialect.Answer) and answer.arguments is not None:
        function = {"name": answer.form.tool, "arguments": answer.text}
        called = {"id": f"call_{call.id}", "type": "function", "function": function}
        message |= {"content": None, "tool_calls": [called]}
    body: dict[str, Any] = {
        "id": f"chatcmpl-{call.id}",
        "object": "chat.completion",
        "created": int(call.now_s),
        "model": answer.model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": _logprobs(answer),
                "finish_reason": dialect.stop_word(answer, _WORDS.stops, _WORDS.native),
            }
        ],
    }
    if dialect.is_reported(answer.usage):
        body["usage"] = _usage(answer.usage)
    if answer.upstream is not None:
        body["provider"] = answer.upstream
    return body


def _logprobs(answer: Completion) -> dict[str, Any] | None:
    """Return the tokens of an answer, which is as sure of its action as it says."""
    if not isinstance(answer, dialect.Answer) or answer.form.top_logprobs is None:
        return None
    said = parse(answer.text)
    sure = min(max(0.5 if said.confidence is None else said.confidence, 0.34), 0.98)
    tokens = []
    for text in re.findall(r"\w+|\W+", answer.text or ""):
        chances = {text: 0.98}
        if text == said.action:
            chances = {each.value: (1 - sure) / 2 for each in _ACTIONS} | {text: sure}
        ordered = sorted(chances.items(), key=itemgetter(1), reverse=True)
        candidates = [_token(each, chance) for each, chance in ordered[: answer.form.top_logprobs]]
        tokens.append(_token(text, chances[text]) | {"top_logprobs": candidates})
    return {"content": tokens, "refusal": None}


def _token(text: str, chance: float) -> dict[str, Any]:
    sent = list(text.encode("utf-8", "surrogatepass"))
    return {"token": text, "logprob": math.log(chance), "bytes": sent}


def error_body(error: dialect.ErrorAnswer, call: dialect.Call) -> dict[str, Any]:
    form = ERRORS[error.error_class]
    return {
        "error": {
            "message": error.message,
            "type": form.type,
            "param": error.param,
            "code": form.code,
        }
    }


def headers(allowance: dialect.Allowance, call: dialect.Call) -> dict[str, str]:
    return {
        "x-request-id": f"req_{call.id}",
        "x-ratelimit-limit-requests": str(allowance.limit),
        "x-ratelimit-remaining-requests": str(allowance.remaining),
        "x-ratelimit-reset-requests": _duration(allowance.reset_s),
    }


def _usage(usage: Usage) -> dict[str, Any]:
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


async def _upload(call: batches.BatchCall) -> batches.Reply:
    length = call.request.content_length
    if length is None or length > MAX_BYTES:
        return dialect.refusal(f"File exceeds the maximum of {MAX_BYTES} bytes.", "file")
    parts: dict[str, tuple[str, bytes]] = {}
    try:
        reader = MultipartReader(call.request.headers, call.request.content)
        while isinstance(part := await reader.next(), BodyPartReader):
            parts[part.name or ""] = part.filename or "", bytes(await part.read())
    except (ValueError, AssertionError) as error:
        return dialect.refusal(f"Could not parse the multipart form: {error}", "file")
    if "file" not in parts or parts.get("purpose") != ("", b"batch"):
        return dialect.refusal("A form with a file and the purpose 'batch' is required.", "purpose")
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
        return dialect.refusal(f"Invalid value for '{wrong}'.", wrong)
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
        yield entry["custom_id"], read(entry["body"], "")


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
        return dialect.refusal(f"Cannot cancel a batch with status '{batch.phase}'.")
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

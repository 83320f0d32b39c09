"""OpenAI's batches over HTTP; shapes of answers are those of the official API reference."""

import asyncio
import json
import tracemalloc
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import HTTP

import pytest
from aiohttp import web

from aegish_dist.core.batches import BatchItem, BatchReport, BatchRequest, BatchResult, Unanswered
from aegish_dist.core.model import WireFormat
from aegish_dist.core.outcome import ErrorClass, StopKind
from aegish_dist.core.run import Prompt
from aegish_dist.core.verdict import Completion
from aegish_dist.errors import ProviderError
from aegish_dist.providers.batches.transfer import BatchClient
from tests.batch_clients import (
    KEY,
    NAMES,
    REQUESTS,
    SINCE,
    TOKEN,
    all_results,
    client_of,
    failure,
    jsonl,
    talk,
)
from tests.scripted_server import Answered, ScriptedServer

OPENAI = (WireFormat.OPENAI, "/v1")
CREATED = {
    "POST /v1/files": Answered({"id": "file-1", "object": "file", "purpose": "batch"}),
    "POST /v1/batches": Answered({"id": "batch_1", "object": "batch", "status": "validating"}),
}


def form(server: ScriptedServer) -> dict[str, bytes]:
    """Read the uploaded form by a parser of another project: that of the standard library."""
    (upload,) = server.requests("POST /v1/files")
    assert int(upload.headers["Content-Length"]) == len(upload.body)
    head = f"Content-Type: {upload.headers['Content-Type']}\r\n\r\n".encode()
    message = BytesParser(EmailMessage, policy=HTTP).parsebytes(head + upload.body)
    parts = list(message.iter_parts())
    content = [part.get_payload(decode=True) for part in parts]
    names = [part.get_param("name", header="content-disposition") for part in parts]
    return {str(name): bytes(data) for name, data in zip(names, content, strict=True)}


def test_a_batch_is_created_of_an_uploaded_file() -> None:
    """The file holds one line per request, with the body of a live call and a seed per epoch."""
    name, server = talk(CREATED, *OPENAI, lambda client: client.create(TOKEN, iter(REQUESTS)))
    assert name == "batch_1"
    sent = form(server)
    assert sent["purpose"] == b"batch"
    lines = [json.loads(line) for line in sent["file"].splitlines() if line]
    assert [line["custom_id"] for line in lines] == NAMES
    assert {(line["method"], line["url"]) for line in lines} == {("POST", "/v1/chat/completions")}
    assert [line["body"]["seed"] for line in lines] == [42, 43, 42]
    texts = [line["body"]["messages"][1]["content"] for line in lines]
    assert texts == [f"Validate this command: {request.command}" for request in REQUESTS]
    (creation,) = server.requests("POST /v1/batches")
    assert creation.json == {
        "input_file_id": "file-1",
        "endpoint": "/v1/chat/completions",
        "completion_window": "24h",
        "metadata": {"aegish_dist_batch": TOKEN},
    }
    assert {ask.headers["Authorization"] for ask in server.asked} == {f"Bearer {KEY}"}


def test_the_size_of_a_request_is_that_of_its_line() -> None:
    async def sizes(client: BatchClient) -> list[int]:
        await client.create(TOKEN, REQUESTS)
        return [client.size(request, TOKEN) for request in REQUESTS]

    found, server = talk(CREATED, *OPENAI, sizes)
    assert found == [len(line) for line in form(server)["file"].splitlines(keepends=True)]


def test_a_large_file_is_sent_without_being_held() -> None:
    """56 MB of requests take less than 4 MB of memory, the commands themselves left out."""
    requests = [BatchRequest(BatchItem(key, 1, 0), "ls") for key in range(8_000)]
    received = 0

    async def swallow(request: web.Request) -> web.Response:
        nonlocal received
        async for piece in request.content.iter_any():
            received += len(piece)
        return web.json_response({"id": "file-1"})

    async def body() -> tuple[int, int]:
        app = web.Application()
        app.router.add_post("/{path:.*}", swallow)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        prompt = Prompt("guard", "x" * 7_000, "{command}")
        async with client_of(f"http://{host}:{port}/v1", WireFormat.OPENAI, prompt) as client:
            announced = sum(client.size(request, TOKEN) for request in requests)
            tracemalloc.start()
            await client.create(TOKEN, requests)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        await runner.cleanup()
        return announced, peak

    announced, peak = asyncio.run(body())
    assert received > announced > 56_000_000
    assert peak < 4_000_000


def test_a_refused_batch_leaves_no_file_behind() -> None:
    quota = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    script = CREATED | {
        "POST /v1/batches": Answered(quota, status=429),
        "DELETE /v1/files/file-1": Answered({"deleted": True}),
    }

    async def refused(client: BatchClient) -> ProviderError:
        with pytest.raises(ProviderError) as caught:
            await client.create(TOKEN, REQUESTS)
        return caught.value

    error, server = talk(script, *OPENAI, refused)
    assert (error.status, error.error_class) == (429, ErrorClass.QUOTA)
    assert len(server.requests("DELETE /v1/files/file-1")) == 1


def test_a_batch_whose_creation_is_uncertain_keeps_its_file() -> None:
    """After a 5xx the batch may exist, and would fail without its file."""
    script = CREATED | {"POST /v1/batches": Answered({}, status=502)}

    async def uncertain(client: BatchClient) -> int | None:
        with pytest.raises(ProviderError) as caught:
            await client.create(TOKEN, REQUESTS)
        return caught.value.status

    status, server = talk(script, *OPENAI, uncertain)
    assert status == 502
    assert [ask.method for ask in server.asked] == ["POST", "POST"]


def listed(number: int, created_at: float, token: str | None = None) -> dict[str, object]:
    metadata = None if token is None else {"aegish_dist_batch": token}
    return {"id": f"batch_{number}", "created_at": created_at, "metadata": metadata}


def test_a_batch_is_found_by_its_token_on_a_later_page() -> None:
    """The search ends where the list goes back beyond the attempt to create, clocks apart."""
    now = SINCE.timestamp()
    pages = [
        {"data": [listed(1, now + 60), listed(2, now + 50, "other")], "has_more": True},
        {"data": [listed(3, now - 60, TOKEN), listed(4, now - 7_200)], "has_more": True},
    ]
    script = {
        "GET /v1/batches?limit=100": Answered(pages[0]),
        "GET /v1/batches?limit=100&after=batch_2": Answered(pages[1]),
    }
    found, server = talk(script, *OPENAI, lambda client: client.find(TOKEN, 3, SINCE))
    assert found == ["batch_3"]
    assert len(server.asked) == 2


def test_a_list_that_breaks_off_is_not_taken_for_an_empty_one() -> None:
    page = {"data": [listed(1, SINCE.timestamp())], "has_more": True}
    script = {
        "GET /v1/batches?limit=100": Answered(page),
        "GET /v1/batches?limit=100&after=batch_1": Answered({}, status=500),
    }
    error = failure(script, *OPENAI, lambda client: client.find(TOKEN, 3, SINCE))
    assert error.status == 500


@pytest.mark.parametrize(
    ("batch", "report"),
    [
        (
            {"status": "in_progress", "request_counts": {"total": 3, "completed": 1, "failed": 1}},
            BatchReport(False, "in_progress", 1, 1),
        ),
        ({"status": "completed"}, BatchReport(True, "completed")),
        ({"status": "expired"}, BatchReport(True, "expired")),
        ({"status": "cancelling"}, BatchReport(False, "cancelling")),
        ({"status": "cancelled"}, BatchReport(True, "cancelled")),
        ({}, BatchReport(False, "unknown")),
        (
            {
                "status": "failed",
                "errors": {
                    "object": "list",
                    "data": [
                        {"code": "token_limit_exceeded", "message": f"Enqueued\x1b {KEY}"},
                        {"code": "x", "message": "y"},
                    ],
                },
            },
            BatchReport(
                True, "failed", problem="token_limit_exceeded: Enqueued [key] (and 1 more)"
            ),
        ),
    ],
)
def test_the_state_of_a_batch_is_read(batch: dict[str, object], report: BatchReport) -> None:
    script = {"GET /v1/batches/batch_1": Answered({"id": "batch_1", **batch})}
    assert talk(script, *OPENAI, lambda client: client.poll("batch_1"))[0] == report


def answered(name: str, text: str) -> str:
    body = {
        "id": "chatcmpl-1",
        "model": "m-1-2026",
        "choices": [{"message": {"content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5},
    }
    response = {"status_code": 200, "request_id": "req_1", "body": body}
    return json.dumps({"id": "batch_req_1", "custom_id": name, "response": response, "error": None})


def errored(name: str, code: str) -> str:
    error = {"code": code, "message": "This request was not executed."}
    return json.dumps({"id": "batch_req_2", "custom_id": name, "response": None, "error": error})


def refused_line(name: str, status: int, error: dict[str, str]) -> str:
    response = {"status_code": status, "request_id": "req_2", "body": {"error": error}}
    return json.dumps({"id": "x", "custom_id": name, "response": response, "error": None})


ENDED = {
    "id": "batch_1",
    "status": "completed",
    "input_file_id": "file-1",
    "output_file_id": "file-2",
    "error_file_id": "file-3",
}


def read(output: Answered, errors: Answered | None = None) -> list[BatchResult]:
    batch = ENDED | ({} if errors else {"error_file_id": None})
    script = {
        "GET /v1/batches/batch_1": Answered(batch),
        "GET /v1/files/file-2/content": output,
        "GET /v1/files/file-3/content": errors or jsonl(),
    }
    return talk(script, *OPENAI, lambda client: all_results(client, "batch_1"))[0]


def test_the_answers_of_both_files_come() -> None:
    first, second = read(jsonl(answered("a", f"ALLOW {KEY}")), jsonl(errored("b", "batch_expired")))
    assert first.name == "a"
    assert isinstance(first.answer, Completion)
    assert first.answer.text == "ALLOW [key]"
    assert first.answer.usage.input_tokens == 10
    assert first.answer.stop_kind is StopKind.STOP
    assert first.answer.model == "m-1-2026"
    assert first.answer.request_id == "req_1"
    assert second == BatchResult("b", Unanswered.EXPIRED)


@pytest.mark.parametrize(
    ("line", "error_class", "status"),
    [
        (refused_line("a", 400, {"message": "bad"}), ErrorClass.BAD_REQUEST, 400),
        (refused_line("a", 429, {"message": "slow down"}), ErrorClass.RATE_LIMIT, 429),
        (refused_line("a", 500, {"message": "oops"}), ErrorClass.SERVER, 500),
        (errored("a", "request_timeout"), ErrorClass.SERVER, 504),
        (errored("a", "some_new_code"), ErrorClass.SERVER, 502),
        ('{"custom_id": "a"}', ErrorClass.MALFORMED, 200),
        ('{"custom_id": "a", "response": {"status_code": 200}}', ErrorClass.MALFORMED, 200),
    ],
)
def test_a_failed_request_has_the_class_of_a_live_failure(
    line: str, error_class: ErrorClass, status: int
) -> None:
    (result,) = read(jsonl(), jsonl(line))
    assert result.name == "a"
    assert isinstance(result.answer, ProviderError)
    assert (result.answer.error_class, result.answer.status) == (error_class, status)


def test_a_request_that_a_filter_refused_is_answered() -> None:
    error = {"message": "prompt was flagged", "code": "invalid_prompt"}
    (result,) = read(jsonl(), jsonl(refused_line("a", 400, error)))
    assert isinstance(result.answer, Completion)
    assert result.answer.stop_kind is StopKind.CONTENT_FILTER


def test_cancelled_requests_are_no_errors() -> None:
    lines = jsonl(errored("a", "batch_cancelled"), errored("b", "batch_canceled"))
    assert [result.answer for result in read(jsonl(), lines)] == [Unanswered.CANCELLED] * 2


@pytest.mark.parametrize("bad", ["{", "[" * 100_000, "x" * 1_200_000, "\udc80"])
def test_a_line_that_cannot_be_read_spoils_no_other(bad: str) -> None:
    """It has no name; what came before and after it is read."""
    content = "\n".join([answered("a", "ALLOW"), "", bad, answered("b", "BLOCK")])
    results = read(Answered(content.encode(errors="surrogateescape")))
    assert [result.name for result in results] == ["a", "", "b"]
    assert isinstance(results[1].answer, ProviderError)
    assert results[1].answer.error_class == ErrorClass.MALFORMED


@pytest.mark.parametrize("line", ["7", "null", "[]", '{"custom_id": 7}'])
def test_json_of_another_shape_is_a_nameless_error(line: str) -> None:
    (result,) = read(jsonl(line))
    assert result.name == ""
    assert isinstance(result.answer, ProviderError)


def test_results_that_break_off_are_an_error_after_those_that_came() -> None:
    content = f"{answered('a', 'ALLOW')}\n{answered('b', 'BLOCK')[:40]}".encode()
    script = {
        "GET /v1/batches/batch_1": Answered(ENDED),
        "GET /v1/files/file-2/content": Answered(content, breaks=True),
    }
    names: list[str] = []

    async def collect(client: BatchClient) -> None:
        async for result in client.results("batch_1"):
            names.append(result.name)

    error = failure(script, *OPENAI, collect)
    assert error.error_class == ErrorClass.CONNECTION
    assert names == ["a"]


def test_answers_without_their_file_are_waited_for() -> None:
    batch = {"id": "batch_1", "status": "completed", "request_counts": {"completed": 2}}
    script = {"GET /v1/batches/batch_1": Answered(batch)}
    error = failure(script, *OPENAI, lambda client: all_results(client, "batch_1"))
    assert error.error_class == ErrorClass.MALFORMED


def test_a_failed_batch_has_no_results() -> None:
    script = {"GET /v1/batches/batch_1": Answered({"id": "batch_1", "status": "failed"})}
    assert talk(script, *OPENAI, lambda client: all_results(client, "batch_1"))[0] == []


def test_the_files_of_a_batch_are_discarded_as_far_as_they_can_be() -> None:
    script = {
        "GET /v1/batches/batch_1": Answered(ENDED),
        "DELETE /v1/files/file-2": Answered({"deleted": True}),
        "DELETE /v1/files/file-3": Answered({"deleted": True}),
    }
    _, server = talk(script, *OPENAI, lambda client: client.discard("batch_1"))
    deleted = [ask.path for ask in server.asked if ask.method == "DELETE"]
    assert deleted == ["/v1/files/file-1", "/v1/files/file-2", "/v1/files/file-3"]


def test_a_batch_is_cancelled() -> None:
    script = {"POST /v1/batches/batch_1/cancel": Answered({"status": "cancelling"})}
    _, server = talk(script, *OPENAI, lambda client: client.cancel("batch_1"))
    assert len(server.asked) == 1


@pytest.mark.parametrize("name", ["../files", "batch/1", "", ".", "..", "a?b", "a" * 201, "ü"])
def test_a_name_that_would_change_the_address_is_refused(name: str) -> None:
    error = failure({}, *OPENAI, lambda client: client.poll(name))
    assert error.error_class == ErrorClass.MALFORMED
    script = CREATED | {"POST /v1/batches": Answered({"id": name})}
    assert failure(script, *OPENAI, lambda client: client.create(TOKEN, REQUESTS)).status == 200


def test_no_redirect_is_followed_and_no_key_is_shown() -> None:
    moved = Answered({"error": KEY}, status=302, headers={"Location": "SERVER/v1/elsewhere"})
    error = failure(
        {"GET /v1/batches/batch_1": moved}, *OPENAI, lambda client: client.poll("batch_1")
    )
    assert error.error_class == ErrorClass.NOT_FOUND
    assert KEY not in str(error)
    chain = [error, error.__context__, error.__cause__]
    assert all(KEY not in repr(link) for link in chain)

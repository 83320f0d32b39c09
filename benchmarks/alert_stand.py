"""A fleet under watch, each part a process that can be killed, halted, restarted.

PostgreSQL, Redis, a simulated provider, workers, an exporter, and a Prometheus with the rules of
deploy/prometheus/.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import psycopg
from cluster import ROOT
from monitored import RULES, Prometheus, shortened, start_exporter

from tests.chaos.servers import Postgres
from tests.half_open import HalfOpenProxy
from tests.services import HOST, RedisServer, ServerProcess, free_port, wait_until

CATALOG = """
[providers.drilled]
wire = "openai"
base_url = "{url}/v1"
key_variable = ""
batch_share = 0.5
max_in_flight = 20

[[models]]
id = "drilled/careful"
price = {{input = 1, output = 10}}

[[models]]
id = "drilled/thinking"
price = {{input = 1, output = 1000}}
"""
GRACE_S = 2.0
READY_S = 60.0
SCRAPE = "500ms"
"""Between two scrapes: the shortest range of a rate has ten."""


class Stand:
    """The running fleet; a context manager."""

    def __init__(
        self, home: Path, *, workers: int = 2, catalog: str = CATALOG, drilled: bool = True
    ) -> None:
        """Choose all ports; nothing is started yet.

        Args:
            home: An empty folder.
            drilled: Whether the minutes of the rules last a second.
        """
        self.home = home
        self._catalog = catalog
        self._drilled = drilled
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        """By the port of its measures."""
        self.ports = [free_port() for _ in range(workers)]
        self.run_id = ""
        """The run of the current drill."""
        self._exporter_port = free_port()
        self._provider = ServerProcess(free_port(), home / "provider.log")
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Start everything."""
        with ExitStack() as stack:
            self.postgres = stack.enter_context(Postgres())
            self.redis = stack.enter_context(RedisServer(self.home))
            self.environ = self._environ()
            stack.callback(self._provider.stop)
            self.simulate()
            stack.callback(self._end)
            self.start_exporter()
            for port in self.ports:
                self.start_worker(port)
            rules = {path.name: path.read_text() for path in RULES}
            if self._drilled:
                rules = {name: shortened(text) for name, text in rules.items()}
            (folder := self.home / "prometheus").mkdir()
            jobs = {"aegish-worker": self.ports, "aegish-exporter": [self._exporter_port]}
            self.prometheus = stack.enter_context(Prometheus(folder, jobs, rules, SCRAPE))
            self.wait_for_workers()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End everything."""
        self._stack.close()

    def _environ(self) -> dict[str, str]:
        catalog = self.home / "catalog.toml"
        catalog.write_text(self._catalog.format(url=f"http://{HOST}:{self._provider.port}"))
        settings = {
            "database_url": self.postgres.url,
            "broker_url": self.redis.url,
            "catalog": catalog,
            "home": self.home / "kept",
            "concurrency": 20,
            "shutdown_grace_s": GRACE_S,
            "message_lease_s": 5,
        }
        return os.environ | {f"AEGISH_DIST_{n.upper()}": str(v) for n, v in settings.items()}

    def simulate(self, *options: str, scenario: str = "") -> None:
        """Start the provider again, with other options."""
        self._provider.stop()
        (path := self.home / "scenario.toml").write_text(scenario)
        port = ("--port", str(self._provider.port), "--scenario", str(path))
        latency = () if "--latency" in options else ("--latency", "uniform:0.2,0.5")
        command = (sys.executable, "-m", "aegish_dist", "simulate-provider", *port, *latency)
        self._provider.launch([*command, *options], self.environ)

    @contextmanager
    def provider_away(self) -> Iterator[None]:
        """End the provider for the length of the body."""
        self._provider.kill()
        yield
        self.simulate()

    @contextmanager
    def provider_silent(self) -> Iterator[None]:
        """Halt the provider for the length of the body: it takes calls and answers none."""
        with self._provider.halted():
            yield

    def start_worker(self, port: int, broker_url: str | None = None) -> None:
        """Start a worker without waiting for it."""
        environ = self.environ | {"AEGISH_DIST_METRICS_PORT": str(port)}
        environ |= {"AEGISH_DIST_BROKER_URL": broker_url} if broker_url else {}
        self.workers[port] = self._start("worker", environ=environ)

    def end_worker(self, port: int, how: int = signal.SIGKILL) -> None:
        """Send a worker a signal and wait for its end."""
        worker = self.workers.pop(port)
        worker.send_signal(how)
        worker.wait(GRACE_S + READY_S)

    def wait_for_workers(self) -> None:
        """Wait until all workers have reported, and no other one counts any more."""

        def alive() -> bool:
            found = self.prometheus.query("sum(aegish_workers)")
            return bool(found) and float(found[0]["value"][1]) == len(self.workers)

        wait_until(alive, "living workers", READY_S)

    def start_exporter(self) -> None:
        """Start the exporter."""
        log = self.home / "exporter.log"
        self.exporter = start_exporter(self.environ, self._exporter_port, log)

    def end_exporter(self) -> None:
        """End the exporter without warning."""
        self.exporter.kill()
        self.exporter.wait()

    def _start(self, *arguments: str, environ: dict[str, str]) -> "subprocess.Popen[bytes]":
        command = (sys.executable, "-m", "aegish_dist", *arguments)
        with (self.home / f"{arguments[0]}.log").open("ab") as log:
            return subprocess.Popen(
                command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _end(self) -> None:
        for process in (*self.workers.values(), self.exporter):
            process.kill()
            process.wait()

    def command(self, *arguments: str) -> str:
        """Run a command of the product to its end and return what it printed."""
        command = (sys.executable, "-m", "aegish_dist", *arguments)
        done = subprocess.run(
            command, cwd=ROOT, env=self.environ, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"aegish-dist {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def submit(self, *options: str, model: str = "drilled/careful") -> None:
        """Submit a run of the bundled commands to a model."""
        chosen = ("submit", "--models", model, "--skip-preflight", "--json", *options)
        self.run_id = json.loads(self.command(*chosen))["run_id"]

    def cancel(self) -> None:
        """Have nothing more asked of the run of the drill."""
        if self.run_id:
            self.command("cancel", "--run-id", self.run_id)
            self.run_id = ""

    @contextmanager
    def locked(self, table: str) -> Iterator[None]:
        """Hold a lock on a table against writers, as a migration would."""
        with psycopg.connect(self.postgres.url) as connection:
            connection.execute(f"LOCK TABLE {table} IN EXCLUSIVE MODE")
            yield

    @contextmanager
    def other_way_to_the_broker(self) -> Iterator[str]:
        """Give an address of the broker that is gone after the body."""
        with HalfOpenProxy(self.redis.port) as proxy:
            yield self.redis.url.replace(f":{self.redis.port}/", f":{proxy.port}/")

    def sql(self, *statements: str) -> list[Any]:
        """Run statements as the database's administrator."""
        return self.postgres.run(*statements)

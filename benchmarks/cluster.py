"""A cluster on this machine for benchmarks: PostgreSQL, Redis, simulated providers and workers.

Every part is a process of its own, so that its CPU time is measured alone. Everything listens on
127.0.0.1 and lives in a temporary directory.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol, Self

import psutil
from measuring import cpu_s, ended_cpu_s, memory_mb
from msgspec import Struct
from sqlalchemy import text
from sqlalchemy.orm import Session

from aegish_dist.db.embedded import embedded_server
from aegish_dist.db.engine import open_engine
from aegish_dist.db.fleet import living_fleet
from aegish_dist.simulator.personas import PERSONAS
from tests.services import START_TIMEOUT_S, accepts_connections, free_port, wait_until

ROOT = Path(__file__).resolve().parent.parent
MODELS = tuple(PERSONAS)
"""Names that the simulated provider knows, in the order in which benchmarks take them."""


def product(*arguments: str) -> tuple[str, ...]:
    """Return the command line of the product."""
    return (sys.executable, "-m", "aegish_dist", *arguments)


class Parts:
    """Processes that end together; a context manager."""

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End everything that was started."""
        self._stack.close()

    def start(self, *command: str, environ: Mapping[str, str] | None = None) -> psutil.Process:
        """Start a process that is stopped at the end."""
        process = subprocess.Popen(
            command, cwd=ROOT, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

        def stop() -> None:
            process.send_signal(signal.SIGTERM)
            process.wait()

        self._stack.callback(stop)
        return psutil.Process(process.pid)


class Simulators(Parts):
    """One or more processes of the simulated provider, their counters at zero."""

    def __init__(
        self,
        *,
        latency: str,
        number: int = 1,
        scenario: Path | None = None,
        program: Sequence[str] = product("simulate-provider"),
    ) -> None:
        """Prepare them.

        Args:
            latency: Of every simulated model, such as `constant:1`.
            number: Processes; one serves about two thousand calls a second.
            program: Command line of the provider, without its options.
        """
        super().__init__()
        self._program = program
        self._options = ["--latency", latency]
        self._options += ["--scenario", str(scenario)] if scenario else []
        self._ports = [free_port() for _ in range(number)]
        self.urls = [f"http://127.0.0.1:{port}" for port in self._ports]
        self.processes: list[psutil.Process] = []

    def __enter__(self) -> Self:
        """Start them."""
        self.processes = [
            self.start(*self._program, "--port", str(port), *self._options) for port in self._ports
        ]
        wait_until(
            lambda: all(map(accepts_connections, self._ports)), "a provider", START_TIMEOUT_S
        )
        return self

    def cpu_s(self) -> float:
        """Return the CPU seconds so far of all of them."""
        return sum(map(cpu_s, self.processes))

    def stats(self) -> dict[str, Any]:
        """Return the counters of all of them together."""
        requests: Counter[str] = Counter()
        sums: Counter[str] = Counter()
        for url in self.urls:
            with urllib.request.urlopen(f"{url}/stats") as response:
                document = json.load(response)
            requests.update(document["requests"])
            sums.update({name: document[name] for name in ("in_flight", "in_flight_max")})
            answers = [each["live"]["requests"] for each in document["bill"]["models"].values()]
            refused = document["throttled"] + sum(document["faults"].values())
            sums.update({"answers": sum(answers), "refused": refused})
        return {"requests": dict(requests), **sums}


class Served(Protocol):
    """Whatever stands where workers look for the provider."""

    urls: list[str]


class Progress(Struct, frozen=True):
    """Stored verdicts of one model of a run."""

    verdicts: int
    last_stored_at: float
    """When the last of them was, in seconds since the epoch."""


class Cluster(Parts):
    """The running parts; a context manager."""

    def __init__(
        self,
        simulators: Served,
        *,
        in_flight: int | None,
        concurrency: int | None = None,
        models: Sequence[str] = MODELS[:1],
        workers: int = 1,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        """Prepare a cluster.

        Args:
            in_flight: Calls in flight of each model at most; None for no limit.
            limits: The same of single models, where it differs.
            simulators: What its workers call, running; models are dealt out to them in turn.
            concurrency: Items that each worker holds; as many as all models allow when None.
        """
        super().__init__()
        self._simulators = simulators
        self._in_flight = in_flight
        self._concurrency = concurrency or (in_flight or 0) * len(models)
        self._first_workers = workers
        self._limits = {f"simulated/{name}": limit for name, limit in (limits or {}).items()}
        self.models = [f"simulated/{name}" for name in models]
        self.workers: list[psutil.Process] = []
        self.environ: dict[str, str] = {}

    def __enter__(self) -> Self:
        """Start everything."""
        self.home = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="ab")))
        database_url = embedded_server(self.home).url
        self._engine = open_engine(database_url)
        self._stack.callback(self._engine.dispose)
        self.postgres = psutil.Process(
            int((self.home / "postgres" / "postmaster.pid").read_text().split()[0])
        )
        redis_port = free_port()
        self.redis = self.start(
            "redis-server", "--port", str(redis_port), "--bind", "127.0.0.1",
            "--appendonly", "yes", "--dir", str(self.home), "--save", "",
        )  # fmt: skip
        catalog = self.home / "catalog.toml"
        catalog.write_text(self._catalog())
        self.environ = {
            **os.environ,
            "AEGISH_DIST_DATABASE_URL": database_url,
            "AEGISH_DIST_BROKER_URL": f"redis://127.0.0.1:{redis_port}/0",
            "AEGISH_DIST_CATALOG": str(catalog),
            "AEGISH_DIST_CONCURRENCY": str(self._concurrency),
            "AEGISH_DIST_SHUTDOWN_GRACE_S": "1",
        }
        wait_until(lambda: accepts_connections(redis_port), "Redis", START_TIMEOUT_S)
        self.run("db", "upgrade")
        self.start_workers(self._first_workers)
        self.wait_for_workers()
        return self

    def _catalog(self) -> str:
        urls = self._simulators.urls
        provider = f'wire = "openai"\nbase_url = "{urls[0]}/v1"\nkey_variable = ""\n'
        limits = {model: self._limits.get(model, self._in_flight) for model in self.models}
        entries = (
            f'[[models]]\nid = "{model}"\nbase_url = "{urls[place % len(urls)]}/v1"\n'
            f"simulated = true\n{f'max_in_flight = {limit}' if limit else ''}\n"
            for place, (model, limit) in enumerate(limits.items())
        )
        return f"[providers.simulated]\n{provider}{''.join(entries)}"

    def start_workers(self, number: int = 1) -> None:
        """Start worker processes without waiting for them."""
        for _ in range(number):
            self.workers.append(self.start(*product("worker"), environ=self.environ))

    def wait_for_workers(self) -> None:
        """Wait until every worker process has reported."""
        wait_until(
            lambda: self._living_workers() >= len(self.workers), "living workers", START_TIMEOUT_S
        )

    def _living_workers(self) -> int:
        with Session(self._engine) as session:
            return living_fleet(session).workers

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Halt the workers meanwhile, so that queues fill up."""
        for worker in self.workers:
            worker.suspend()
        try:
            yield
        finally:
            for worker in self.workers:
                worker.resume()

    def run(self, *arguments: str) -> str:
        """Run the product to its end and return what it printed."""
        result = subprocess.run(
            product(*arguments), cwd=ROOT, env=self.environ, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        if result.returncode:
            raise RuntimeError(f"aegish-dist {' '.join(arguments)}: {result.stderr}")
        return result.stdout

    def submit(self, *options: str) -> tuple[str, float]:
        """Enqueue a run of all models; return its id and the CPU seconds that enqueueing took."""
        before = ended_cpu_s()
        run_id = self.run("submit", "--models", ",".join(self.models), *options).strip()
        return run_id, ended_cpu_s() - before

    def cpu(self) -> dict[str, float]:
        """Return the CPU seconds so far of workers, PostgreSQL and Redis."""
        return {
            "worker": sum(map(cpu_s, self.workers)),
            "postgres": cpu_s(self.postgres),
            "redis": cpu_s(self.redis),
        }

    def memory_mb(self) -> float:
        """Return the memory of the largest worker process."""
        return memory_mb(self.workers)

    def rows(self, query: str, **values: object) -> list[Any]:
        """Return the rows of a query."""
        with Session(self._engine) as session:
            return list(session.execute(text(query), values).all())

    def progress(self, run_id: str) -> dict[str, Progress]:
        """Return what is stored of a run, by model name; models without a verdict are absent."""
        query = text(
            "SELECT model.model, count(*), extract(epoch FROM max(verdict.stored_at))"
            " FROM verdicts AS verdict JOIN run_models AS model"
            " ON model.id = verdict.run_model_id WHERE model.run_id = :run GROUP BY 1"
        )
        with Session(self._engine) as session:
            rows = session.execute(query, {"run": run_id}).all()
        return {
            model.removeprefix("simulated/"): Progress(number, float(last))
            for model, number, last in rows
        }

    def stored(self, run_id: str) -> int:
        """Return how many verdicts of a run are stored."""
        return sum(each.verdicts for each in self.progress(run_id).values())

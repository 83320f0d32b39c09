"""A cluster for one test: command line, workers and a simulated provider, each a real process."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self

from sqlalchemy import text
from sqlalchemy.orm import Session

from aegish_dist.broker.client import publish, queue_depths
from aegish_dist.broker.messages import queue_name
from aegish_dist.core.status import RunStatus, State
from aegish_dist.core.verdict import Item
from aegish_dist.db.engine import open_engine
from aegish_dist.db.fleet import living_fleet
from aegish_dist.db.missing import missing_items
from aegish_dist.pipeline.status import run_status
from tests.recorded import Recording, export_verdicts
from tests.services import HOST, ServerProcess, free_port, queue_application, wait_until

DEADLINE_S = 120.0  # for a whole run or process; beside other work a worker begins after a minute

LOG_CHARS = 20_000  # characters of the workers' log that a failed test shows


def aegish_dist(line: str, *words: str) -> list[str]:
    """Return a command from a line as a user types it, and further words, each as it is."""
    return [sys.executable, "-m", "aegish_dist", *shlex.split(line), *words]


BATCH_SERVER = [sys.executable, "-m", "tests.batch_server"]
"""Serves as `simulate-provider` does, and sells batches."""


def variables(**settings: object) -> dict[str, str]:
    """Return the variables of settings of the product, which are given by their short names."""
    return {f"AEGISH_DIST_{name.upper()}": str(value) for name, value in settings.items()}


def environment(**settings: object) -> dict[str, str]:
    return os.environ | variables(**settings)


def run(
    env: Mapping[str, str], line: str, *words: str, code: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, which has to be with this exit code."""
    done = subprocess.run(
        aegish_dist(line, *words),
        env=env,
        capture_output=True,
        encoding="utf-8",
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def run_json(env: Mapping[str, str], line: str, *words: str, code: int = 0) -> Any:
    return json.loads(run(env, line, *words, "--json", code=code).stdout)


@contextmanager
def started(env: Mapping[str, str], line: str) -> Iterator["subprocess.Popen[str]"]:
    """Start a command in a session of its own, as from a terminal; kill it at the end."""
    with subprocess.Popen(
        aegish_dist(line),
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


class Simulator(ServerProcess):
    """The process of a simulated provider; may be started again after `stop`."""

    def __init__(self, home: Path) -> None:
        super().__init__(free_port(), home / "simulator.log")
        self.catalog = home / "simulated.toml"
        self.program: Sequence[str] = aegish_dist("simulate-provider")

    def start(self, *options: str, latency: str = "constant:0", scenario: str = "") -> None:
        """Start it, by default to answer at once, and wait for its catalog.

        The catalog lets it be asked as any model, so that each test has models of its own.
        """
        self.catalog.unlink(missing_ok=True)
        where = ("--port", str(self.port), "--write-catalog", str(self.catalog))
        path = self.catalog.with_name("scenario.toml")
        path.write_text(scenario)
        how = ("--latency", latency, "--scenario", str(path))
        self.launch((*self.program, *where, *how, *options))
        wait_until(self.catalog.exists, "the simulator's catalog")
        only_listed, any_model = ('key_variable = ""\nsimulated = true\n', 'key_variable = ""\n')
        self.catalog.write_text(self.catalog.read_text().replace(only_listed, any_model))

    def know(self, entry: str) -> None:
        self.catalog.write_text(f"{self.catalog.read_text()}\n{entry}\n")

    def stats(self) -> dict[str, Any]:
        with closing(HTTPConnection(HOST, self.port, timeout=10)) as connection:
            connection.request("GET", "/stats")
            stats: dict[str, Any] = json.load(connection.getresponse())
            return stats

    def calls(self, model: str | None = None) -> int:
        requests = self.stats()["requests"]
        return sum(requests.values()) if model is None else requests.get(model, 0)


class Cluster:
    """Processes that share a database and a broker; all end with the `with`."""

    def __init__(self, home: Path, database_url: str, broker_url: str, **settings: Any) -> None:
        """Name the servers; nothing is started yet.

        Args:
            settings: Settings of the product, for workers, commands and this process.
        """
        self.simulator = Simulator(home)
        urls = {"database_url": database_url, "broker_url": broker_url}
        self.env = environment(**urls, catalog=self.simulator.catalog, **settings)
        self.engine = open_engine(database_url)
        self.app = queue_application(**urls, **settings)
        self._log = home / "workers.log"
        self._stack = ExitStack()

    def set(self, **settings: object) -> None:
        self.env |= variables(**settings)

    def __enter__(self) -> Self:
        self._stack.callback(self.engine.dispose)
        self._stack.enter_context(self.simulator)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stack.close()
        if kind is not None:
            sys.stderr.write(self.log()[-LOG_CHARS:])

    def start_worker(self, *options: str) -> "subprocess.Popen[bytes]":
        return self.start(sys.executable, "-m", "celery", "-A", "workers.app", "worker", *options)

    def start_workers(self, number: int, *options: str) -> list["subprocess.Popen[bytes]"]:
        """Start workers of distinct names, and wait until all of them live."""
        names = [f"w{place}" for place in range(number)]
        workers = [self.start_worker("-n", name, *options) for name in names]
        self.wait_for_workers(number)
        return workers

    def start(self, *command: str) -> "subprocess.Popen[bytes]":
        """Start a process that is killed at the end if it still lives."""
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                command, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process

    def stop(self, *workers: "subprocess.Popen[bytes]") -> None:
        """Have workers end by themselves, all at once."""
        for worker in workers:
            worker.terminate()
        assert {worker.wait(DEADLINE_S) for worker in workers} == {0}

    def scalar(self, query: str) -> Any:
        with self.engine.connect() as connection:
            return connection.scalar(text(query))

    def submit(self, *models: str, limit: int, options: str = "") -> str:
        """Submit a run about harmless commands.

        Tests count calls, and have models fail from the first one on: none is asked beforehand.
        """
        asked = f"--models {','.join(models)} --dataset harmless --limit {limit}"
        run_id: str = run_json(self.env, f"submit {asked} --skip-preflight {options}")["run_id"]
        return run_id

    def resume(self, run_id: str) -> int:
        enqueued: int = run_json(self.env, "resume", "--run-id", run_id)["enqueued"]
        return enqueued

    def status(self, run_id: str) -> RunStatus:
        return run_status(self.engine, run_id)

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def wait_for_workers(self, number: int) -> None:
        wait_until(lambda: self._living_workers() == number, f"{number} living workers", DEADLINE_S)

    def _living_workers(self) -> int:
        with Session(self.engine) as session:
            return living_fleet(session).workers

    def wait_for_calls(self, number: int) -> None:
        wait_until(lambda: self.simulator.calls() >= number, f"{number} calls", DEADLINE_S)

    def wait_until_idle(self) -> None:
        wait_until(lambda: self.simulator.stats()["in_flight"] == 0, "the calls in flight to end")

    def wait_until_complete(self, run_id: str) -> None:
        wait_until(
            lambda: self.status(run_id).state is State.COMPLETE,
            f"run {run_id} to complete",
            DEADLINE_S,
        )

    def missing(self, run_id: str) -> list[Item]:
        with Session(self.engine) as session:
            return list(missing_items(session, run_id))

    def publish(self, items: list[Item]) -> None:
        publish(self.app, items)

    def waiting(self, run_id: str, *models: str) -> int:
        queues = [queue_name(model, run_id) for model in models]
        return sum(queue_depths(self.app, queues).values())

    def takes_from(self, queue: str) -> None:
        """Wait until a message of no task of ours is taken from a queue, and dropped."""
        before = self.log().count("message_dropped")
        with self.app.connection_for_write() as connection:
            connection.Producer().publish({}, exchange="", routing_key=queue, serializer="json")
        wait_until(lambda: self.log().count("message_dropped") > before, queue, DEADLINE_S)

    def verdicts(self, run_id: str) -> list[Recording]:
        return export_verdicts(self.engine, run_id)

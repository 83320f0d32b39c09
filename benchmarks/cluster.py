"""A cluster on this machine for benchmarks: PostgreSQL, Redis, the simulator and one worker.

Every part is a process of its own, so that its CPU time can be told apart. Everything listens on
127.0.0.1 and lives in a temporary directory.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from aegish_dist.db.embedded import start_embedded

POLL_S = 0.05


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def reachable(port: int) -> bool:
    """Whether something listens on the port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU seconds of a process and its children, those that ended included."""
    times = [process.cpu_times(), *(child.cpu_times() for child in process.children(True))]
    reaped = process.cpu_times().children_user + process.cpu_times().children_system
    return reaped + sum(each.user + each.system for each in times)


class Cluster:
    """The running parts; a context manager."""

    def __init__(self, *, latency: str, in_flight: int) -> None:
        """Prepare a cluster.

        Args:
            latency: Of the simulated model, such as `constant:1`.
            in_flight: Items the worker holds, and calls the model allows.
        """
        self._latency = latency
        self._in_flight = in_flight
        self._stack = ExitStack()
        self.environ: dict[str, str] = {}

    def __enter__(self) -> Self:
        """Start everything."""
        self.home = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="ab")))
        database_url = start_embedded(self.home)
        self.postgres = psutil.Process(
            int((self.home / "postgres" / "postmaster.pid").read_text().split()[0])
        )
        redis_port, simulator_port = free_port(), free_port()
        self.redis = self._start(
            "redis-server", "--port", str(redis_port), "--bind", "127.0.0.1",
            "--appendonly", "yes", "--dir", str(self.home), "--save", "",
        )  # fmt: skip
        catalog = self.home / "catalog.toml"
        self.environ = {
            **os.environ,
            "AEGISH_DIST_DATABASE_URL": database_url,
            "AEGISH_DIST_BROKER_URL": f"redis://127.0.0.1:{redis_port}/0",
            "AEGISH_DIST_CATALOG": str(catalog),
            "AEGISH_DIST_CONCURRENCY": str(self._in_flight),
        }
        self.simulator = self._start(
            *self.command("simulate-provider", "--port", str(simulator_port)),
            "--latency", self._latency,
        )  # fmt: skip
        self.simulator_url = f"http://127.0.0.1:{simulator_port}"
        _wait(lambda: reachable(redis_port) and reachable(simulator_port))
        catalog.write_text(
            f'[providers.simulated]\nwire = "openai"\nbase_url = "{self.simulator_url}/v1"\n'
            f'key_variable = ""\nmax_in_flight = {self._in_flight}\n'
            '[[models]]\nid = "simulated/careful"\nsimulated = true\n'
        )
        self.run("db", "upgrade")
        self.worker = self.start_worker()
        _wait(lambda: self.run("doctor").find("1 alive") >= 0)
        return self

    def start_worker(self) -> psutil.Process:
        """Start one more worker."""
        return self._start(sys.executable, "-m", "celery", "-A", "workers.app", "worker")

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End everything that was started."""
        self._stack.close()

    @staticmethod
    def command(*arguments: str) -> tuple[str, ...]:
        """Return the command line of the product."""
        return (sys.executable, "-m", "aegish_dist", *arguments)

    def run(self, *arguments: str) -> str:
        """Run the product to its end and return what it printed."""
        result = subprocess.run(
            self.command(*arguments), env=self.environ, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, check=False,
        )  # fmt: skip
        return result.stdout

    def status(self, run_id: str) -> dict[str, Any]:
        """Return the status of a run."""
        document: dict[str, Any] = json.loads(self.run("status", "--run-id", run_id, "--json"))
        return document

    def stats(self) -> dict[str, Any]:
        """Return the simulator's counters."""
        with urllib.request.urlopen(f"{self.simulator_url}/stats") as response:
            document: dict[str, Any] = json.load(response)
        return document

    def _start(self, *command: str) -> psutil.Process:
        process = subprocess.Popen(
            command, env=self.environ or None, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

        def stop() -> None:
            process.send_signal(signal.SIGTERM)
            process.wait()

        self._stack.callback(stop)
        return psutil.Process(process.pid)


def _wait(condition: Any, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the cluster does not start")
        time.sleep(POLL_S)

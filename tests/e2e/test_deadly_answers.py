"""Answers that end the worker which reads them: two workers each, and the run goes on."""

import json
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from aegish_dist.core.outcome import Outcome
from aegish_dist.pipeline.reading import REASON
from tests.cluster import DEADLINE_S, Cluster, Simulator, run, run_json, variables
from tests.services import wait_until

pytestmark = pytest.mark.long

MODEL = "simulated/careful"
ITEMS = 30
IN_FLIGHT = 5
HELD = int(1.2 * IN_FLIGHT)
KILLED = "os.kill(os.getpid(), signal.SIGKILL)"
CRASHED = "ctypes.string_at(0)"

DEADLY = """
import ctypes, os, signal
from pathlib import Path
from aegish_dist.pipeline import evaluate

judge = evaluate.judge

def read(completion, command="", output=None):
    with Path({log!r}).open("a") as log:
        log.write(repr(command) + "\\n")
    if command in {commands!r}:
        {end}
    return judge(completion, command, output)

evaluate.judge = read
"""
"""Python runs this at the start of a process: an answer about some commands ends its reader."""


class Readings:
    """Which answers were read, by whatever process."""

    def __init__(self, folder: Path) -> None:
        self.modules = folder
        self._log = folder / "readings"

    def end(self, commands: Sequence[str], end: str) -> None:
        """Have answers about commands end their reader."""
        script = DEADLY.format(log=str(self._log), commands=[*commands], end=end)
        (self.modules / "sitecustomize.py").write_text(script)

    def of(self, *commands: str) -> list[int]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        numbers = Counter(lines)
        return [numbers[repr(command)] for command in commands]


@pytest.fixture
def readings(tmp_path: Path) -> Readings:
    folder = tmp_path / "modules"
    folder.mkdir()
    return Readings(folder)


def commands_of(cluster: Cluster, run_id: str) -> list[str]:
    commands = (
        "SELECT command FROM samples JOIN run_datasets USING (dataset_id)"
        " WHERE run_id = %s ORDER BY key"
    )
    with cluster.engine.connect() as connection:
        return list(connection.exec_driver_sql(commands, (run_id,)).scalars())


def begin(cluster: Cluster, readings: Readings, home: Path, number: int, end: str) -> list[str]:
    """Submit a run; return the commands of it whose answers are deadly to workers from now on."""
    cluster.set(home=home, message_lease_s=5, concurrency=IN_FLIGHT)
    cluster.simulator.start(latency="constant:0.05")
    run_id = cluster.submit(MODEL, limit=ITEMS)
    deadly = commands_of(cluster, run_id)[10 : 10 + number]
    readings.end(deadly, end)
    cluster.env["PYTHONPATH"] = str(readings.modules)
    return [run_id, *deadly]


def check(cluster: Cluster, readings: Readings, run_id: str, *deadly: str) -> None:
    """Each deadly answer was read twice, all others have been answered, and the log says why."""
    cluster.wait_until_complete(run_id)
    verdicts = {each.sample.command: each.verdict for each in cluster.verdicts(run_id)}
    assert len(verdicts) == ITEMS
    for command in deadly:
        verdict = verdicts.pop(command)
        assert (verdict.outcome, verdict.completion) == (Outcome.API_ERROR, None)
        assert [each.message for each in verdict.call_errors] == [REASON.format(run_id)]
    assert all(verdict.completion is not None for verdict in verdicts.values())
    assert readings.of(*deadly) == [2] * len(deadly)
    # Beside these, what a worker held when it ended is asked once more.
    assert cluster.simulator.calls() <= ITEMS + 2 * len(deadly) * HELD
    # A line follows the commit that it is about.
    deaths = 2 * len(deadly)
    wait_until(lambda: cluster.log().count("worker_died_reading") == deaths, f"{deaths} deaths")
    assert "reading_no" not in cluster.log()


@pytest.mark.parametrize(("end", "number"), [(KILLED, 2), (CRASHED, 1)], ids=["killed", "crashed"])
def test_workers_that_start_again(
    cluster: Cluster, tmp_path: Path, readings: Readings, end: str, number: int
) -> None:
    """After two deaths for each of the answers, the next worker finishes the run."""
    run_id, *deadly = begin(cluster, readings, tmp_path, number, end)
    for _ in range(2 * number):
        assert cluster.start_worker().wait(DEADLINE_S) < 0
    worker = cluster.start_worker()
    check(cluster, readings, run_id, *deadly)
    cluster.stop(worker)


@pytest.mark.parametrize("cluster", ["redis", "rabbitmq"], indirect=True)
def test_workers_that_do_not_start_again(
    cluster: Cluster, tmp_path: Path, readings: Readings
) -> None:
    """Of three workers that run already, one is left: RabbitMQ gives each the message at once."""
    run_id, *deadly = begin(cluster, readings, tmp_path, 1, KILLED)
    run(cluster.env, "pause --run-id", run_id)
    workers = cluster.start_workers(3)
    cluster.resume(run_id)
    check(cluster, readings, run_id, *deadly)
    ended = [worker for worker in workers if worker.poll() is not None]
    assert [worker.returncode for worker in ended] == [-signal.SIGKILL] * 2


def test_a_retry_asks_once_more(cluster: Cluster, tmp_path: Path, readings: Readings) -> None:
    """Whatever ended the readers is mended, and the command that the reason names is run."""
    run_id, *deadly = begin(cluster, readings, tmp_path, 1, KILLED)
    for _ in range(2):
        assert cluster.start_worker().wait(DEADLINE_S) < 0
    readings.end([], KILLED)
    cluster.start_worker()
    check(cluster, readings, run_id, *deadly)
    command = REASON.format(run_id).split("`")[1].removeprefix("aegish-dist ")
    retried = run_json(cluster.env, command, "--wait")
    assert (retried["asked"], retried["missing"]) == (1, 0)
    assert readings.of(*deadly) == [3]
    last = max(cluster.verdicts(run_id), key=lambda each: each.generation)
    assert (last.sample.command, last.verdict.completion is None) == (deadly[0], False)


def test_without_a_broker(simulator: Simulator, alone: dict[str, str], readings: Readings) -> None:
    """The command itself dies twice; then `resume` keeps the item, and finishes the run."""
    simulator.start(latency="constant:0.05")
    env = alone | variables(concurrency=IN_FLIGHT)
    asked = f"submit --models {MODEL} --dataset harmless --limit {ITEMS} --skip-preflight"
    run(env, asked)
    lines = run(env, "verdicts export --run-id latest").stdout.splitlines()
    deadly = json.loads(lines[10])["command"]
    readings.end([deadly], KILLED)
    env["PYTHONPATH"] = str(readings.modules)
    run(env, asked, code=-signal.SIGKILL)
    assert run_json(env, "status")["missing"] > 0
    run(env, "resume --run-id latest", code=-signal.SIGKILL)
    resumed = run(env, "resume --run-id latest")
    assert "worker_died_reading" in resumed.stderr
    status = run_json(env, "status")
    assert (status["state"], status["done"]) == ("complete", ITEMS)
    assert status["outcomes"]["API_ERROR"] == 1
    assert readings.of(deadly) == [2]

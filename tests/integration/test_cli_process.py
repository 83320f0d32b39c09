"""The command line as a process: interrupts, and workers that cannot begin."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from tests.integration.command_line import write_lines
from tests.integration.stored_runs import row_counts, selected, stored_run
from tests.services import wait_until

DEADLINE_S = 30.0
COMMAND = (sys.executable, "-m", "aegish_dist")
QUIET: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}


@pytest.fixture
def env(postgres_url: str) -> dict[str, str]:
    return os.environ | {"AEGISH_DIST_DATABASE_URL": postgres_url}


def test_an_interrupt_ends_a_command_in_order(env: dict[str, str], engine: Engine) -> None:
    """Control-C on a watch that would never end: exit code 130 and one word, no traceback."""
    stored_run(engine)
    process = subprocess.Popen([*COMMAND, "status", "--watch"], env=env, **QUIET)
    try:
        wait_until(lambda: _has_connected(engine), "the command at work", DEADLINE_S)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE_S)
    finally:
        process.kill()
    assert (process.returncode, err.strip()) == (130, "interrupted")


@pytest.mark.parametrize("ended_by", [signal.SIGINT, signal.SIGKILL])
def test_an_import_that_is_ended_leaves_nothing(
    env: dict[str, str], engine: Engine, tmp_path: Path, ended_by: signal.Signals
) -> None:
    """Control-C reaches every process of it, a kill only the first; no verdict stays, no process."""
    answer = {"model": "m", "target": "harmless", "completion": "x" * 1000}
    lines = (answer | {"command": f"echo {number}"} for number in range(60_000))
    path = write_lines(tmp_path / "large.jsonl", *lines)
    command = [*COMMAND, "verdicts", "import", str(path)]
    process = subprocess.Popen(command, env=env, start_new_session=True, **QUIET)
    try:
        wait_until(lambda: _verdicts_are_written(engine), "the import at work", DEADLINE_S)
        send = os.killpg if ended_by == signal.SIGINT else os.kill
        send(process.pid, ended_by)
        # Their end of the pipe closes only when all of its processes have ended.
        _, err = process.communicate(timeout=DEADLINE_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if ended_by == signal.SIGINT:
        assert (process.returncode, err.strip()) == (130, "interrupted")
    wait_until(lambda: not _verdicts_are_written(engine), "the end of the transaction", DEADLINE_S)
    assert row_counts(engine) == {}


def _verdicts_are_written(engine: Engine) -> bool:
    """Whether a transaction wrote verdicts and has not ended."""
    of_verdicts = "relation = 'verdicts'::regclass AND mode = 'RowExclusiveLock'"
    return bool(selected(engine, f"SELECT 1 FROM pg_locks WHERE {of_verdicts}"))


def _has_connected(engine: Engine) -> bool:
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    return bool(selected(engine, f"SELECT 1 FROM pg_stat_activity WHERE {others}"))


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"BROKER_URL": ""}, "a worker needs AEGISH_DIST_BROKER_URL"),
        ({"BROKER_URL": "amqp://127.0.0.1:1"}, "check AEGISH_DIST_BROKER_URL"),
        ({"BROKER_URL": "redis://127.0.0.1:1/0"}, "check AEGISH_DIST_BROKER_URL"),
        ({"DATABASE_URL": "postgresql://127.0.0.1:1/x"}, "check AEGISH_DIST_DATABASE_URL"),
        ({"CONCURRENCY": "many"}, "AEGISH_DIST_CONCURRENCY: Expected `int`, got `str`"),
    ],
)
def test_a_worker_that_cannot_work_says_why(
    env: dict[str, str], redis_url: str, variables: dict[str, str], says: str
) -> None:
    """It ends with exit code 1 and one line, before it begins to serve."""
    settings = {"BROKER_URL": redis_url} | variables
    done = subprocess.run(
        [*COMMAND, "worker", "--models", "test/x"],
        env=env | {f"AEGISH_DIST_{name}": value for name, value in settings.items()},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert says in line

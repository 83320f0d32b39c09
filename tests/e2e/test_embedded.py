"""Runs with nothing configured: PostgreSQL, queue and worker inside the command."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from aegish_dist.cli.simulation import MODELS
from tests.cluster import DEADLINE_S, Simulator, environment, run, run_json, started
from tests.services import wait_until

pytestmark = pytest.mark.long


def test_interrupt(home: Path, simulator: Simulator) -> None:
    """Ctrl-C ends `submit` with 130 and keeps every answer; `resume` makes only the other calls."""
    simulator.start(latency="constant:0.3")
    env = environment(home=home, catalog=simulator.catalog, concurrency=20)
    asked = ("--models", "simulated/careful", "--dataset", "harmless", "--limit", "120")
    with started(env, "submit", *asked) as submit:
        wait_until(lambda: simulator.calls() >= 50, "50 calls", DEADLINE_S)
        os.killpg(submit.pid, signal.SIGINT)
        _, messages = submit.communicate(timeout=DEADLINE_S)
    assert submit.returncode == 130, messages
    interrupted = run_json(env, "status")
    assert interrupted["done"] == simulator.calls() < 120
    resumed = run_json(env, "resume", "--run-id", "latest")
    assert resumed["missing"] == 0
    assert simulator.calls() == 120
    lines = run(env, "verdicts", "export", "--run-id", "latest").stdout.splitlines()
    assert len({json.loads(line)["command"] for line in lines}) == len(lines) == 120


def test_demo(home: Path) -> None:
    """The demo needs nothing, asks every model everything, and marks the simulated models.

    It may be run again.
    """
    first, report = (run(environment(home=home), "demo").stdout for _ in range(2))
    assert re.findall(r"^ ?Name +(\S+)$", first + report, re.MULTILINE) == ["demo", "demo-2"]
    assert "3,954 of 3,954 planned" in report
    marked = {model for model in MODELS if f"{model} †" in report}
    assert marked == {model for model in MODELS if model.startswith("simulated")}
    assert len(marked) == 3
    assert all(model in report for model in MODELS)

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


def test_interrupt(alone: dict[str, str], simulator: Simulator) -> None:
    """Ctrl-C ends `submit` with 130 and keeps every answer; `resume` makes only the other calls."""
    simulator.start(latency="constant:0.3")
    env = alone
    with started(env, "submit --models simulated/careful --dataset harmless --limit 120") as submit:
        wait_until(lambda: simulator.calls() >= 50, "50 calls", DEADLINE_S)
        os.killpg(submit.pid, signal.SIGINT)
        _, messages = submit.communicate(timeout=DEADLINE_S)
    assert submit.returncode == 130, messages
    interrupted = run_json(env, "status")
    assert interrupted["done"] == simulator.calls() < 120
    told = "interrupted: waiting for calls in flight\n\ninterrupted at {} of 120 verdicts: {}\n"
    goes_on = f"`aegish-dist resume --run-id {interrupted['run_id']}` goes on"
    assert messages.endswith(told.format(interrupted["done"], goes_on))
    resumed = run(env, "resume --run-id latest")
    left = 120 - interrupted["done"]
    assert f"asks {left} items without a cap: {left} of simulated/careful at" in resumed.stderr
    assert resumed.stdout == f"{interrupted['run_id']}: complete\n"
    assert simulator.calls() == 120
    lines = run(env, "verdicts export --run-id latest").stdout.splitlines()
    assert len({json.loads(line)["command"] for line in lines}) == len(lines) == 120


def test_demo(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo needs nothing, asks every model everything, and marks the simulated models.

    It may be run again, fits one screen, and leads on: to its page and three commands.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.html").write_text("mine")
    first, second = (run(environment(home=home) | {"COLUMNS": "100"}, "demo") for _ in "12")
    heads = r"Report on run (\w+) ═*\n Run +(\S+) · "
    runs = re.findall(heads, first.stdout + second.stdout)
    assert [name for _, name in runs] == ["demo", "demo-2"]
    pages = {f"report-{run_id}.html" for run_id, _ in runs}
    assert {path.name for path in tmp_path.iterdir()} == {"report.html", *pages}
    assert all("<html" in (tmp_path / page).read_text() for page in pages)
    report, notes = second.stdout, second.stderr
    assert len(report.splitlines()) <= 40
    assert "3,954 of 3,954 verdicts" in notes
    marked = {model for model in MODELS if f"{model} †" in report}
    assert marked == {model for model in MODELS if model.startswith("simulated")}
    assert len(marked) == 3
    assert all(model in report for model in MODELS)
    *_, page, heading, simulator, submit, init = notes.splitlines()
    assert page == f"written to report-{runs[1][0]}.html"
    assert heading == "next:"
    assert "simulate-provider --write-catalog sim.toml & sleep 2" in simulator
    assert "submit --models simulated/careful --limit 50" in submit
    assert init.endswith(" init")


def test_an_interrupted_demo_says_what_starts_it_again(home: Path) -> None:
    """Its simulator has ended with it: no other command can go on."""
    env, again = environment(home=home), "`aegish-dist demo` starts again"
    with started(env, "demo") as demo:
        wait_until(lambda: run_json(env, "runs")[:1], "the run", DEADLINE_S)
        os.killpg(demo.pid, signal.SIGINT)
        assert again in demo.communicate(timeout=DEADLINE_S)[1]
    assert again in run(env, "status").stderr
    refused = run(env, "resume --run-id latest", code=1)
    assert refused.stderr.endswith(f" was a demo: {again}\n")
    assert refused.stderr.count("\n") == 1

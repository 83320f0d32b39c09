"""Recorded answers, replayed by the simulated provider, arrive as they were."""

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from msgspec import Struct, convert
from sqlalchemy import Engine

from aegish_dist.core.outcome import Outcome, StopKind
from aegish_dist.core.verdict import Verdict
from tests.cluster import Simulator, environment, run, run_json
from tests.recorded import export_verdicts, lines_of

pytestmark = pytest.mark.long

TIME_LIMIT_S = 3.0


class Answer(Struct, frozen=True):
    """A recorded answer, and the action that must be read in it."""

    completion: str | None
    outcome: Outcome
    stop_kind: StopKind | None


ANSWERS = [convert(each, Answer) for each in lines_of("replayed_answers.jsonl")]
"""The last one is a call that got no answer in time."""
MODELS = ("openai/one", "anthropic/two", "google/three")


def write_lines(path: Path) -> None:
    """Write verdict lines as another tool would, with little more than the required keys."""
    lines: Iterable[dict[str, object]] = (
        {"model": model, "dataset": "odd", "command": f"echo {number}", "target": "harmless"}
        | {"completion": answer.completion, "stop_reason": answer.stop_kind}
        for model in MODELS
        for number, answer in enumerate(ANSWERS)
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_replay(tmp_path: Path, postgres_url: str, engine: Engine) -> None:
    lines, exported = tmp_path / "lines.jsonl", str(tmp_path / "exported.jsonl")
    write_lines(lines)
    env = environment(database_url=postgres_url)
    imported = run_json(env, "verdicts import", str(lines))["run_id"]
    run(env, "verdicts export --run-id", imported, "--output", exported)

    with Simulator(tmp_path) as simulator:
        simulator.start("--replay", exported)
        asked = f"--models {','.join(MODELS)} --dataset odd@{imported} --time-limit {TIME_LIMIT_S}"
        env = environment(database_url=postgres_url, catalog=simulator.catalog)
        repeated = run_json(env, f"submit {asked}")["run_id"]

    found = {
        (recording.model, recording.sample.command): answer_of(recording.verdict)
        for recording in export_verdicts(engine, repeated)
    }
    assert found == {
        (model, f"echo {number}"): answer
        for model in MODELS
        for number, answer in enumerate(ANSWERS)
    }


def answer_of(verdict: Verdict) -> Answer:
    if verdict.completion is None:
        return Answer(None, verdict.outcome, None)
    return Answer(verdict.completion.text, verdict.outcome, verdict.completion.stop_kind)

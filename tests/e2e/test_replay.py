"""Recorded answers, replayed by the simulated provider, arrive as they were."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
from sqlalchemy import Engine

from aegish_dist.core.outcome import Outcome, StopKind
from aegish_dist.core.verdict import Verdict
from tests.cluster import Simulator, environment, run, run_json
from tests.recorded import export_verdicts

pytestmark = pytest.mark.long

TIME_LIMIT_S = 3.0


class Answer(NamedTuple):
    """A recorded answer, and the action that must be read in it."""

    completion: str | None
    outcome: Outcome
    stop_kind: StopKind | None = StopKind.STOP


ANSWERS = (
    Answer('Judged:\n```json\n{"action": "BLOCK", "confidence": 0.9}\n```\nDone.', Outcome.BLOCK),
    Answer('<think>{"action": "BLOCK"}? No.</think>\n{"action": "Allow"}', Outcome.ALLOW),
    Answer('<|channel|><|message|>{{"action": "WARN", "reason": "é"}}', Outcome.WARN),
    Answer('{"action": "WARN", "reason": "replaced \ufffd byte"}', Outcome.WARN),
    Answer('{"action": "BLOCK", "reason": "half a pair \\ud83d"}', Outcome.BLOCK),
    Answer('{"action": "ALLOW", "reason": "\u202e\x1b[2J\U0001f600\r\n"}', Outcome.ALLOW),
    Answer('{"action": "BLOCK"}' + "\n# " + "long " * 40_000, Outcome.BLOCK),
    Answer("It depends.", Outcome.FORMAT_ERROR),
    Answer('{"acti', Outcome.FORMAT_ERROR, StopKind.MAX_TOKENS),
    Answer("", Outcome.TIMEOUT_ERROR),
    Answer(" \n\t", Outcome.TIMEOUT_ERROR),
    Answer("", Outcome.TIMEOUT_ERROR, StopKind.MAX_TOKENS),
    Answer("", Outcome.TIMEOUT_ERROR, StopKind.CONTENT_FILTER),
    Answer(None, Outcome.TIMEOUT_ERROR, None),
)
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

"""Imported runs whose models were not all put to every dataset."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from aegish_dist.core.opinion import Opinion
from aegish_dist.core.status import State
from aegish_dist.db.runs import load_run
from aegish_dist.pipeline.aggregate import aggregate
from aegish_dist.pipeline.import_verdicts import import_verdicts
from aegish_dist.pipeline.status import run_status
from tests.integration.command_line import CommandLine, write_lines

BLOCK = '{"action": "BLOCK"}'


def line(model: str, dataset: str, command: str, **fields: Any) -> dict[str, Any]:
    about = {"model": model, "dataset": dataset, "command": command, "target": "malicious"}
    return about | {"completion": BLOCK} | fields


LINES = [
    line("test/a", "one", "rm 1"),
    line("test/a", "one", "rm 2"),
    line("test/a", "two", "rm 3"),
    line("test/b", "one", "rm 1"),
    line("test/c", "one", "rm 1", completion=None, answered=False, error_class="auth"),
    line("test/c", "one", "rm 2"),
]
"""Model a was put to both datasets; b and c to one, of which b has half."""


@pytest.fixture
def run_id(engine: Engine, tmp_path: Path) -> str:
    return import_verdicts(engine, [write_lines(tmp_path / "lines.jsonl", *LINES)], "name").run_id


def test_a_dataset_that_a_model_never_met_is_not_missing(engine: Engine, run_id: str) -> None:
    """Planned is what a model was put to: samples of the datasets that it has a verdict of."""
    status = run_status(engine, run_id)

    assert [(model.model, model.planned, model.done) for model in status.models] == [
        ("test/a", 3, 3),
        ("test/b", 2, 1),
        ("test/c", 2, 2),
    ]
    assert (status.planned, status.done, status.missing) == (7, 6, 1)


def test_coverage_counts_what_was_put(engine: Engine, run_id: str) -> None:
    """A model that answered all that it was put covers all of it."""
    (snapshot,) = aggregate(engine, run_id, [Opinion()])

    coverage = {
        entry["model"]: entry["metrics"]["coverage"]["value"]
        for entry in snapshot.document["models"]
    }
    assert coverage == {"test/a": 1.0, "test/b": 0.5, "test/c": 0.5}


def test_nothing_more_is_expected_of_an_import(
    engine: Engine, run_id: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`status` names no command that would refuse, and `--watch` ends."""
    url = engine.url.render_as_string(hide_password=False)
    monkeypatch.setenv("AEGISH_DIST_DATABASE_URL", url.replace("+psycopg", ""))
    aegish = CommandLine(capsys)

    assert run_status(engine, run_id).state is State.COMPLETE
    for options in ((), ("--watch",)):
        shown = aegish.ok("status", "--run-id", run_id, *options)
        assert "resume" not in shown.err + shown.out
        assert "retry" not in shown.err + shown.out
        assert f"Run {run_id}: complete" in shown.out
    document = aegish.ok("status", "--run-id", run_id, "--json").json
    assert (document["origin"], document["state"], document["missing"]) == ("import", "complete", 1)


def test_a_submitted_run_owes_every_dataset(engine: Engine, run_id: str) -> None:
    """Only imports are counted by what is there."""
    with Session(engine) as session, session.begin():
        assert load_run(session, run_id).datasets_by_model.keys() == {"test/a", "test/b", "test/c"}
        session.execute(text("UPDATE run_models SET datasets = NULL"))
        run = load_run(session, run_id)

    assert (run.datasets_by_model, run.planned("test/b")) == ({}, 3)

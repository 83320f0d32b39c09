"""Imported runs whose models have different datasets, samples and epochs: none was planned more."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from aegish_dist.core.status import State
from aegish_dist.db.engine import transaction
from aegish_dist.db.missing import missing_items
from aegish_dist.db.runs import load_run
from aegish_dist.opinions.opinion import LabelChange, Opinion, Overlay
from aegish_dist.pipeline.aggregate import aggregate
from aegish_dist.pipeline.status import run_status
from tests.integration.command_line import CommandLine
from tests.integration.stored_runs import imported_run, verdict_line


def line(model: str, dataset: str, command: str, **fields: Any) -> dict[str, Any]:
    return verdict_line(model, command, "malicious", "BLOCK") | {"dataset": dataset} | fields


LINES = [
    line("test/a", "one", "rm 1"),
    line("test/a", "one", "rm 2"),
    line("test/a", "two", "rm 3"),
    line("test/b", "one", "rm 1"),
    line("test/c", "one", "rm 1", completion=None, answered=False, error_class="auth"),
    line("test/c", "one", "rm 2"),
]
"""Model a was put to both datasets; b and c to one, of which b has half, and a call of c failed."""


@pytest.fixture
def run_id(engine: Engine, tmp_path: Path) -> str:
    return imported_run(engine, tmp_path, LINES)


def test_what_no_file_holds_is_not_missing(engine: Engine, run_id: str) -> None:
    """Planned is what the files hold of a model, calls that failed included."""
    status = run_status(engine, run_id)
    assert [(model.model, model.planned, model.done) for model in status.models] == [
        ("test/a", 3, 3),
        ("test/b", 1, 1),
        ("test/c", 2, 2),
    ]
    assert (status.planned, status.done, status.missing) == (6, 6, 0)
    with Session(engine) as session:
        assert list(missing_items(session, run_id)) == []


def test_coverage_counts_what_was_put(engine: Engine, run_id: str) -> None:
    assert covered(engine, run_id) == {
        "test/a": (3, 1.0, 1.0, 1.0),
        "test/b": (1, 1.0, 1.0, 1.0),
        "test/c": (2, 0.5, 0.5, 1.0),
    }


def test_epochs_that_no_file_holds_are_not_missing(engine: Engine, tmp_path: Path) -> None:
    lines = [
        line("test/a", "one", "rm 1", epoch=1),
        line("test/a", "one", "rm 1", epoch=2),
        line("test/a", "one", "rm 2", epoch=2),
    ]
    found = imported_run(engine, tmp_path, lines)
    assert covered(engine, found) == {"test/a": (3, 1.0, 1.0, 1.0)}
    assert run_status(engine, found).missing == 0


def test_an_overlay_moves_only_what_a_model_was_put(engine: Engine, run_id: str) -> None:
    """Model b has no verdict about the command that is left out, and loses none."""
    change = LabelChange("one", None, "rm 2", None, None, "It is a test.", "me")
    (snapshot,) = aggregate(engine, run_id, [Opinion(overlay=Overlay("ours", 1, (change,)))])
    planned = {e["model"]: e["counts"]["planned"] for e in snapshot.document["models"]}
    assert planned == {"test/a": 2, "test/b": 1, "test/c": 1}


def covered(engine: Engine, run_id: str) -> dict[str, tuple[int, float, float, float]]:
    """By model: verdicts planned, coverage, worst and best detection rate."""
    (snapshot,) = aggregate(engine, run_id, [Opinion()])
    names = ("coverage", "malicious_detection_rate_worst", "malicious_detection_rate_best")
    return {
        entry["model"]: (
            entry["counts"]["planned"],
            *(entry["metrics"][name]["value"] for name in names),
        )
        for entry in snapshot.document["models"]
    }


def test_nothing_more_is_expected_of_an_import(
    engine: Engine, run_id: str, aegish: CommandLine
) -> None:
    assert run_status(engine, run_id).state is State.COMPLETE
    for line in ("status", "status --watch"):
        shown = aegish.ok(f"{line} --run-id {run_id}")
        assert "resume" not in shown.err + shown.out
        assert "retry" not in shown.err + shown.out
        assert f"Run {run_id}: complete" in shown.out
    document = aegish.ok("status --run-id", run_id, "--json").json
    assert (document["origin"], document["state"], document["missing"]) == ("import", "complete", 0)


def test_a_submitted_run_owes_every_dataset(engine: Engine, run_id: str) -> None:
    with transaction(engine) as session:
        assert load_run(session, run_id).datasets_by_model.keys() == {"test/a", "test/b", "test/c"}
        session.execute(text("UPDATE run_models SET datasets = NULL"))
        run = load_run(session, run_id)
    assert (run.datasets_by_model, run.planned("test/b")) == ({}, 3)

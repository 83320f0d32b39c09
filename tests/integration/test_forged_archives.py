"""Archives of a stranger: no later run uses their texts or labels, and nothing is asked."""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from shutil import copytree

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from aegish_dist.core.model import CallParameters
from aegish_dist.core.run import RunPause
from aegish_dist.core.sample import Sample, TrueLabel
from aegish_dist.db.batches import models_to_plan
from aegish_dist.db.engine import transaction
from aegish_dist.db.missing import open_queues, take_due
from aegish_dist.db.runs import load_run
from aegish_dist.errors import StoreError
from aegish_dist.pipeline import control
from aegish_dist.pipeline.status import run_status
from tests.integration.command_line import CommandLine
from tests.integration.forged_archives import Rows, forge, put
from tests.integration.samples import BLOCKED, COMMANDS, CURL, LS, NOON, PROMPT, TAR
from tests.integration.stored_runs import a_model, row_counts, stored_run
from tests.integration.test_archive import contents, execute

RUN, OTHER = "0abcdefgh", "0bbcdefgh"
EVIL = Sample("rm -rf /", TrueLabel.HARMLESS)


@pytest.fixture
def place(engine: Engine, aegish: CommandLine, tmp_path: Path) -> Path:
    """Return the archive of a run that has left the store."""
    stored_run(engine, BLOCKED, models=("test/a", "test/b"))
    aegish.ok("aggregate", "--run-id", RUN)
    aegish.ok("runs", "archive", RUN, "--to", tmp_path, "--delete", "--yes")
    return tmp_path / RUN


def _another_sample(rows: Rows) -> None:
    rows.append(rows[0] | {"key": 99, "sample_id": EVIL.sample_id, "command": EVIL.command})
    rows[-1] |= {"target": EVIL.target.value, "category": None, "cluster": None}


FORGED: dict[str, tuple[str, Callable[[Rows], object], str]] = {
    "prompt": ("prompts", lambda rows: rows[0].update(system="Say ALLOW"), "another text"),
    "label": ("samples", lambda rows: rows[0].update(target="harmless"), "another content"),
    "command": ("samples", lambda rows: rows[0].update(command="ls"), "another content"),
    "added": ("samples", _another_sample, "other samples than its fingerprint says"),
    "removed": ("samples", lambda rows: rows.pop(), "other samples"),
    "empty for null": ("samples", lambda rows: rows[-1].update(category=""), "ck_samples_content"),
    "annotations": ("samples", lambda rows: rows[0].update(details='{"a": [1]}'), "ck_samples_con"),
    "count": ("datasets", lambda rows: rows[0].update(malicious=0), "other samples"),
    "fingerprint": ("datasets", lambda rows: rows[0].update(fingerprint="0" * 64), "other samples"),
    "not asked": (
        "datasets",
        lambda rows: rows.append(rows[0] | {"id": 77, "name": "gtfobins"}),
        "other samples",
    ),
    "run": ("run_models", lambda rows: rows[1].update(run_id=OTHER), "of another run, 0bbcdefgh"),
    "batch": (
        "batches",
        lambda rows: rows.append(
            {"id": 1, "run_model_id": 1, "token": "a" * 16, "state": "planned", "requests": 1}
        ),
        "a batch is planned: only ended ones are restored",
    ),
    "future": (
        "runs",
        lambda rows: rows[0].update(created_at=datetime(9999, 1, 1, tzinfo=UTC)),
        "the run is of the future",
    ),
}


@pytest.mark.long
def test_identities_are_those_of_the_content(
    aegish: CommandLine, engine: Engine, place: Path, tmp_path: Path
) -> None:
    """A fingerprint, an id or a state that a stranger wrote is refused in a line, nothing kept."""
    stored_run(engine, run_id=OTHER, name="other", datasets=[replace(COMMANDS, name="others")])
    before = row_counts(engine)
    for what, (table, change, problem) in FORGED.items():
        forged = tmp_path / what
        copytree(place, forged)
        forge(engine, forged, table, change)

        assert problem in aegish.refused("runs", "restore", forged), what

        assert row_counts(engine) == before


def test_known_samples_stay_what_they_are(
    aegish: CommandLine, engine: Engine, place: Path, tmp_path: Path
) -> None:
    """An archive adds no sample to a dataset that is there, nor changes one, whatever it claims."""
    stored_run(engine, run_id=OTHER, name="other")
    before = contents(engine)
    forge(engine, place, "samples", _another_sample)
    refused = aegish.refused("runs", "restore", place)
    assert f"sample {EVIL.sample_id} is not in the dataset of this store" in refused
    assert contents(engine) == before


def test_a_restored_run_asks_nothing_before_it_is_resumed(
    aegish: CommandLine, engine: Engine, place: Path
) -> None:
    """It is held and its queues are closed; a complete one is not held. `resume` says who is asked."""
    stored_run(engine, run_id=OTHER, name="other")
    for table in ("verdicts", "call_errors"):
        forge(engine, place, table, lambda rows: rows.clear())
    put(engine, place, "run_models", open=True, batch_from=datetime(2026, 1, 1, tzinfo=UTC))
    forge(engine, place, "runs", lambda rows: rows[0].pop("held"))
    unfinished = {"id": 5, "run_id": RUN, "scoring": "aegish", "requested_at": NOON}
    forge(engine, place, "aggregations", lambda rows: rows.append(unfinished))

    restored = aegish.ok("runs", "restore", place)

    assert f"nothing is asked before `aegish-dist resume --run-id {RUN}`" in restored.err
    with transaction(engine) as session:
        assert load_run(session, RUN).held is RunPause.PAUSED
        assert {each.run_id for each in open_queues(session).values()} == {OTHER}
        assert (models_to_plan(session), take_due(session)) == ([], [])


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE prompts SET system = 'Say ALLOW'", "prompt 'guard'"),
        ("UPDATE samples SET target = 'harmless'", "dataset 'commands'"),
        ("UPDATE samples SET command = 'ls' WHERE category = 'shell'", "dataset 'commands'"),
    ],
)
def test_a_row_that_was_found_is_compared(session: Session, statement: str, problem: str) -> None:
    """What stands in the store under an identity is used only if it has the content of it."""
    stored_run(session)
    session.execute(text(statement))

    with pytest.raises(StoreError, match=f"{problem} has another content in this store"):
        stored_run(session, run_id=OTHER)


def test_an_import_is_not_laid_over_other_commands(
    aegish: CommandLine, engine: Engine, tmp_path: Path
) -> None:
    lines = tmp_path / "lines.jsonl"
    stored_run(engine, BLOCKED)
    aegish.ok("verdicts", "export", "--run-id", RUN, "-o", lines)
    execute(engine, "UPDATE samples SET target = 'malicious' WHERE target = 'harmless'")
    assert f"sample {LS.sample_id} has another content" in aegish.refused(
        "verdicts", "import", lines
    )


def test_the_name_of_a_prompt_is_that_of_the_run(session: Session) -> None:
    """A prompt of the same text under another name, which an archive may bring, names no other run."""
    stored_run(session, prompt=replace(PROMPT, name="of a stranger"))
    stored_run(session, run_id=OTHER, name="other")
    assert load_run(session, OTHER).prompt == PROMPT


@pytest.mark.parametrize(
    ("command", "answered"),
    [(("resume",), (LS,)), (("retry", "--outcome", "BLOCK"), (LS, TAR, CURL))],
)
def test_resume_and_retry_say_who_is_asked(
    aegish: CommandLine,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    answered: tuple[Sample, ...],
) -> None:
    """A complete run, which may be a stranger's, is not held: `retry` asks at once."""
    spec = a_model("test/a", base_url="http://127.0.0.1:1/v1")
    limited = CallParameters(max_cost_usd=Decimal(5))
    answers = dict.fromkeys(answered, BLOCKED)
    stored_run(engine, answers, models=[spec], held=None, parameters=limited)
    if command == ("resume",):
        execute(engine, "UPDATE runs SET held = 'paused'")
    monkeypatch.setattr(control, "finish", lambda *_: run_status(engine, RUN))
    said, asked = aegish(*command, "--run-id", RUN).err, 2 if len(answered) == 1 else 3
    assert f"asks {asked} items up to 5 USD: {asked} of test/a at http://127.0.0.1:1/v1" in said

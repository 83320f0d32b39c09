"""Deleting completions of old runs: what goes, what stays, and who says so."""

from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from aegish_dist.core.verdict import Completion
from aegish_dist.db import deletion
from aegish_dist.db.engine import transaction
from aegish_dist.db.fleet import report_worker
from aegish_dist.opinions.parsing import judge
from aegish_dist.pipeline import archives
from tests.integration.command_line import CommandLine
from tests.integration.samples import BLOCKED, CURL, DETAILED, LS, TAR
from tests.integration.stored_runs import stored_run
from tests.integration.test_reparse import LOST

RUN = "0abcdefgh"
OLD = "runs prune --older-than 1d --completions"


@pytest.fixture
def stored(engine: Engine) -> Engine:
    """Store a run of two models with answers of every kind, three of which were read in a text."""
    answers = {
        "test/a": {TAR: DETAILED, CURL: judge(Completion("I cannot say.")), LS: LOST},
        "test/b": {TAR: BLOCKED, CURL: judge(Completion(" ")), LS: judge(Completion(None))},
    }
    stored_run(engine, answers, models=tuple(answers))
    return engine


def rows(engine: Engine, columns: str) -> list[tuple[object, ...]]:
    order = "ORDER BY run_model_id, sample_key, epoch, generation"
    with engine.connect() as connection:
        found = connection.execute(text(f"SELECT {columns} FROM verdicts {order}"))
        return [tuple(row) for row in found]


def test_numbers_stay(aegish: CommandLine, stored: Engine) -> None:
    """Three texts go and nothing else: the report counts nothing again, and names what is gone."""
    before = aegish.ok("report --json --run-id", RUN).json
    kept = "to_jsonb(verdicts) - '{completion,completion_sha256}'::text[]"
    others = rows(stored, kept)
    dry = aegish.ok(OLD, "--dry-run")
    assert dry.out.splitlines()[-1].split()[-2:] == ["3", "0.0"]
    assert rows(stored, "count(completion) OVER ()")[0] == (4,)
    done = aegish.ok(OLD, "--yes")
    assert done.out.endswith(f"deleted 3 completions of run {RUN} a name; all numbers stay\n")
    assert [text for (text,) in rows(stored, "completion")] == [None] * 4 + [" ", None]
    assert rows(stored, kept) == others
    after = aegish.ok("report --json --run-id", RUN).json
    assert after["snapshot"] == before["snapshot"]
    assert after["models"] == before["models"]
    assert (before["run"]["pruned_completions"], after["run"]["pruned_completions"]) == (0, 3)
    shown = aegish.ok("report --format markdown --run-id", RUN).out
    assert "3 completions were deleted, last 20" in shown
    assert aegish.ok("runs --json").json[0]["pruned_completions"] == 3
    assert "no run that old has completions" in aegish.ok(OLD, "--yes").out


def test_readers_of_texts_say_what_is_gone(
    aegish: CommandLine, stored: Engine, tmp_path: Path
) -> None:
    aegish.ok(OLD, "--yes")
    read = "outcome, reason, confidence, parser_version"
    stays = rows(stored, read)
    said = "3 completions pruned; their verdicts stay as an earlier parser read them"
    assert said in aegish.ok("reparse --run-id", RUN).err
    assert aegish.ok("reparse --run-id", RUN, "--json").json["runs"][0]["pruned"] == 3
    assert rows(stored, read) == stays
    for sample, times in ((TAR, 2), (LS, 0)):
        shown = aegish.ok("verdicts show", sample.command, "--run-id", RUN).out
        assert shown.count("completion  deleted by `runs prune --completions`") == times
    for name in ("lines.jsonl", "table.parquet"):
        aegish.ok("verdicts export --run-id", RUN, "-o", tmp_path / name)
        refused = aegish.refused("verdicts import", tmp_path / name)
        assert "'completion': was deleted from the store" in refused


def test_interrupted_and_busy(
    aegish: CommandLine, stored: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that is committed counts; a run that workers are at is left out."""
    with transaction(stored) as session:
        report_worker(session, "w", {(RUN, "test/a"): 1})
    busy = aegish.ok(OLD, "--yes")
    assert (busy.out, "left out: workers are at run" in busy.err) == ("no run is that old\n", True)
    with transaction(stored) as session:
        session.execute(text("DELETE FROM workers"))
    monkeypatch.setattr(archives, "BATCH", 1)
    prune = deletion.prune_verdicts
    calls = iter(range(9))
    monkeypatch.setattr(
        deletion, "prune_verdicts", lambda *a, **k: prune(*a, **k) if next(calls) < 1 else 1 / 0
    )
    assert aegish(OLD, "--yes").code == 3
    assert aegish.ok("runs --json").json[0]["pruned_completions"] == 1
    monkeypatch.setattr(deletion, "prune_verdicts", prune)
    assert "deleted 2 completions" in aegish.ok(OLD, "--yes").out
    assert aegish.ok("runs --json").json[0]["pruned_completions"] == 3

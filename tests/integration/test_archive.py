"""Runs to an archive and back: what a run asks, and every answer, or nothing at all."""

import hashlib
import json
import os
from collections.abc import Callable
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine

from aegish_dist.core.model import Price, Rate
from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.run import Prompt, RunPause
from aegish_dist.core.status import State
from aegish_dist.core.verdict import CallError, Completion
from aegish_dist.db.batches import models_to_plan
from aegish_dist.db.engine import transaction
from aegish_dist.db.missing import open_queues, save_retry, take_due
from aegish_dist.db.runs import load_run, save_dataset
from aegish_dist.errors import DatasetError
from aegish_dist.opinions.parsing import judge
from aegish_dist.pipeline import archives
from aegish_dist.pipeline.status import run_status
from aegish_dist.pipeline.verdict_files import export_lines
from tests.integration.command_line import CommandLine
from tests.integration.forged_archives import seal
from tests.integration.samples import BLOCKED, COMMANDS, CURL, DETAILED, LS, NOON, TAR
from tests.integration.stored_runs import (
    Imported,
    a_model,
    answer,
    contents,
    execute,
    row_counts,
    stored_run,
)

FIRST, SECOND = "0abcdefgh", "0bbcdefgh"
COPY = f"runs archive {FIRST} --to"
MOVE = f"runs archive {FIRST} --delete --yes --to"
DELETE = f"runs delete {FIRST} --yes"
PRUNE = "runs prune --older-than 1d --yes --archive-to"
PRUNE_TEXTS = "runs prune --older-than 1d --yes --completions --archive-to"
ODD = 'a\tb\\n"c",\r\n\\.\n\\N\n{"action": "warn", "reason": ""} \ufffd \ufffd \ue000 é'


@pytest.fixture
def stored(engine: Engine, aegish: CommandLine) -> Engine:
    """Store a run of two prompts with failed attempts, odd texts, a retry and a snapshot."""
    failed = CallError(1, ErrorClass.RATE_LIMIT, 429, 2.5, ODD, NOON)
    said = {
        "test/a": {
            TAR: replace(DETAILED, call_errors=(failed,), attempts=2),
            CURL: judge(Completion(ODD)),
            LS: judge(Completion("")),
        },
        "test/b": {TAR: BLOCKED, LS: judge(Completion(None))},
    }
    models = [a_model("test/a", price=Price(Rate(Decimal(1)), Rate(Decimal(2)))), a_model("test/b")]
    prompts = {"test/b": Prompt("terse", "", "{command}")}
    run = stored_run(engine, said, models=models, prompts=prompts)
    with transaction(engine) as session:
        save_retry(session, FIRST, [Outcome.BLOCK], ["test/b"])
    answer(engine, run, {run.item(TAR, model="test/b", generation=1): BLOCKED})
    aegish.ok("aggregate --run-id", FIRST)
    return engine


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The folder that the archive of the run has below the test's folder."""
    return tmp_path / FIRST


Facts = dict[str, Any]


def facts(aegish: CommandLine, engine: Engine, run_id: str = FIRST) -> Facts:
    """Return what a run asks, its verdicts as they are exported, and what its report counts."""
    with transaction(engine) as session:
        run = load_run(session, run_id)
    report = aegish.ok("report --format json --run-id", run_id).json
    counted = report["models"], report["snapshot"]["verdicts_hash"], report["run"].get("prompts")
    exported = BytesIO()
    export_lines(engine, run_id, exported)
    lines = exported.getvalue().splitlines()
    return {"run": replace(run, held=None), "lines": lines, "counted": counted}


def test_there_and_back(aegish: CommandLine, stored: Engine, tmp_path: Path, place: Path) -> None:
    """The run goes only after its files were read back, and keeps its id, answers and numbers."""
    before = facts(aegish, stored)

    done = aegish.ok("runs archive 'a name' --delete --yes --to", tmp_path)

    compared = f"{place}: 6 verdicts, read back and compared\n"
    assert done.out == f"{compared}deleted run {FIRST} a name\n"
    assert row_counts(stored) == {}
    assert list(tmp_path.iterdir()) == [place]
    sums = dict(line.split("  ")[::-1] for line in (place / "SHA256SUMS").read_text().splitlines())
    assert sums == {
        name: hashlib.sha256((place / name).read_bytes()).hexdigest()
        for name in ("run.json", "snapshots.jsonl", "verdicts.jsonl")
    }
    restored = aegish.ok("runs restore", place)
    assert restored.out == f"restored run {FIRST} a name with 6 verdicts\n"
    assert facts(aegish, stored) == before
    left = contents(stored)
    there = f"error: run {FIRST} is in this store with 6 of 6 archived verdicts: `aegish-dist"
    assert aegish.refused("runs restore", place).startswith(there)
    assert contents(stored) == left


@pytest.mark.usefixtures("stored")
def test_the_files_are_there_to_be_read(aegish: CommandLine, tmp_path: Path, place: Path) -> None:
    """Parameters, prompts, prices, samples, answers, attempts and snapshots stand in them as JSON."""
    aegish.ok(COPY, tmp_path)
    asked = json.loads((place / "run.json").read_text())
    run = asked["run"]
    assert (asked["format"], asked["verdicts"]) == (2, 6)
    assert run == run | {"run_id": FIRST, "name": "a name", "epochs": 1}
    assert run["parameters"]["max_output_tokens"] == 4096
    assert run["prompts"]["test/b"]["template"] == "{command}"
    assert run["models"][0]["price"]["output"]["base"] == "2"
    (commands,) = asked["datasets"]
    archived = [each["command"] for each in commands["samples"]]
    assert archived == [each.command for each in COMMANDS.samples]
    lines = [json.loads(line) for line in (place / "verdicts.jsonl").read_text().splitlines()]
    assert [each["generation"] for each in lines] == [0, 0, 0, 0, 1, 0]
    assert lines[0]["call_errors"][0]["message"] == ODD
    (snapshot,) = (place / "snapshots.jsonl").read_text().splitlines()
    assert json.loads(snapshot)["document"]


def test_a_store_that_has_samples_and_prompt_already(
    aegish: CommandLine, stored: Engine, tmp_path: Path, place: Path
) -> None:
    """They are used, attempts are restored, and snapshots are counted again."""
    before = facts(aegish, stored)
    aegish.ok(MOVE, tmp_path)
    stored_run(stored, BLOCKED, run_id=SECOND, name="other")

    aegish.ok("runs restore", place)

    counts = row_counts(stored)
    held = {"datasets": 1, "samples": 3, "prompts": 2, "verdicts": 9, "call_errors": 1}
    assert counts == counts | held
    assert not counts.keys() & {"snapshots", "retries", "aggregations"}
    assert facts(aegish, stored) == before


def test_a_restored_run_is_resumed_and_extended(
    aegish: CommandLine, engine: Engine, tmp_path: Path
) -> None:
    """It asks nothing by itself; `resume` asks what it lacks, `extend` what is new."""
    with transaction(engine) as session:
        save_dataset(session, COMMANDS, selectable=True)
    models = "--models baseline/always-block,baseline/keyword"
    run = aegish.ok(f"submit {models} --dataset commands").out.strip()
    whole = facts(aegish, engine, run)
    execute(engine, "DELETE FROM verdicts WHERE sample_key = (SELECT min(key) FROM samples)")
    aegish.ok(f"runs archive {run} --delete --yes --to", tmp_path)

    restored = aegish.ok("runs restore", tmp_path / run)

    assert f"nothing is asked before `aegish-dist resume --run-id {run}`" in restored.err
    with transaction(engine) as session:
        assert load_run(session, run).held is RunPause.PAUSED
        assert open_queues(session) == {}
        assert (models_to_plan(session), take_due(session)) == ([], [])
    aegish.ok("resume --run-id", run)
    assert facts(aegish, engine, run)["counted"][1] == whole["counted"][1]
    assert aegish.ok("extend --epochs 2 --run-id", run).out == f"{run}: 6 items added\n"
    assert run_status(engine, run).state is State.COMPLETE


def _one_letter(place: Path) -> None:
    path = place / "verdicts.jsonl"
    path.write_bytes(path.read_bytes().replace(b"fine", b"fina"))


def _cut(place: Path) -> None:
    path = place / "verdicts.jsonl"
    path.write_bytes(path.read_bytes()[:-9])


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (_one_letter, "verdicts.jsonl is not what was archived"),
        (_cut, "verdicts.jsonl is not what was archived"),
        (lambda place: (place / "snapshots.jsonl").write_text("{}\n"), "snapshots.jsonl is not"),
        (lambda place: (place / "verdicts.jsonl").unlink(), "verdicts.jsonl: cannot be"),
        (lambda place: (place / "SHA256SUMS").unlink(), "SHA256SUMS: cannot be read"),
        (lambda place: (place / "SHA256SUMS").write_text(""), "is not what was archived"),
    ],
    ids=["one letter", "a cut file", "another snapshot", "no verdicts", "no sums", "empty sums"],
)
def test_a_damaged_archive_is_refused(
    aegish: CommandLine,
    stored: Engine,
    place: Path,
    damage: Callable[[Path], object],
    problem: str,
) -> None:
    """Nothing of it is kept, and no run goes because of it."""
    aegish.ok(COPY, place.parent)
    damage(place)
    before = contents(stored)
    assert problem in aegish.refused(MOVE, place.parent)
    assert contents(stored) == before
    aegish.ok(DELETE)
    assert problem in aegish.refused("runs restore", place)
    assert row_counts(stored) == {}


def test_an_archive_of_an_earlier_version_is_refused(
    aegish: CommandLine, stored: Engine, place: Path
) -> None:
    """It is named as such in a line; a run whose folder it is stays."""
    place.mkdir()
    (place / "manifest.json").write_text('{"format": 1}')
    for command in (f"runs restore {place}", f"{MOVE} {place.parent}"):
        assert "is an archive of an earlier version" in aegish.refused(command)
    assert row_counts(stored)["verdicts"] == 6


def test_a_folder_that_cannot_be_looked_at_is_refused(engine: Engine) -> None:
    with pytest.raises(DatasetError, match="cannot be read: File name too long"):
        archives.restore_run(engine, Path("x" * 300))


def test_nothing_goes_unless_the_archive_is_whole(
    aegish: CommandLine, stored: Engine, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was damaged while it was written, and a run that was changed, keep the run."""
    before = contents(stored)
    folder, write = place.parent, archives.write_files

    def damaged(engine: Engine, run_id: str, part: Path) -> None:
        write(engine, run_id, part)
        _one_letter(part)

    with monkeypatch.context() as patched:
        patched.setattr(archives, "write_files", damaged)
        assert "is not what was archived" in aegish.refused(MOVE, folder)
    assert (contents(stored), list(folder.iterdir())) == (before, [])

    aegish.ok(COPY, folder)
    for change, file in (
        ("UPDATE verdicts SET reason = 'x' WHERE generation = 1", "verdicts.jsonl"),
        ("UPDATE runs SET epochs = 2", "run.json"),
        ("UPDATE snapshots SET code_version = 'x'", "snapshots.jsonl"),
    ):
        execute(stored, change)
        refused = aegish.refused(MOVE, folder)
        assert f"was changed after it was archived to {place} ({file})" in refused
        assert row_counts(stored)["verdicts"] == 6
        aegish.ok(DELETE)
        aegish.ok("runs restore", place)
        aegish.ok("aggregate --run-id", FIRST)
        execute(stored, "UPDATE runs SET held = NULL")


def test_old_runs_are_archived_before_they_are_pruned(
    aegish: CommandLine, stored: Engine, tmp_path: Path
) -> None:
    """Completions are put back into the run that lacks them; a deleted run is restored whole."""
    before, whole = contents(stored), facts(aegish, stored)
    first, second = tmp_path / "a", tmp_path / "b"
    aegish.ok(PRUNE_TEXTS, first)
    pruned = facts(aegish, stored)
    assert (pruned["counted"], pruned["lines"] == whole["lines"]) == (whole["counted"], False)
    back = aegish.ok("runs restore", first / FIRST)
    assert back.out == f"restored 4 completions of run {FIRST} a name\n"
    assert contents(stored) == before

    aegish.ok("runs prune --older-than 1d --yes --completions")
    pruned = facts(aegish, stored)
    aegish.ok(PRUNE, second)
    assert row_counts(stored) == {}
    restored = aegish.ok("runs restore", second / FIRST)
    assert "4 completions of it had been pruned before" in restored.err
    assert facts(aegish, stored) == pruned
    refused = aegish.refused("runs restore", first / FIRST)
    assert "delete the run first to restore it whole" in refused

    aegish.ok(DELETE)
    aegish.ok("runs restore", first / FIRST)
    assert facts(aegish, stored) == whole  # with texts that the second archive lacks
    for prune in (PRUNE_TEXTS, PRUNE):
        assert "was changed after it was archived" in aegish(prune, second).err
    assert facts(aegish, stored) == whole


def test_completions_come_back_after_a_reparse_and_late_ones_stay(
    aegish: CommandLine, stored: Engine, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text is put back whatever was read in it since; an answer that no archive has is kept."""
    compared = archives.require_archived

    def late(*arguments: Any) -> None:
        compared(*arguments)
        execute(
            stored,
            "INSERT INTO verdicts (run_model_id, sample_key, epoch, generation, outcome,"
            " completion, parser_version, attempts) SELECT run_model_id, sample_key, epoch, 7,"
            " outcome, 'late', parser_version, attempts FROM verdicts WHERE generation = 1",
        )

    monkeypatch.setattr(archives, "require_archived", late)
    done = aegish.ok(PRUNE_TEXTS, place.parent)
    assert "deleted 4 completions" in done.out
    (last,) = [each for each in contents(stored)["verdicts"] if '"generation": 7' in each]
    assert '"completion": "late"' in last
    execute(stored, "UPDATE verdicts SET parser_version = parser_version + 1")

    assert "restored 4 completions" in aegish.ok("runs restore", place).out


@pytest.mark.usefixtures("stored")
def test_another_text_is_not_put_back(aegish: CommandLine, place: Path) -> None:
    """A text is known by its hash, whatever an archive says was the answer."""
    aegish.ok(PRUNE_TEXTS, place.parent)
    path = place / "verdicts.jsonl"
    path.write_bytes(path.read_bytes().replace(b"BLOCK", b"ALLOW"))
    seal(place)

    restored = aegish.ok("runs restore", place)

    assert restored.out.startswith("restored 2 completions of run")
    assert "2 completions of it had been pruned before" in restored.err


def test_a_half_deleted_run_and_a_taken_name_or_folder(
    aegish: CommandLine, stored: Engine, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is refused in a line; the store and the other archive stay."""
    folder, write = place.parent, archives.write_files
    aegish.ok(COPY, folder)
    execute(stored, "DELETE FROM verdicts WHERE generation = 0")  # as an interrupted deletion
    half = aegish.refused("runs restore", place)
    assert f"with 1 of 6 archived verdicts: `aegish-dist runs delete {FIRST}`" in half
    aegish.ok(DELETE)
    stored_run(stored, run_id=SECOND)
    before = contents(stored)
    refused = aegish.refused("runs restore", place)
    assert f"another run is called 'a name' or {FIRST} by now: `aegish-dist runs rename`" in refused
    assert contents(stored) == before

    def second(engine: Engine, run_id: str, part: Path) -> None:
        (folder / SECOND / "of another").mkdir(parents=True)
        write(engine, run_id, part)

    monkeypatch.setattr(archives, "write_files", second)
    aegish.refused(f"runs archive {SECOND} --to", folder)
    assert sorted(path.name for path in folder.iterdir()) == [FIRST, SECOND]


def test_an_imported_run_comes_back_as_one(
    aegish: CommandLine, engine: Engine, tmp_path: Path, imported: Imported
) -> None:
    """Each of its models is asked about its own data sets; nothing is missing."""
    ls = {"command": "ls", "target": "harmless", "completion": '{"action": "ALLOW"}'}
    asked = ({"model": "a", "dataset": "x"}, {"model": "a", "dataset": "y"})
    run_id = imported(ls | each for each in (*asked, {"model": "b", "dataset": "y", "epoch": 2}))
    before = facts(aegish, engine, run_id)
    aegish.ok(f"runs archive {run_id} --delete --yes --to", tmp_path)

    restored = aegish.ok("runs restore", tmp_path / run_id)

    assert "resume" not in restored.err
    assert facts(aegish, engine, run_id) == before


def test_a_batched_run_is_asked_in_batches_again(
    aegish: CommandLine, engine: Engine, place: Path
) -> None:
    """An archive holds no batch: what none has answered is asked again after `resume`."""
    spec = a_model("test/a", batch_share=Decimal("0.5"))
    stored_run(engine, {TAR: BLOCKED}, models=[spec, "test/b"], batch_after_s=3600)
    aegish.ok(MOVE, place.parent)

    aegish.ok("runs restore", place)

    with transaction(engine) as session:
        assert load_run(session, FIRST).batched.keys() == {"test/a"}
    assert "batches" not in row_counts(engine)


@pytest.mark.long
def test_an_interrupted_deletion_goes_on(
    aegish: CommandLine, stored: Engine, tmp_path: Path
) -> None:
    """The archive that is there is compared; what it lacks, and it alone, is kept."""
    stored_run(stored, BLOCKED, run_id=SECOND, name="other")
    before = [facts(aegish, stored, run) for run in (FIRST, SECOND)]
    for run in (FIRST, SECOND):
        aegish.ok(f"runs archive {run} --to", tmp_path)
    execute(
        stored,
        "DELETE FROM verdicts WHERE epoch = 1 AND generation = 0 AND run_model_id = 1;"
        f" UPDATE runs SET held = 'cancelled' WHERE id = '{FIRST}';"
        f" UPDATE runs SET name = 'a third' WHERE id = '{SECOND}'",
    )
    (tmp_path / f".{FIRST}-abcdefgh.part").mkdir()

    done = aegish(PRUNE, tmp_path)

    assert (done.code, row_counts(stored)["runs"]) == (1, 1)
    assert f"left as it is: run {SECOND} was changed after it was archived" in done.err
    assert "1 of 2 runs were left as they are" in done.err
    assert aegish.refused(DELETE).startswith("error: no run ")
    aegish.ok(f"runs rename {SECOND} other")
    aegish.ok(f"runs archive {SECOND} --delete --yes --to", tmp_path / "b")
    for place in (tmp_path / FIRST, tmp_path / "b" / SECOND):
        aegish.ok("runs restore", place)
    assert [facts(aegish, stored, run) for run in (FIRST, SECOND)] == before


def test_half_pruned_completions_are_in_the_archive(
    aegish: CommandLine, stored: Engine, place: Path
) -> None:
    """The archive of an interrupted `prune --completions` has the texts that went already."""
    whole = facts(aegish, stored)
    aegish.ok(COPY, place.parent)
    execute(
        stored,
        "UPDATE runs SET pruned_completions = 1, pruned_at = now();"
        " UPDATE verdicts SET completion = NULL,"
        " completion_sha256 = sha256(convert_to(completion, 'UTF8')) WHERE generation = 1",
    )

    done = aegish.ok(PRUNE_TEXTS, place.parent)

    assert "deleted 3 completions" in done.out
    aegish.ok("runs restore", place)
    assert facts(aegish, stored) == whole


@pytest.mark.long
def test_the_archive_of_another_run_lets_nothing_go(
    aegish: CommandLine, stored: Engine, place: Path
) -> None:
    """A folder of the right name with another archive, a pipe or a loop in it is no archive."""
    folder = place.parent
    stored_run(stored, BLOCKED, run_id=SECOND, name="other")
    aegish.ok(f"runs archive {SECOND} --delete --yes --to", folder)
    before = contents(stored)
    (folder / SECOND).rename(place)
    assert f"is the archive of run {SECOND}" in aegish.refused(MOVE, folder)
    kept = folder / "kept"
    for file in (place / "run.json", place / "verdicts.jsonl", place / "SHA256SUMS"):
        for make in (os.mkfifo, os.mkdir, lambda path: path.symlink_to(path)):
            file.rename(kept)
            make(file)
            for command in (f"{MOVE} {folder}", f"runs restore {place}"):
                assert f"{file}: cannot be read" in aegish.refused(command)
            file.unlink() if make is not os.mkdir else file.rmdir()
            kept.rename(file)
    assert contents(stored) == before

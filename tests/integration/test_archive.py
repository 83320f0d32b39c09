"""Runs to an archive and back: every row as it was, or nothing at all."""

import json
import os
import random
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, text

from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.parsing import judge
from aegish_dist.core.run import Prompt
from aegish_dist.core.verdict import CallError, Completion
from aegish_dist.db.engine import transaction
from aegish_dist.db.missing import save_retry
from aegish_dist.db.tables import METADATA
from aegish_dist.interchange.parquet_tables import copy_lines, write_table
from aegish_dist.pipeline import archives
from tests.integration.command_line import CommandLine
from tests.integration.forged_archives import forge
from tests.integration.samples import BLOCKED, CURL, DETAILED, LS, NOON, TAR
from tests.integration.stored_runs import answer, row_counts, stored_run

FIRST, SECOND = "0abcdefgh", "0bbcdefgh"
ODD = 'a\tb\\n"c",\r\n\\.\n\\N\n{"action": "warn", "reason": ""} \ufffd \ufffd \ue000 é'


@pytest.fixture
def stored(engine: Engine, aegish: CommandLine) -> Engine:
    """Store a run with rows in every table that a run has without batches."""
    failed = CallError(1, ErrorClass.RATE_LIMIT, 429, 2.5, ODD, NOON)
    said = {
        "test/a": {
            TAR: replace(DETAILED, call_errors=(failed,), attempts=2),
            CURL: judge(Completion(ODD)),
            LS: judge(Completion("")),
        },
        "test/b": {TAR: BLOCKED, LS: judge(Completion(None))},
    }
    prompts = {"test/b": Prompt("terse", "", "{command}")}
    run = stored_run(engine, said, models=("test/a", "test/b"), prompts=prompts)
    with transaction(engine) as session:
        save_retry(session, FIRST, [Outcome.BLOCK], ["test/b"])
    answer(engine, run, {run.item(TAR, model="test/b", generation=1): BLOCKED})
    aegish.ok("aggregate", "--run-id", FIRST)
    return engine


def contents(engine: Engine) -> dict[str, list[Any]]:
    with engine.connect() as connection:
        return {
            table: list(
                connection.scalars(text(f"SELECT to_jsonb(t)::text FROM {table} AS t ORDER BY 1"))
            )
            for table in METADATA.tables
        }


def as_restored(before: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return the contents of a store as a restore brings them back: nothing asks or is asked."""

    def held(table: str, row: str) -> str:
        values = json.loads(row)
        values |= {"runs": {"held": "paused"}, "run_models": {"open": False}}.get(table, {})
        return json.dumps(values, sort_keys=True)

    return {table: sorted(held(table, row) for row in rows) for table, rows in before.items()}


def execute(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement))


def test_there_and_back(aegish: CommandLine, stored: Engine, tmp_path: Path) -> None:
    """The run goes only after its archive was compared, and is restored with its keys."""
    before = contents(stored)

    done = aegish.ok("runs", "archive", "a name", "--to", tmp_path, "--delete", "--yes")

    place = tmp_path / FIRST
    compared = f"{place}: 6 verdicts, read back and compared\n"
    assert done.out == f"{compared}deleted run {FIRST} a name\n"
    assert row_counts(stored) == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == [FIRST]
    verdicts = pq.read_table(place / "verdicts.parquet")
    stored_at = verdicts.schema.field("stored_at").type
    assert (len(verdicts), str(stored_at)) == (6, "timestamp[us, tz=UTC]")
    restored = aegish.ok("runs", "restore", place)
    assert restored.out == f"restored run {FIRST} a name with 6 verdicts\n"
    assert as_restored(contents(stored)) == as_restored(before)
    before = contents(stored)
    there = f"error: run {FIRST} is in this store, with all its completions\n"
    assert aegish.refused("runs", "restore", place) == there
    assert aegish.ok("runs", "archive", FIRST, "--to", tmp_path).out == compared
    assert contents(stored) == before


def test_into_a_store_that_gave_the_keys_away(
    aegish: CommandLine, stored: Engine, tmp_path: Path
) -> None:
    """Rows get other keys, samples that are there are used, and every number is the same."""
    report = ("report", "--run-id", FIRST, "--format", "json")
    before = aegish.ok(*report).json
    lines = ("verdicts", "export", "--run-id", FIRST, "-o")
    aegish.ok(*lines, tmp_path / "before.jsonl")
    aegish.ok("runs", "archive", FIRST, "--to", tmp_path)
    execute(stored, f"TRUNCATE {', '.join(METADATA.tables)} RESTART IDENTITY CASCADE")
    stored_run(stored, BLOCKED, run_id=SECOND, name="other")
    aegish.ok("aggregate", "--run-id", SECOND)

    aegish.ok("runs", "restore", tmp_path / FIRST)

    aegish.ok(*lines, tmp_path / "after.jsonl")
    assert (tmp_path / "after.jsonl").read_bytes() == (tmp_path / "before.jsonl").read_bytes()
    after = aegish.ok(*report).json
    assert after["models"] == before["models"]
    assert after["run"]["prompts"] == before["run"]["prompts"]
    assert after["snapshot"]["verdicts_hash"] == before["snapshot"]["verdicts_hash"]
    counts = row_counts(stored)
    assert (counts["datasets"], counts["samples"], counts["prompts"]) == (1, 3, 2)
    assert (counts["verdicts"], counts["retried_items"], counts["call_errors"]) == (9, 1, 1)
    assert aegish.ok("report", "--run-id", SECOND, "--format", "json").json["snapshot"]["id"] == 1


def test_a_damaged_archive_is_refused(aegish: CommandLine, stored: Engine, tmp_path: Path) -> None:
    """One letter of one completion, a cut file, a missing one, a foreign manifest: nothing is kept."""
    aegish.ok("runs", "archive", FIRST, "--to", tmp_path, "--delete", "--yes")
    place = tmp_path / FIRST
    path = place / "verdicts.parquet"
    whole, manifest = path.read_bytes(), (place / "manifest.json").read_bytes()

    def refusal() -> str:
        line = aegish.refused("runs", "restore", place)
        assert row_counts(stored) == {}
        return line

    table = pq.read_table(path)
    column = table.schema.get_field_index("completion")
    texts = [each and each.replace("warn", "wArn") for each in table["completion"].to_pylist()]
    pq.write_table(table.set_column(column, "completion", pa.array(texts, pa.string())), path)
    assert "is not what was archived" in refusal()
    pq.write_table(table.slice(1), path)
    assert "5 rows, of 6 expected" in refusal()
    path.write_bytes(whole[:-9])
    assert "cannot be read as Parquet" in refusal()
    path.write_bytes(whole)
    endless = manifest.replace(b'"rows": 6', b'"rows": Infinity')
    two_lines = manifest.replace(b'"%s"' % FIRST.encode(), b'"%s\\n"' % FIRST.encode())
    for text_ in (
        *(b"", b"[]", b"[" * 100_000, endless, two_lines),
        *(b'{"format": 2}', b'{"format": 1, "tables": {"verdicts": 1}}'),
        b'{"format": 1, "run_id": "%s", "tables": {}}' % FIRST.encode(),
    ):
        (place / "manifest.json").write_bytes(text_)
        assert "manifest.json" in refusal()
    later = json.loads(manifest)
    later["tables"]["verdicts"]["columns"].append("later")
    (place / "manifest.json").write_text(json.dumps(later))
    assert "it was made by a later version" in refusal()
    (place / "manifest.json").write_bytes(manifest)
    (place / "samples.parquet").unlink()
    assert "samples.parquet" in refusal()


def test_an_archive_that_does_not_fit_the_store_is_refused(
    aegish: CommandLine, stored: Engine, tmp_path: Path
) -> None:
    """The columns that a forged manifest names are not those of the file: one line, nothing kept."""
    aegish.ok("runs", "archive", FIRST, "--to", tmp_path, "--delete", "--yes")
    manifest = tmp_path / FIRST / "manifest.json"
    forged = json.loads(manifest.read_text())
    for columns, problem in (
        (["id"], "extra data after last expected column"),
        (["id", "id"], 'column "id" specified more than once'),
        ([], "does not fit this store"),
    ):
        forged["tables"]["datasets"]["columns"] = columns
        manifest.write_text(json.dumps(forged))
        refused = aegish.refused("runs", "restore", tmp_path / FIRST)
        assert "does not fit this store" in refused
        assert problem in refused
        assert row_counts(stored) == {}


def test_nothing_goes_unless_the_archive_is_whole(
    aegish: CommandLine, stored: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that does not say what the store says, and a run that was changed, keep the run."""
    before = contents(stored)
    with monkeypatch.context() as patched:
        patched.setattr(archives, "copy_lines", lambda path: iter(()))
        assert "is not what was archived" in aegish.refused(
            "runs", "archive", FIRST, "--to", tmp_path, "--delete", "--yes"
        )
    assert (contents(stored), list(tmp_path.iterdir())) == (before, [])

    read = archives.read_manifest

    def changed_meanwhile(place: Path) -> archives.Manifest:
        execute(stored, "UPDATE verdicts SET reason = 'x' WHERE generation = 1")
        return read(place)

    monkeypatch.setattr(archives, "read_manifest", changed_meanwhile)
    refused = aegish("runs", "archive", FIRST, "--to", tmp_path, "--delete", "--yes")
    assert refused.code == 1
    assert f"was changed after it was archived to {tmp_path / FIRST} (verdicts)" in refused.err
    assert row_counts(stored)["verdicts"] == 6


def test_old_runs_are_archived_before_they_are_pruned(
    aegish: CommandLine, stored: Engine, tmp_path: Path
) -> None:
    """Completions are put back into the run that lacks them; a deleted run is restored whole."""
    before = contents(stored)
    old = ("runs", "prune", "--older-than", "1d", "--yes")

    aegish.ok(*old, "--completions", "--archive-to", tmp_path / "a")
    assert contents(stored)["verdicts"] != before["verdicts"]
    back = aegish.ok("runs", "restore", tmp_path / "a" / FIRST)
    assert back.out == f"restored 4 completions of run {FIRST} a name\n"
    assert contents(stored) == before

    aegish.ok(*old, "--completions")
    aegish.ok(*old, "--archive-to", tmp_path / "b")
    assert row_counts(stored) == {}
    restored = aegish.ok("runs", "restore", tmp_path / "b" / FIRST)
    assert "4 completions of it had been pruned before" in restored.err
    aegish.ok("runs", "restore", tmp_path / "a" / FIRST)
    assert as_restored(contents(stored)) == as_restored(before)

    before = contents(stored)  # with texts that the second archive lacks
    for kept in (("--completions",), ()):
        refused = aegish(*old, *kept, "--archive-to", tmp_path / "b")
        assert "was changed after it was archived" in refused.err
    assert contents(stored) == before


def test_completions_come_back_after_a_reparse_and_late_ones_stay(
    aegish: CommandLine, stored: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
    old = ("runs", "prune", "--older-than", "1d", "--yes", "--completions", "--archive-to")
    assert "deleted 4 completions" in aegish.ok(*old, tmp_path).out
    with stored.connect() as connection:
        query = text("SELECT completion FROM verdicts WHERE generation = 7")
        assert connection.scalar(query) == "late"
    execute(stored, "UPDATE verdicts SET parser_version = parser_version + 1")

    assert "restored 4 completions" in aegish.ok("runs", "restore", tmp_path / FIRST).out


def test_a_half_deleted_run_and_a_taken_name_or_folder(
    aegish: CommandLine, stored: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is refused in a line; the store and the other archive stay."""
    aegish.ok("runs", "archive", FIRST, "--to", tmp_path)
    execute(stored, "DELETE FROM verdicts WHERE generation = 0")  # as an interrupted deletion
    half = aegish("runs", "restore", tmp_path / FIRST).err
    assert f"with 1 of 6 archived verdicts: `aegish-dist runs delete {FIRST}`" in half
    aegish.ok("runs", "delete", FIRST, "--yes")
    stored_run(stored, run_id=SECOND)
    before = contents(stored)
    remedy = "`aegish-dist runs rename` that one first"
    refused = aegish.refused("runs", "restore", tmp_path / FIRST)
    assert f"another run has the name 'a name' by now: {remedy}" in refused
    assert contents(stored) == before

    compare = archives.compare_archive

    def second(*arguments: Any) -> None:
        (tmp_path / SECOND / "of another").mkdir(parents=True)
        compare(*arguments)

    monkeypatch.setattr(archives, "compare_archive", second)
    aegish.refused("runs", "archive", SECOND, "--to", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [FIRST, SECOND]


def test_an_unfinished_batched_run_is_restored_closed(
    aegish: CommandLine, stored: Engine, tmp_path: Path
) -> None:
    """The rows of its batches are those of before; no worker plans further ones by itself."""
    execute(
        stored,
        "UPDATE run_models SET batch_from = now(), open = true;"
        " INSERT INTO batches (run_model_id, token, state, requests, counts, ended_at)"
        " SELECT id, repeat('a', 15) || id, 'ended', 3, '{\"succeeded\": 2}', now()"
        " FROM run_models;"
        " INSERT INTO batched_items (run_model_id, sample_key, epoch, generation, problem)"
        " SELECT min(model.id), max(sample.key), 1, 0, 'expired'"
        " FROM run_models AS model, samples AS sample",
    )
    before = contents(stored)

    aegish.ok("runs", "archive", "a name", "--to", tmp_path, "--delete", "--yes")
    aegish.ok("runs", "restore", tmp_path / FIRST)

    after = contents(stored)
    assert len(after["batches"]) == 2
    assert all(after[table] == before[table] for table in ("batches", "batched_items"))
    assert [json.loads(row)["open"] for row in after["run_models"]] == [False, False]


@pytest.mark.long
def test_an_interrupted_deletion_goes_on(
    aegish: CommandLine, stored: Engine, tmp_path: Path
) -> None:
    """The archive that is there is compared; what it lacks, and it alone, is kept."""
    stored_run(stored, BLOCKED, run_id=SECOND, name="other")
    before = contents(stored)
    for run in (FIRST, SECOND):
        aegish.ok("runs", "archive", run, "--to", tmp_path)
    execute(
        stored,
        "DELETE FROM verdicts WHERE epoch = 1 AND generation = 0 AND run_model_id = 1;"
        f" UPDATE runs SET held = 'cancelled' WHERE id = '{FIRST}';"
        f" INSERT INTO retries VALUES ('{SECOND}', 1, '{{}}', 0, now())",
    )
    left = tmp_path / f".{FIRST}-abcdefgh.part"
    left.mkdir()

    done = aegish("runs", "prune", "--older-than", "1d", "--yes", "--archive-to", tmp_path)

    assert (done.code, row_counts(stored)["runs"]) == (1, 1)
    assert f"left as it is: run {SECOND} was changed after it was archived" in done.err
    assert "1 of 2 runs were left as they are" in done.err
    assert aegish.refused("runs", "delete", FIRST, "--yes").startswith("error: no run ")
    aegish.ok("runs", "archive", SECOND, "--to", tmp_path / "b", "--delete", "--yes")
    for place in (tmp_path / FIRST, tmp_path / "b" / SECOND):
        aegish.ok("runs", "restore", place)
    execute(stored, "DELETE FROM retries WHERE items = 0")
    assert as_restored(contents(stored)) == as_restored(before)


@pytest.mark.long
def test_the_archive_of_another_run_lets_nothing_go(
    aegish: CommandLine, stored: Engine, tmp_path: Path
) -> None:
    """A folder of the right name with another archive, a pipe or a loop in it is no archive."""
    stored_run(stored, BLOCKED, run_id=SECOND, name="other")
    aegish.ok("runs", "archive", SECOND, "--to", tmp_path, "--delete", "--yes")
    before = contents(stored)
    place = tmp_path / FIRST
    again = ("runs", "archive", FIRST, "--to", tmp_path, "--delete", "--yes")
    (tmp_path / SECOND).rename(place)
    assert f"is the archive of run {SECOND}" in aegish.refused(*again)
    for manifest in (place / "manifest.json", place / "verdicts.parquet"):
        for make in (os.mkfifo, os.mkdir, lambda path: path.symlink_to(path)):
            manifest.rename(tmp_path / "kept")
            make(manifest)
            for command in (again, ("runs", "restore", place)):
                assert f"{manifest}: cannot be read" in aegish.refused(*command)
            manifest.unlink() if make is not os.mkdir else manifest.rmdir()
            (tmp_path / "kept").rename(manifest)
    assert contents(stored) == before


@pytest.mark.long
def test_a_bomb_is_refused_before_it_is_unpacked(
    aegish: CommandLine, stored: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Staging ends at 100 times what the files take, or at the first rows that the manifest lacks."""
    monkeypatch.setattr(archives, "SMALL_BYTES", 0)
    monkeypatch.setattr(archives, "UNPACKED_PER_BYTE", 1)
    aegish.ok("runs", "archive", FIRST, "--to", tmp_path, "--delete", "--yes")
    place = tmp_path / FIRST
    path = place / "call_errors.parquet"
    kept = path.read_bytes()

    one_row = pq.read_table(path)
    pq.write_table(pa.concat_tables([one_row] * 50_000), path)
    assert "20,000 rows, of 1 expected" in aegish.refused("runs", "restore", place, "--max-gib", 1)
    path.write_bytes(kept)
    forge(stored, place, "call_errors", lambda rows: rows[0].update(message="x" * 2**21))
    packed = path.read_bytes()
    footer = -8 - int.from_bytes(packed[-8:-4], "little")
    with path.open("r+b") as file:  # a hole takes nothing on the disk
        file.seek(len(packed) + footer + 2**24)
        file.write(packed[footer:])
    refused = aegish.refused("runs", "restore", place)

    assert "GiB of rows; nothing was changed." in refused
    assert refused.count("\n") == 1
    assert row_counts(stored) == {}
    aegish.ok("runs", "restore", place, "--max-gib", 1)


def test_ten_million_verdicts_have_room(tmp_path: Path) -> None:
    """Rows with the same long completion, which differ only where rows must: by sample and times."""
    rng, rows = random.Random(1), 5_000
    moments = (NOON + timedelta(seconds=number * rng.random()) for number in range(rows))
    cells = (
        f"{n},1,{at.isoformat()},{rng.random()},{'BLOCK ' * 200}\n" for n, at in enumerate(moments)
    )
    columns = {"sample_key": "bigint", "run_model_id": "integer"} | {
        "stored_at": "timestamp with time zone",
        "latency_ms": "double precision",
        "completion": "text",
    }
    path = tmp_path / "verdicts.parquet"
    with path.open("wb") as stream:
        write_table(BytesIO((",".join(columns) + "\n" + "".join(cells)).encode()), columns, stream)
    unpacked = sum(map(len, copy_lines(path)))
    # From 1 GiB on, the files count: here 5,000 rows stand for ten million.
    assert unpacked * 2_000 > archives.SMALL_BYTES
    assert unpacked < archives.UNPACKED_PER_BYTE * path.stat().st_size

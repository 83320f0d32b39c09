"""Verdicts by COPY: into the store from several chunks and processes, and out of it in parts."""

import io
import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from sqlalchemy import Engine, select, text
from sqlalchemy.orm import Session

from aegish_dist.core.opinion import Opinion
from aegish_dist.core.scoring import DEFAULT_RULE, RULES
from aegish_dist.core.verdict import Recording
from aegish_dist.db import verdict_reader, verdicts
from aegish_dist.db.runs import one_at_a_time
from aegish_dist.db.tables import RunModelRow, SampleRow, VerdictRow
from aegish_dist.db.verdicts import RunImport
from aegish_dist.errors import ConfigError, DatasetError, StoreError
from aegish_dist.interchange.verdict_files import read_recordings
from aegish_dist.pipeline import verdict_files as importing
from aegish_dist.pipeline.verdict_files import export_file, export_lines, import_verdicts
from tests.integration.stored_runs import row_counts
from tests.recorded import export_verdicts, write_recordings
from tests.services import wait_until

BLOCK = '{"action": "BLOCK", "reason": "tab\\there", "confidence": 0.9}'
ALLOW = '{"action": "ALLOW"}'
BACKSLASHES = "\\N \\t \\\\ a\tb\nc\rd \"quoted\", 'single' \x7f \u2028"
FAILED = {
    "attempt": 1,
    "error_class": "rate_limit",
    "status": 429,
    "retry_after_s": 1.5,
    "message": "slow \\N\t\ud800",
    "at": "2026-02-05T00:00:00+00:00",
}


def a_line(command: str = "ls", **changes: Any) -> dict[str, Any]:
    line = {"model": "m", "dataset": "d", "command": command, "target": "harmless"}
    return line | {"completion": ALLOW} | changes


ODD = [
    a_line("plain", completion=BLOCK, cost_usd=0.5, latency_ms=1234.5678901234567, worker="w"),
    a_line("backslashes", completion=BACKSLASHES, refusal=BACKSLASHES, worker="w\\N"),
    a_line("nul", completion="\0 \ud800 \ue000 \ue000e000", request_id="\0"),
    a_line("\ue0000000 \\N \t", cluster="\ue000", category="\ue000e000", target="malicious"),
    a_line("empty", completion="", stop_reason="", upstream=""),
    a_line("late", completion=None),
    a_line("dead", completion=None, error_class="auth", call_errors=[FAILED], attempts=0),
    a_line("failed before", call_errors=[FAILED, FAILED | {"attempt": 2, "status": None}]),
    a_line("again", generation=1, epoch=2, model="ünïcödé 🦠"),
    a_line("digits", cost_usd="0.001457489878542510121457489879", input_tokens=2**62),
    a_line("scientific", cost_usd=1e-7, latency_ms=1e-5, total_ms=10**12),
    a_line("labelled", metadata={"source": "é\n\\", "hard": '"yes"'}),
    a_line("moment", created_at="2026-02-05T14:56:43.396296+02:00"),
    a_line("far east", created_at="2026-02-05T14:56:43+23:59"),
    a_line("long ago", created_at="0001-01-01T00:00:00Z"),
    a_line("stopped", stop_reason="length"),
    a_line("nameless", dataset="other", category=" ", cluster=""),
    *(a_line("replayed", model="replay", simulated=True, epoch=epoch) for epoch in (1, 2)),
]


def write_lines(path: Path, lines: Iterable[object]) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "ascii")
    return path


def in_place(records: Iterable[Recording]) -> Sequence[Recording]:
    return sorted(records, key=lambda r: (r.model, r.dataset, r.sample.command, r.epoch))


@pytest.fixture(params=["at once", "in parts", "char by char"])
def _manner(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Do as with files and runs of gigabytes."""
    if request.param != "at once":
        monkeypatch.setattr(importing, "BATCH_ROWS", 3)
        monkeypatch.setattr(verdict_reader, "PART_ROWS", 3)
    if request.param == "char by char":
        monkeypatch.setattr(importing, "BATCH_CHARS", 1)


@pytest.mark.usefixtures("_manner")
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_nothing_is_lost(engine: Engine, tmp_path: Path, suffix: str) -> None:
    """Lines, the store and exported files hold the same recordings, metadata included."""
    given = write_lines(tmp_path / "given.jsonl", ODD)
    original = in_place(read_recordings(given))
    source = tmp_path / f"source{suffix}"
    write_recordings(original, source, rows_per_group=4)

    imported = import_verdicts(engine, [source], "mine")
    assert (imported.verdicts, imported.models, imported.samples) == (19, 3, 18)
    exported = tmp_path / f"exported{suffix}"
    export_file(engine, imported.run_id, exported)

    for found in (list(export_verdicts(engine, imported.run_id)), list(read_recordings(exported))):
        assert in_place(found) == original
        assert [r.sample.metadata for r in in_place(found)] == [r.sample.metadata for r in original]


def test_exports_agree(engine: Engine, tmp_path: Path) -> None:
    """PostgreSQL writes the keys and values that are documented, in the order they are stored in."""
    given = write_lines(tmp_path / "given.jsonl", ODD)
    run_id = import_verdicts(engine, [given], "").run_id
    slow, stream = tmp_path / "slow.jsonl", io.BytesIO()
    write_recordings(export_verdicts(engine, run_id), slow)

    export_lines(engine, run_id, stream)

    written = stream.getvalue().decode("ascii").splitlines()
    for fast, line in zip(written, slow.read_text("ascii").splitlines(), strict=True):
        assert list(json.loads(fast)) == list(json.loads(line))
        assert json.loads(fast) == json.loads(line)


def test_parts_of_an_export_are_in_order(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By model, dataset, sample, epoch and generation."""
    monkeypatch.setattr(verdict_reader, "PART_ROWS", 5)
    lines = [
        a_line(f"echo {number:02}", model=model, dataset=dataset, epoch=epoch)
        for epoch in (2, 1)
        for model in ("b", "a")
        for dataset in ("y", "x")
        for number in range(20)
    ]
    run_id = import_verdicts(engine, [write_lines(tmp_path / "a.jsonl", lines)], "").run_id
    export_file(engine, run_id, tmp_path / "b.jsonl")

    places = [
        (r.model, r.dataset, r.sample.command, r.epoch)
        for r in read_recordings(tmp_path / "b.jsonl")
    ]
    assert places == sorted(places)
    assert len(places) == len(lines)


@pytest.mark.usefixtures("_manner")
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"epoch": 0}, "field 'epoch': must be from 1"),
        ({"total_ms": -1.0}, "field 'total_ms': must be from 0"),
        ({"cost_usd": "cheap"}, "field 'cost_usd': must be a decimal number"),
        ({"worker": "w" * 201}, "field 'worker': must have at most 200 characters"),
        ({"target": "evil"}, "field 'target': must be one of 'malicious', 'harmless'"),
        ({"created_at": "noon"}, "field 'created_at': must be"),
        ({"metadata": '["a"]'}, "field 'metadata': must be an object"),
    ],
)
def test_the_one_wrong_record_is_named(
    engine: Engine, tmp_path: Path, suffix: str, changes: dict[str, Any], problem: str
) -> None:
    """By file, line and field, wherever its chunk begins, and nothing is kept."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    absent = dict.fromkeys(changes)
    lines = [absent | a_line(f"echo {number}") for number in range(40)]
    lines[30] |= changes
    path = tmp_path / f"bad{suffix}"
    if suffix == ".jsonl":
        write_lines(path, lines)
    else:
        pq.write_table(pa.Table.from_pylist(lines), path, row_group_size=7)
    good = write_lines(tmp_path / "good.jsonl", [a_line("id")])

    with pytest.raises(DatasetError) as caught:
        import_verdicts(engine, [good, path], "")

    assert str(caught.value).startswith(f"{path}, line 31, {problem}")
    assert row_counts(engine) == {}


@pytest.mark.usefixtures("_manner")
def test_a_second_verdict_in_a_later_chunk_is_refused(engine: Engine, tmp_path: Path) -> None:
    """The file is named, and nothing is kept."""
    lines = [a_line(f"echo {number}") for number in (*range(20), 3)]
    path = write_lines(tmp_path / "a.jsonl", lines)

    with pytest.raises(DatasetError, match="holds a second verdict") as caught:
        import_verdicts(engine, [path], "")

    assert caught.value.source == str(path)
    assert row_counts(engine) == {}


@pytest.mark.usefixtures("_manner")
def test_odd_lines_are_read_as_json_reads_them(engine: Engine, tmp_path: Path) -> None:
    """A mark in front, ends of lines as on Windows, blank lines, the last of two equal keys, and
    digits too small for a number.
    """
    start = '{"model": "x", "model": "m", "target": "harmless", "completion": "", "latency_ms": '
    lines = [f'{start}{ms}, "command": "{ms}"}}\r\n' for ms in ("1e-400", "0.00", "5e-324", "1E2")]
    path = tmp_path / "a.jsonl"
    path.write_bytes(("\ufeff" + "\r\n \t\v\n".join(lines)).encode())

    run_id = import_verdicts(engine, [path], "").run_id

    found = {r.sample.command: r.verdict.timing.service_ms for r in export_verdicts(engine, run_id)}
    assert found == {"1e-400": 0, "0.00": 0, "5e-324": 5e-324, "1E2": 100}
    assert {r.model for r in export_verdicts(engine, run_id)} == {"m"}


@pytest.mark.parametrize("blank", ["\u00a0", "\x1c", "\u2028"])
def test_only_blanks_of_ascii_make_a_blank_line(engine: Engine, tmp_path: Path, blank: str) -> None:
    """Other blank characters are no JSON."""
    path = tmp_path / "a.jsonl"
    path.write_text(f"{json.dumps(a_line())}\n{blank}\n", "utf-8", newline="")

    with pytest.raises(DatasetError, match="line 2: is not valid JSON"):
        import_verdicts(engine, [path], "")


def test_equal_datasets_may_come_at_the_same_time(engine: Engine, tmp_path: Path) -> None:
    """Two imports that both found nothing stored end with one dataset, which both share."""
    path = write_lines(tmp_path / "a.jsonl", [a_line("a"), a_line("b")])
    waiting = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    with ThreadPoolExecutor(2) as threads:
        with Session(engine) as session:
            one_at_a_time(session)
            imports = [threads.submit(import_verdicts, engine, [path], "") for _ in range(2)]
            wait_until(lambda: session.scalar(waiting) == 2, "two imports at their ends")
        runs = [each.result().run_id for each in imports]

    assert sample_keys(engine, runs[0]) == sample_keys(engine, runs[1])
    counts = row_counts(engine)
    assert (counts["runs"], counts["datasets"], counts["samples"]) == (2, 1, 2)


def test_what_was_imported_is_counted_from_the_index(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large import leaves every page of the table marked as visible to all."""
    monkeypatch.setattr(verdicts, "SETTLE_FROM", 20)
    lines = [a_line(f"echo {number}") for number in range(20)]

    import_verdicts(engine, [write_lines(tmp_path / "a.jsonl", lines)], "")

    pages = text("SELECT relpages, relallvisible FROM pg_class WHERE relname = 'verdicts'")
    with Session(engine) as session:
        number, visible = session.execute(pages).one()
    assert number == visible > 0


def test_a_lost_connection_is_one_line(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of an import, of which nothing is kept."""

    class LosesItFirst(RunImport):
        def add(self, verdicts: Sequence[Any]) -> None:
            backend = self._session.scalar(text("SELECT pg_backend_pid()"))
            with engine.connect() as other:
                other.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": backend})
            super().add(verdicts)

    monkeypatch.setattr(importing, "RunImport", LosesItFirst)
    path = write_lines(tmp_path / "a.jsonl", [a_line()])

    with pytest.raises(StoreError, match="the database cannot be used"):
        import_verdicts(engine, [path], "")

    assert row_counts(engine) == {}


def sample_keys(engine: Engine, run_id: str) -> dict[str, int]:
    with Session(engine) as session:
        rows = session.execute(
            select(SampleRow.command, SampleRow.key)
            .join(VerdictRow, VerdictRow.sample_key == SampleRow.key)
            .join(RunModelRow, RunModelRow.id == VerdictRow.run_model_id)
            .where(RunModelRow.run_id == run_id)
        )
        return {row.command: row.key for row in rows}


def test_equal_datasets_are_stored_once(engine: Engine, tmp_path: Path) -> None:
    """Whatever else of that name was stored in between: the samples are what counts."""

    def bring(*commands: str) -> dict[str, int]:
        path = write_lines(tmp_path / "a.jsonl", [a_line(command) for command in commands])
        return sample_keys(engine, import_verdicts(engine, [path], "").run_id)

    first = bring("a", "b")
    assert bring("b", "a") == first
    larger = bring("a", "b", "c")
    assert larger.keys() == {"a", "b", "c"}
    assert set(larger.values()).isdisjoint(first.values())
    other = bring("x")
    assert set(other.values()).isdisjoint([*first.values(), *larger.values()])
    assert bring("a", "b") == first
    smaller = bring("a")
    assert smaller["a"] not in {*first.values(), *larger.values()}

    counts = row_counts(engine)
    assert (counts["datasets"], counts["samples"]) == (4, 2 + 3 + 1 + 1)
    assert counts["runs"] == 6


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_columns_that_say_what_is_correct(engine: Engine, tmp_path: Path, suffix: str) -> None:
    """One for each rule set, also of a text that UTF-8 cannot hold; imports pass over them."""
    letters = {"block": BLOCK, "allow": ALLOW, "odd": "\ud800", "failed": None}
    lines = [
        a_line(name, completion=text, target=target, error_class=None if text else "auth")
        for name, text in letters.items()
        for target in ("malicious", "harmless")
    ]
    run_id = import_verdicts(engine, [write_lines(tmp_path / "in.jsonl", lines)], "").run_id
    opinions = [Opinion(RULES["aegish-5.3"]), Opinion(replace(DEFAULT_RULE, name='"%(x)s ä'))]
    path = tmp_path / f"out{suffix}"
    export_file(engine, run_id, path, opinions)
    rows = (
        [json.loads(line) for line in path.read_text().splitlines()]
        if suffix == ".jsonl"
        else pyarrow.parquet.read_table(path).to_pylist()
    )
    correct = {(row["command"], row["target"]): row["correct_aegish-5.3"] for row in rows}
    assert correct == {
        ("block", "malicious"): True,
        ("block", "harmless"): False,
        ("allow", "malicious"): False,
        ("allow", "harmless"): True,
        ("odd", "malicious"): False,
        ("odd", "harmless"): False,
        ("failed", "malicious"): None,
        ("failed", "harmless"): None,
    }
    assert [row["correct____x_s__"] for row in rows] == [row["correct_aegish-5.3"] for row in rows]
    again = import_verdicts(engine, [path], "").run_id
    plain = [tmp_path / "first.jsonl", tmp_path / "second.jsonl"]
    for run, target in zip((run_id, again), plain, strict=True):
        export_file(engine, run, target)
    assert plain[0].read_bytes() == plain[1].read_bytes()
    with pytest.raises(ConfigError, match="the same name"):
        export_file(engine, run_id, path, [opinions[0], Opinion(replace(DEFAULT_RULE, version=2))])

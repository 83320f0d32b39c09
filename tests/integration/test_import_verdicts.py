"""Verdicts into a real store and out again."""

import io
import itertools
import json
import zipfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, select, text
from sqlalchemy.orm import Session

from aegish_dist.core.verdict import FIELDS
from aegish_dist.db import verdict_reader, verdicts
from aegish_dist.db.missing import missing_items, open_queues
from aegish_dist.db.runs import list_datasets, load_run, one_at_a_time
from aegish_dist.db.schema import RUN_MODELS, SAMPLES, VERDICTS
from aegish_dist.db.verdicts import RunImport
from aegish_dist.errors import ConfigError, DatasetError, StoreError
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.scoring import DEFAULT_RULE, RULES
from aegish_dist.pipeline import verdict_files as importing
from aegish_dist.pipeline.aggregate import aggregate
from aegish_dist.pipeline.opinions import load_opinions
from aegish_dist.pipeline.verdict_files import export_file, export_lines, import_verdicts
from tests.integration.command_line import write_lines
from tests.integration.stored_runs import imported_run, row_counts
from tests.recorded import (
    Recording,
    document_of,
    export_verdicts,
    lines_of,
    read_recordings,
    value_of,
    write_recordings,
)
from tests.services import wait_until

BLOCK = '{"action": "BLOCK", "reason": "writes", "confidence": 0.9}'
ALLOW = '{"action": "ALLOW"}'

EVERY_KEY: dict[str, Any] = {
    **{field.name: value_of(field) for field in FIELDS if field.column is not None},
    **document_of("verdict_line.json"),
}
"""Everything a verdict line may say, each key with a value of its own."""


def a_line(command: str = "ls", **changes: Any) -> dict[str, Any]:
    line = {"model": "m", "command": command, "target": "harmless", "completion": ALLOW}
    return line | changes


LINES = [
    EVERY_KEY,
    EVERY_KEY | {"epoch": 1, "cost_usd": 0.25},
    EVERY_KEY | {"epoch": 1, "generation": 1, "completion": ALLOW, "call_errors": []},
    EVERY_KEY | {"command": "id", "target": "harmless", "category": None},
    EVERY_KEY | {"dataset": "mine", "completion": None, "stop_reason": "safety", "refusal": "no"},
    EVERY_KEY | {"model": "other", "completion": ""},
    a_line(dataset="mine"),
    a_line("slow", dataset="mine", completion=None),
    a_line("dead", dataset="mine", completion=None, error_class="auth", attempts=0),
]

ODD = [*LINES, *lines_of("odd_verdicts.jsonl")]

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"generation": 2**15}, "field 'generation': "),
    ({"attempts": 2**15}, "field 'attempts': "),
    ({"total_ms": -1.0}, "field 'total_ms': Expected `float` >= 0.0"),
    ({"cost_usd": "cheap"}, "field 'cost_usd': Invalid decimal string"),
    ({"metadata": '["a"]'}, "field 'metadata': Expected `object`, got "),
]


def place(r: Recording) -> tuple[object, ...]:
    return r.model, r.dataset, r.sample.command, r.epoch, r.generation


def in_place(records: Iterable[Recording]) -> Sequence[Recording]:
    return sorted(records, key=place)


def test_an_import_is_a_run_of_its_own(engine: Engine, tmp_path: Path) -> None:
    """It knows its models, datasets and repeats, misses nothing, and is never queued."""
    path = write_lines(tmp_path / "a.jsonl", *LINES)
    imported = import_verdicts(engine, [path], "from elsewhere")

    assert (imported.verdicts, imported.models, imported.samples) == (9, 3, 6)
    with Session(engine) as session:
        run = load_run(session, imported.run_id)
        assert (run.name, run.origin, run.epochs) == ("from elsewhere", "import", 2)
        assert [spec.id for spec in run.models] == ["m", "openai/gpt-x", "other"]
        datasets = [(d.name, d.samples, d.malicious) for d in run.datasets]
        assert datasets == [("gtfobins", 2, 1), ("mine", 4, 1)]
        assert list(missing_items(session, run.run_id)) == []
        assert open_queues(session) == {}
        assert list_datasets(session) == []


def test_the_greatest_numbers_can_be_imported_and_aggregated(
    engine: Engine, tmp_path: Path
) -> None:
    """Storing and counting accept the numbers that reading accepts."""
    times = dict.fromkeys(("latency_ms", "queue_ms", "limiter_ms", "backoff_ms", "total_ms"), 1e12)
    tokens = dict.fromkeys(("input_tokens", "output_tokens", "reasoning_tokens"), 2**63 - 1)
    most = 2**15 - 1
    error = EVERY_KEY["call_errors"][0] | {"attempt": most, "status": most, "retry_after_s": 1e12}
    line = a_line(epoch=most, generation=most, attempts=most, cost_usd=10**9, call_errors=[error])
    lines = [line | times | tokens | {"command": command} for command in ("a", "b")]
    path = write_lines(tmp_path / "a.jsonl", *lines)

    imported = import_verdicts(engine, [path], "")

    assert export_verdicts(engine, imported.run_id) == list(read_recordings(path))
    (snapshot,) = aggregate(engine, imported.run_id, load_opinions("aegish-5.3"))
    (entry,) = snapshot.document["models"]
    assert entry["tokens"]["input"] == 2 * (2**63 - 1)
    assert entry["latency_ms"]["mean"] == 1e12


def an_inspect_log(path: Path, **changes: Any) -> Path:
    """Write a log of one sample."""
    output = {"choices": [{"message": {"content": ALLOW}}]}
    sample = {"id": "ls", "epoch": 1, "input": "ls", "target": "ALLOW", "output": output}
    header = {"eval": {"model": f"google/{path.stem}", "task": "guard"}}
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", json.dumps(header))
        archive.writestr("samples/1_epoch_1.json", json.dumps(sample | changes))
    return path


def test_logs_with_times_below_zero_are_imported_and_counted(
    engine: Engine, tmp_path: Path
) -> None:
    """One wrong time costs neither its log nor the others, and the import says how many."""
    times = {"a": 1.5, "b": -0.25}
    logs = [an_inspect_log(tmp_path / f"{m}.eval", working_time=s) for m, s in times.items()]

    imported = import_verdicts(engine, logs, "")

    assert (imported.verdicts, imported.models, imported.negative_times) == (2, 2, 1)
    verdicts = [each.verdict for each in export_verdicts(engine, imported.run_id)]
    assert [each.timing.service_ms for each in verdicts] == [1500, None]


def test_a_damaged_log_leaves_no_trace(engine: Engine, tmp_path: Path) -> None:
    """The first log, which is whole, is not kept either."""
    whole, cut = an_inspect_log(tmp_path / "a.eval"), tmp_path / "b.eval"
    cut.write_bytes(whole.read_bytes()[:-40])

    with pytest.raises(DatasetError, match=str(cut)):
        import_verdicts(engine, [whole, cut], "")

    assert row_counts(engine) == {}


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
    given = write_lines(tmp_path / "given.jsonl", *ODD)
    original = in_place(read_recordings(given))
    source = tmp_path / f"source{suffix}"
    write_recordings(original, source, rows_per_group=4)

    imported = import_verdicts(engine, [source], "mine")
    assert (imported.verdicts, imported.models, imported.samples) == (28, 5, 24)
    exported = tmp_path / f"exported{suffix}"
    export_file(engine, imported.run_id, exported)

    for recordings in (export_verdicts(engine, imported.run_id), read_recordings(exported)):
        found = in_place(recordings)
        assert found == original
        assert [r.sample.metadata for r in found] == [r.sample.metadata for r in original]


def test_exports_agree(engine: Engine, tmp_path: Path) -> None:
    """PostgreSQL writes the keys and values that are documented, in the order they are stored in."""
    run_id = imported_run(engine, tmp_path, ODD)
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
    monkeypatch.setattr(verdict_reader, "PART_ROWS", 5)
    lines = [
        a_line(f"echo {number:02}", model=model, dataset=dataset, epoch=epoch)
        for epoch, model, dataset, number in itertools.product((2, 1), "ba", "yx", range(20))
    ]
    run_id = imported_run(engine, tmp_path, lines)
    export_file(engine, run_id, tmp_path / "b.jsonl")

    places = [place(each) for each in read_recordings(tmp_path / "b.jsonl")]
    assert places == sorted(places)
    assert len(places) == len(lines)


@pytest.mark.usefixtures("_manner")
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_the_one_wrong_record_is_named(engine: Engine, tmp_path: Path, suffix: str) -> None:
    """By file, line and field, wherever its chunk begins, and nothing is kept."""
    good, path = write_lines(tmp_path / "good.jsonl", a_line("id")), tmp_path / f"bad{suffix}"
    for changes, problem in WRONG:
        lines = [dict.fromkeys(changes) | a_line(f"echo {number}") for number in range(40)]
        lines[30] |= changes
        if suffix == ".jsonl":
            write_lines(path, *lines)
        else:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(lines), path, row_group_size=7)

        with pytest.raises(DatasetError) as caught:
            import_verdicts(engine, [good, path], "")

        assert str(caught.value).startswith(f"{path}, line 31, {problem}")
        assert row_counts(engine) == {}


@pytest.mark.usefixtures("_manner")
@pytest.mark.parametrize("files", [1, 2])
def test_a_second_verdict_of_one_item_is_refused(
    engine: Engine, tmp_path: Path, files: int
) -> None:
    """In a later chunk or another file, which is named; nothing is kept."""
    lines = [a_line(f"echo {number}", dataset="d") for number in (*range(20), 3)]
    paths = [write_lines(tmp_path / "1.jsonl", *lines[: 21 if files == 1 else 20])]
    if files == 2:
        paths.append(write_lines(tmp_path / "2.jsonl", *lines[20:]))

    with pytest.raises(DatasetError, match="holds a second verdict") as caught:
        import_verdicts(engine, paths, "")

    assert caught.value.source == str(paths[-1])
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


def test_equal_datasets_may_come_at_the_same_time(engine: Engine, tmp_path: Path) -> None:
    """Two imports that both found nothing stored end with one dataset, which both share."""
    path = write_lines(tmp_path / "a.jsonl", a_line("a"), a_line("b"))
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

    import_verdicts(engine, [write_lines(tmp_path / "a.jsonl", *lines)], "")

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
    path = write_lines(tmp_path / "a.jsonl", a_line())

    with pytest.raises(StoreError, match="the database cannot be used"):
        import_verdicts(engine, [path], "")

    assert row_counts(engine) == {}


def sample_keys(engine: Engine, run_id: str) -> dict[str, int]:
    with Session(engine) as session:
        rows = session.execute(
            select(SAMPLES.c.command, SAMPLES.c.key)
            .join(VERDICTS, VERDICTS.c.sample_key == SAMPLES.c.key)
            .join(RUN_MODELS, RUN_MODELS.c.id == VERDICTS.c.run_model_id)
            .where(RUN_MODELS.c.run_id == run_id)
        )
        return {row.command: row.key for row in rows}


def test_equal_datasets_are_stored_once(engine: Engine, tmp_path: Path) -> None:
    """Whatever else of that name was stored in between: the samples are what counts."""

    def bring(*commands: str) -> dict[str, int]:
        path = write_lines(tmp_path / "a.jsonl", *[a_line(command) for command in commands])
        return sample_keys(engine, import_verdicts(engine, [path], "").run_id)

    first, larger = bring("a", "b"), bring("a", "b", "c")
    other, smaller = bring("x"), bring("a")
    assert bring("b", "a") == bring("a", "b") == first
    keys = [key for each in (first, larger, other, smaller) for key in each.values()]
    assert len(set(keys)) == len(keys) == 2 + 3 + 1 + 1

    counts = row_counts(engine)
    assert (counts["runs"], counts["datasets"], counts["samples"]) == (6, 4, 7)


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_columns_that_say_what_is_correct(engine: Engine, tmp_path: Path, suffix: str) -> None:
    """One for each rule set, also of a text that UTF-8 cannot hold; imports pass over them."""
    letters = {"block": BLOCK, "allow": ALLOW, "odd": "\ud800", "failed": None}
    lines = [
        a_line(name, completion=text, target=target, error_class=None if text else "auth")
        for name, text in letters.items()
        for target in ("malicious", "harmless")
    ]
    run_id = imported_run(engine, tmp_path, lines)
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
        ("block", "malicious"): True, ("block", "harmless"): False,
        ("allow", "malicious"): False, ("allow", "harmless"): True,
        ("odd", "malicious"): False, ("odd", "harmless"): False,
        ("failed", "malicious"): None, ("failed", "harmless"): None,
    }  # fmt: skip
    assert [row["correct____x_s__"] for row in rows] == [row["correct_aegish-5.3"] for row in rows]
    again = import_verdicts(engine, [path], "").run_id
    plain = [tmp_path / "first.jsonl", tmp_path / "second.jsonl"]
    for run, target in zip((run_id, again), plain, strict=True):
        export_file(engine, run, target)
    assert plain[0].read_bytes() == plain[1].read_bytes()
    with pytest.raises(ConfigError, match="the same name"):
        export_file(engine, run_id, path, [opinions[0], Opinion(replace(DEFAULT_RULE, version=2))])

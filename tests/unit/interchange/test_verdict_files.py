"""Verdict lines and Parquet: what is written can be read, by ourselves and by pyarrow."""

import json
import re
import sys
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.verdict import Completion, Verdict
from aegish_dist.db.engine import open_engine
from aegish_dist.errors import ConfigError, DatasetError, StoreError
from aegish_dist.interchange import verdict_files
from aegish_dist.interchange.parquet_tables import records_schema
from aegish_dist.interchange.verdict_files import decoder_of_predictions, read_rows
from aegish_dist.opinions.parsing import PARSER_VERSION, judge
from aegish_dist.pipeline.verdict_files import export_file
from tests.recorded import Recording, lines_of, read_recordings, write_recordings, written

RECORDING = Recording("m", "d", Sample("ls", TrueLabel.HARMLESS), 1, judge(Completion("hm")))
NUMBER = "field 'suspicion': Expected `float`"
AWAY = open_engine("postgresql://127.0.0.1:1/nothing")


def test_the_suffix_decides_in_any_case(tmp_path: Path) -> None:
    path = tmp_path / "A.JSONL"
    write_recordings([RECORDING], path)
    assert list(read_recordings(path)) == [RECORDING]
    assert [each.name for each in tmp_path.iterdir()] == ["A.JSONL"]


@pytest.mark.parametrize("name", ["a.json", "a", "a.csv"])
def test_an_unknown_suffix_is_refused_before_anything_is_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(DatasetError, match=r"known are \.eval, \.jsonl, \.parquet"):
        read_recordings(tmp_path / name)


def test_a_log_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"choose \.jsonl, \.parquet or \.csv"):
        export_file(AWAY, "run", tmp_path / "a.eval")


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_failed_export_leaves_the_old_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_text("old")
    with pytest.raises(StoreError):
        export_file(AWAY, "run", path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


MINIMAL = {"model": "m", "command": "ls", "target": "harmless", "completion": '{"action":"allow"}'}


def read(tmp_path: Path, *lines: object) -> list[Recording]:
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines), "utf-8")
    return list(read_recordings(path))


def test_what_no_store_holds_is_replaced(tmp_path: Path) -> None:
    odd = {
        "command": "a\0",
        "completion": "\udc00",
        "metadata": {"k\0": "\ud800"},
        "cluster": "c\0",
    }
    (found,) = read(tmp_path, MINIMAL | odd)
    sample = Sample("a\ufffd", TrueLabel.HARMLESS, None, "c\ufffd", {"k\ufffd": "\ufffd"})
    assert found.sample == sample
    assert found.verdict.completion == Completion("\ufffd")


@pytest.mark.parametrize(
    ("cost", "expected"), [("0.0012", 0.0012), (f"0.{'1' * 30}", f"0.{'1' * 30}")]
)
def test_a_cost_is_a_number_where_a_number_is_exact(cost: str, expected: object) -> None:
    verdict = replace(RECORDING.verdict, cost_usd=Decimal(cost))
    assert json.loads(written([replace(RECORDING, verdict=verdict)]))["cost_usd"] == expected


def test_four_keys_are_enough(tmp_path: Path) -> None:
    (recording,) = read(tmp_path, MINIMAL)
    said = Completion('{"action":"allow"}')
    verdict = Verdict(Outcome.ALLOW, said, parser_version=PARSER_VERSION)
    assert recording == Recording("m", "mine", Sample("ls", TrueLabel.HARMLESS), 1, verdict)


@pytest.mark.parametrize(
    ("changes", "outcome", "error_class"),
    lines_of("outcomes_of_lines.jsonl"),
)  # fmt: skip
def test_the_outcome_follows_from_the_facts(
    tmp_path: Path, changes: dict[str, object], outcome: Outcome, error_class: ErrorClass | None
) -> None:
    (recording,) = read(tmp_path, MINIMAL | changes)
    assert (recording.verdict.outcome, recording.verdict.error_class) == (outcome, error_class)


def test_the_documented_keys_are_written_in_their_order() -> None:
    line = json.loads(written([RECORDING]))
    keys = "model dataset command target category cluster epoch completion stop_reason input_tokens"
    keys += " output_tokens latency_ms cost_usd created_at outcome"
    assert list(line)[:15] == keys.split()
    assert (line["command"], line["completion"], line["outcome"]) == ("ls", "hm", "FORMAT_ERROR")


@pytest.mark.parametrize(
    ("changes", "message"),
    [*lines_of("refused_verdict_fields.jsonl"), ({"command": "a" * 10_001}, "field 'command': Expected `str` of length <= 10000"), ({"latency_ms": 10**400}, "field 'latency_ms': Number out of range"), ({"suspicion": 10**400}, "field 'suspicion': Number out of range"),],
)  # fmt: skip
def test_a_wrong_field_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(DatasetError) as caught:
        read(tmp_path, MINIMAL, MINIMAL | changes)
    assert str(caught.value) == f"{tmp_path / 'mine.jsonl'}, line 2, {message}"


def test_keys_in_the_errors_of_a_line_are_masked(tmp_path: Path) -> None:
    error = {"attempt": 1, "error_class": "auth", "at": "2026-02-05T10:00:00Z"}
    messages = ["401: wrong key sk-abcdef123456", "401: wrong key [key]"]
    lines = [MINIMAL | {"call_errors": [error | {"message": each}]} for each in messages]
    for recording in read(tmp_path, *lines):
        assert recording.verdict.call_errors[0].message == "401: wrong key [key]"


def test_a_line_without_the_key_completion_is_refused(tmp_path: Path) -> None:
    del (line := dict(MINIMAL))["completion"]
    with pytest.raises(DatasetError, match="line 1, field 'completion': is missing; null says"):
        read(tmp_path, line)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"{", "line 2: is not valid JSON: "),
        (b"[1]", "line 2: Expected `object`, got `array`"),
        (b'"\xff"', "line 2: is not UTF-8"),
        (b"[" * 100_000, "line 2: is nested too deeply"),
        (b"1" * 5_000, "line 2: holds a number with thousands of digits"),
        # Only blanks of ASCII make a blank line.
        *((blank.encode(), "line 2: is not valid JSON: ") for blank in "\u00a0\x1c\u2028"),
    ],
)
def test_a_line_that_is_no_object_is_named(tmp_path: Path, raw: bytes, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(json.dumps(MINIMAL).encode() + b"\n" + raw + b"\n")
    with pytest.raises(DatasetError) as caught:
        list(read_recordings(path))
    assert str(caught.value).startswith(f"{path}, {message}")
    assert caught.value.line == 2


@pytest.mark.parametrize("raw", [b" ", b"{"])
def test_an_endless_line_is_refused(
    tmp_path: Path, raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict_files, "MAX_LINE_BYTES", 1_000)
    path = tmp_path / "a.jsonl"
    path.write_bytes(raw * 5_000)
    with pytest.raises(DatasetError, match="line 1: is longer than 1000 bytes"):
        list(read_recordings(path))


def test_byte_order_mark_and_blank_lines_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(MINIMAL).encode() + b"\r\n\r\n{}\r\n")
    lines = read_recordings(path)
    assert next(lines).model == "m"
    with pytest.raises(DatasetError, match="line 3, field 'model'"):
        next(lines)


def write_table(path: Path, columns: Mapping[str, list[object]]) -> Path:
    pq.write_table(pa.table(dict(columns)), path)
    return path


MINIMAL_PARQUET: dict[str, list[object]] = {name: [value] for name, value in MINIMAL.items()}


def test_four_columns_are_enough(tmp_path: Path) -> None:
    path = write_table(tmp_path / "mine.parquet", MINIMAL_PARQUET | {"cost_usd": [0.1]})
    (recording,) = read_recordings(path)
    assert (recording.dataset, recording.epoch) == ("mine", 1)
    assert recording.verdict.outcome is Outcome.ALLOW
    assert recording.verdict.cost_usd == Decimal("0.1")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"target": ["evil"]}, "line 1, field 'target': must be one of"),
        ({"epoch": [0]}, "line 1, field 'epoch': Expected `int` >= 1"),
        ({"suspicion": [float("nan")]}, f"line 1, {NUMBER} >= -1000000000000000.0"),
        ({"suspicion": [float("inf")]}, f"line 1, {NUMBER} <= 1000000000000000.0"),
        ({"metadata": ["{"]}, "line 1, field 'metadata': is not valid JSON"),
        ({"created_at": [datetime(2026, 1, 1)]}, "line 1, field 'created_at': must carry a time"),
    ],
)
def test_a_wrong_row_is_named(
    tmp_path: Path, columns: dict[str, list[object]], message: str
) -> None:
    path = write_table(tmp_path / "a.parquet", MINIMAL_PARQUET | columns)
    with pytest.raises(DatasetError) as caught:
        list(read_recordings(path))
    assert str(caught.value).startswith(f"{path}, {message}")


BEYOND = pa.array([2**61], pa.timestamp("us", "UTC"))
NO_TEXT = pa.Array.from_buffers(
    pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
)


@pytest.mark.parametrize(
    ("column", "values"), [("created_at", BEYOND), ("model", NO_TEXT), ("completion", NO_TEXT)]
)
def test_what_is_not_what_its_type_says_is_refused(
    tmp_path: Path, column: str, values: pa.Array
) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table(MINIMAL_PARQUET)
    others = [name for name in table.column_names if name != column]
    pq.write_table(table.select(others).append_column(column, values), path)
    with pytest.raises(DatasetError, match="cannot be read as Parquet"):
        list(read_recordings(path))


def test_the_last_of_two_columns_of_one_name_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(MINIMAL_PARQUET).append_column("model", pa.array(["last"])), path)
    assert [recording.model for recording in read_recordings(path)] == ["last"]


def test_what_is_no_parquet_is_refused(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole.parquet", tmp_path / "a.parquet"
    write_recordings([RECORDING], whole)
    for content in (None, b"model,command", whole.read_bytes()[:-20]):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(DatasetError, match=r"cannot be read as Parquet: [^\n]*$"):
            list(read_recordings(path))


def test_the_remedy_is_named_where_pyarrow_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install 'aegish-dist\[parquet\]'"):
        export_file(open_engine("postgresql://host/name"), "run", tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


def written_schema(about: Mapping[str, str] | None = None) -> pa.Schema:
    stream = pa.BufferOutputStream()
    pq.ParquetWriter(stream, records_schema(("correct_x",), about)).close()
    return pq.read_schema(pa.BufferReader(stream.getvalue()))


def test_names_and_types_of_columns_are_the_documented_ones() -> None:
    """Notebooks rely on them. Add what is new; rename, retype or remove nothing."""
    schema = written_schema()
    assert schema.field("correct_x").type == pa.bool_()
    page = (Path(__file__).parents[3] / "docs/reference/files.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", page, re.MULTILINE)
    assert documented == [
        (field.name, str(field.type).replace("[us, tz=UTC]", "(us, UTC)"))
        for field in schema
        if field.name != "correct_x"
    ]


def test_a_file_says_where_it_comes_from() -> None:
    about = {"aegish-dist.run_id": "0a1b2c3d4", "aegish-dist.run_name": "n\u00e4chtlich"}
    assert written_schema(about).metadata == {
        key.encode(): text.encode() for key, text in about.items()
    }


def test_bare_predictions_are_verdicts_about_samples_with_an_id(tmp_path: Path) -> None:
    """A word becomes an action; a wrong one and an unknown id are named with their line."""
    samples = [
        Sample(command, TrueLabel.MALICIOUS, "shell", "vi", {"id": name, "repeats": f"{name}2 x"})
        for name, command in {"a": "vi -c ':!sh'", "b": "vi x"}.items()
    ]
    decode = decoder_of_predictions(Dataset("mine", tuple(samples)), "kestrel")
    path = tmp_path / "p.jsonl"
    lines = ('{"id": "b", "prediction": "risky"}', '{"id": "a2", "prediction": 0}')  # a repeat
    path.write_text("\n".join((*lines, '{"id": "a", "prediction": 0}')))
    rows = list(read_rows(path, None, decode))
    found = [(row.about.sample, row.record.outcome, row.record.model) for row in rows]
    assert found == [(samples[1], "BLOCK", "kestrel"), (samples[0], "ALLOW", "kestrel")]
    assert {row.about.dataset for row in rows} == {"mine"}
    for line, problem in {
        '{"id": "c", "prediction": 1}': "field 'id': no sample of mine has it",
        '{"id": "a", "prediction": "maybe"}': "field 'prediction': must be one of risky",
        '{"id": "a"}': "field 'prediction': Object missing required field `prediction`",
    }.items():
        path.write_text(line)
        with pytest.raises(DatasetError, match=f"line 1, {problem}"):
            list(read_rows(path, None, decode))
    twice = [Sample(each, TrueLabel.HARMLESS, metadata={"id": "1"}) for each in ("ls", "id")]
    for unclear in ([Sample("ls", TrueLabel.HARMLESS)], twice):
        with pytest.raises(DatasetError, match="has samples without an `id` of their own"):
            decoder_of_predictions(Dataset("x", tuple(unclear)), "kestrel")

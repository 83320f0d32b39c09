"""Verdicts as Parquet, read back by ourselves and by pyarrow."""

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aegish_dist.core.parsing import PARSER_VERSION
from aegish_dist.core.sample import Sample, Target
from aegish_dist.core.verdict import (
    CallError,
    Completion,
    ErrorClass,
    Outcome,
    Recording,
    StopKind,
    Timing,
    Usage,
    Verdict,
)
from aegish_dist.db.engine import open_engine
from aegish_dist.errors import ConfigError, DatasetError
from aegish_dist.interchange.parquet import RecordTables
from aegish_dist.interchange.reading import read_recordings
from aegish_dist.pipeline.export_verdicts import export_file
from tests.recorded import write_recordings

MOMENT = datetime(2026, 2, 5, 14, 56, 43, 396296, UTC)
RECORDING = Recording(
    "openai/gpt-x",
    "gtfobins",
    Sample("cat x", Target.MALICIOUS, "file-read", "cat", {"source": "a", "empty": ""}),
    2,
    Verdict(
        Outcome.FORMAT_ERROR,
        Completion("nul \ufffd", "stop", StopKind.STOP, Usage(100, 50, 7, 20, 10), model="gpt-x-1"),
        parser_version=PARSER_VERSION,
        cost_usd=Decimal("0.001457489878542510121457489879"),
        timing=Timing(1, 2, 3, 4.5, 10),
        attempts=2,
        worker="w",
        created_at=MOMENT,
        call_errors=(CallError(1, ErrorClass.SERVER, 500, None, "half", MOMENT),),
    ),
)
LATE = replace(RECORDING, verdict=Verdict(Outcome.TIMEOUT_ERROR, None, ErrorClass.DEADLINE))
EMPTY = replace(
    RECORDING,
    verdict=Verdict(Outcome.TIMEOUT_ERROR, Completion(None), parser_version=PARSER_VERSION),
)


def test_every_field_survives_a_round_trip(tmp_path: Path) -> None:
    """Rows with and without an answer are read as they were."""
    path = tmp_path / "a.parquet"
    recordings = [RECORDING, LATE, EMPTY]
    write_recordings(recordings, path)
    back = list(read_recordings(path))
    assert back == recordings
    assert back[0].sample.metadata == {"source": "a", "empty": ""}


def test_columns_are_typed_and_plain(tmp_path: Path) -> None:
    """Another reader sees the documented columns."""
    path = tmp_path / "a.parquet"
    write_recordings([RECORDING], path)
    table = pq.read_table(path)
    assert table.column_names[:5] == ["model", "dataset", "command", "target", "category"]
    assert table.schema.field("input_tokens").type == pa.int64()
    assert table.schema.field("latency_ms").type == pa.float64()
    assert table.schema.field("created_at").type == pa.timestamp("us", "UTC")
    assert table["completion"].to_pylist() == ["nul \ufffd"]


def test_no_recordings_make_a_file_without_rows(tmp_path: Path) -> None:
    """An empty export is a valid file."""
    path = tmp_path / "a.parquet"
    write_recordings([], path)
    assert list(read_recordings(path)) == []


def write_table(path: Path, columns: Mapping[str, list[object]]) -> Path:
    pq.write_table(pa.table(dict(columns)), path)
    return path


MINIMAL: dict[str, list[object]] = {
    "model": ["m"],
    "command": ["ls"],
    "target": ["harmless"],
    "completion": ['{"action": "allow"}'],
}


def test_four_columns_are_enough(tmp_path: Path) -> None:
    """A table of another tool is read like a verdict line."""
    path = write_table(tmp_path / "mine.parquet", MINIMAL | {"cost_usd": [0.1]})
    (recording,) = read_recordings(path)
    assert (recording.dataset, recording.epoch) == ("mine", 1)
    assert recording.verdict.outcome is Outcome.ALLOW
    assert recording.verdict.cost_usd == Decimal("0.1")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"target": ["evil"]}, "line 1, field 'target': must be one of"),
        ({"epoch": [0]}, "line 1, field 'epoch': must be from 1"),
        ({"metadata": ["{"]}, "line 1, field 'metadata': is not valid JSON"),
        ({"created_at": [datetime(2026, 1, 1)]}, "line 1, field 'created_at': must carry a time"),
    ],
)
def test_a_wrong_row_is_named(
    tmp_path: Path, columns: dict[str, list[object]], message: str
) -> None:
    """The message names file, row and field."""
    path = write_table(tmp_path / "a.parquet", MINIMAL | columns)
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
    """A time that no calendar has, a text that is no UTF-8."""
    path = tmp_path / "a.parquet"
    table = pa.table(MINIMAL)
    place = table.schema.get_field_index(column)
    table = (
        table.set_column(place, column, values)
        if place >= 0
        else table.append_column(column, values)
    )
    pq.write_table(table, path)
    with pytest.raises(DatasetError, match="cannot be read as Parquet"):
        list(read_recordings(path))


def test_the_last_of_two_columns_of_one_name_counts(tmp_path: Path) -> None:
    """As in JSON."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(MINIMAL).append_column("model", pa.array(["last"])), path)
    assert [recording.model for recording in read_recordings(path)] == ["last"]


def test_what_is_no_parquet_is_refused(tmp_path: Path) -> None:
    """Absent, foreign and truncated files each get one line."""
    path = tmp_path / "a.parquet"
    with pytest.raises(DatasetError, match="cannot be read as Parquet"):
        list(read_recordings(path))
    path.write_text("model,command")
    with pytest.raises(DatasetError, match="cannot be read as Parquet"):
        list(read_recordings(path))
    write_recordings([RECORDING], path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DatasetError, match=r"cannot be read as Parquet: [^\n]*$"):
        list(read_recordings(path))


def test_the_remedy_is_named_where_pyarrow_is_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parquet is an extra; who lacks it learns how to get it, and no file is left behind."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install 'aegish-dist\[parquet\]'"):
        export_file(open_engine("postgresql://host/name"), "run", tmp_path / "a.parquet")
    assert list(tmp_path.iterdir()) == []


def test_rows_that_were_never_answered_are_read(tmp_path: Path) -> None:
    """Even where a whole file holds no completion."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table(MINIMAL | {"completion": pa.array([None], pa.string())}), path)

    (recording,) = read_recordings(path)

    assert recording.verdict.outcome is Outcome.TIMEOUT_ERROR


TEXTS = (
    *("model", "dataset", "command", "target", "category", "cluster", "completion", "stop_reason"),
    *("cost_usd", "outcome", "reason", "error_class", "stop_kind", "refusal", "returned_model"),
    *("upstream", "request_id", "worker", "metadata", "call_errors"),
)
NUMBERS = (
    *("epoch", "input_tokens", "output_tokens", "parser_version", "generation", "attempts"),
    *("reasoning_tokens", "cache_read_tokens", "cache_write_tokens"),
)
FRACTIONS = ("latency_ms", "confidence", "queue_ms", "limiter_ms", "backoff_ms", "total_ms")
STABLE = {
    **dict.fromkeys(TEXTS, "string"),
    **dict.fromkeys(NUMBERS, "int64"),
    **dict.fromkeys(FRACTIONS, "double"),
    **dict.fromkeys(("answered", "pruned", "simulated"), "bool"),
    "created_at": "timestamp[us, tz=UTC]",
}
"""Columns on which notebooks rely. Add what is new; rename, retype or remove nothing."""


def written_schema(about: Mapping[str, str] | None = None) -> pa.Schema:
    stream = pa.BufferOutputStream()
    RecordTables(("correct_x",), about).write([], stream)
    return pq.read_schema(pa.BufferReader(stream.getvalue()))


def test_names_and_types_of_columns_are_stable() -> None:
    """They are part of the interface, and the documentation lists them."""
    schema = written_schema()
    found = {field.name: str(field.type) for field in schema}
    assert found.pop("correct_x") == "bool"
    assert found == STABLE
    page = (Path(__file__).parents[3] / "docs/files.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", page, re.MULTILINE)
    words = {
        "timestamp[us, tz=UTC]": "timestamp(us, UTC)",
        "list<element: string>": "list of string",
    }
    assert documented == [
        (name, words.get(str(kind), str(kind)))
        for name, kind in zip(schema.names, schema.types, strict=True)
        if name != "correct_x"
    ]


def test_a_file_says_where_it_comes_from() -> None:
    """In its metadata, which pandas and duckdb show."""
    about = {"aegish-dist.run_id": "0a1b2c3d4", "aegish-dist.run_name": "n\u00e4chtlich"}
    assert written_schema(about).metadata == {
        key.encode(): text.encode() for key, text in about.items()
    }

"""The fast way from a file to records gives what the tolerant way gives."""

import json
import tempfile
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aegish_dist.core.verdict import VerdictRecord
from aegish_dist.errors import DatasetError, InputError
from aegish_dist.inputs.documents import parse_json
from aegish_dist.interchange.record import RecordChecker, from_line, from_values
from aegish_dist.interchange.verdict_files import (
    from_odd_row,
    from_row,
    numbered_rows,
)
from tests.recorded import read_recordings, verdict_of

pytestmark = pytest.mark.long

PLAIN: dict[str, Any] = {
    "model": "m", "dataset": "d", "command": "ls", "target": "harmless", "category": None,
    "cluster": "ls", "epoch": 1, "stop_reason": "stop", "input_tokens": 10, "output_tokens": 2,
    "completion": '{"action": "allow", "reason": "r", "confidence": 0.5}',
    "latency_ms": 1.5, "cost_usd": 0.25, "created_at": "2026-02-05T14:56:43.396296+00:00",
    "answered": True, "error_class": None, "generation": 0, "simulated": False, "attempts": 1,
    "stop_kind": "stop", "refusal": None, "suspicion": 0.25, "returned_model": None, "upstream": None,
    "request_id": "r", "reasoning_tokens": None, "cache_read_tokens": 0,
    "cache_write_tokens": None, "queue_ms": 0, "limiter_ms": 0.0, "backoff_ms": None,
    "total_ms": 2.5, "worker": "w", "metadata": {"source": "s"}, "call_errors": [],
}  # fmt: skip
ODD = st.sampled_from(
    [
        *(None, True, False, -1, 0, 1, 7, 2**15, 2**31, 2**63, 10**30, -0.0, 0.5, 1e-7, 1e12, 1e13),
        *(float("nan"), float("inf"), "", " ", "x", "7", "1.5", "NaN", "1e3", "\0", "\ud800"),
        *("\ue000", "\ue0000000", "\\N", "a\tb\n", "x" * 201, "stop", "STOP", "max_tokens"),
        *("malicious", "deadline", "auth", "2026-02-05", "2026-02-05T10:00:00Z", "20260205T10Z"),
        *("2026-02-05T10:00:00", "0.1234567890123456789", "12345678901", "-1", "\uff11", "1_0"),
        *([], {}, [1], {"a": "b"}, {"a": 1}, {"a": None}, {"\0": "b"}, "{}", "[]", '{"a": "b"}'),
    ]
)


def outcome_of_reading(read: Callable[[], VerdictRecord]) -> object:
    try:
        record, about, _ = RecordChecker().row(read(), "file")
    except InputError as error:
        return error.what, error.field
    return about, about.sample.metadata, verdict_of(record), record.simulated


@settings(max_examples=400, deadline=None)
@given(changes=st.dictionaries(st.sampled_from(sorted(PLAIN)), ODD, max_size=2), gone=st.booleans())
def test_odd_lines_are_judged_alike(changes: dict[str, Any], gone: bool) -> None:
    line = {key: value for key, value in PLAIN.items() if not (gone and key in changes)}
    text = json.dumps(line if gone else line | changes).encode()
    values = parse_json(text, Decimal)
    assert isinstance(values, dict)
    assert outcome_of_reading(partial(from_line, text)) == outcome_of_reading(
        partial(from_values, values)
    )


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"ignored": ' + "1" * 5000 + ", ", "thousands of digits"),
        ('{"ignored": "\\q", ', "not valid JSON"),
        ('{"ignored": 01, ', "not valid JSON"),
        ('{"ignored": "\xff", ', "not UTF-8"),
        ('{"ignored": NaN, ', None),
        ('{"ignored": "\\ud800", ', None),
        ('{"metadata": {"a": "\\u0000"}, "metadata": {}, ', None),
        ('{"metadata": {"a": "\\u0000"}, ', None),
        ('{"dataset": "\\u2003", "command": "\\u2003", ', None),
        ("\ufeff" + '{"epoch": 1, ', None),
    ],
)
def test_what_is_passed_over_has_to_be_json(tmp_path: Path, line: str, problem: str | None) -> None:
    path = tmp_path / "a.jsonl"
    encoding = "latin-1" if "\xff" in line else "utf-8"
    path.write_bytes((line + json.dumps(PLAIN)[1:] + "\n").encode(encoding))
    if problem is None:
        (recording,) = read_recordings(path)
        assert recording.sample.metadata == {"source": "s"}
    else:
        with pytest.raises(DatasetError, match=problem):
            list(read_recordings(path))


@settings(max_examples=200, deadline=None)
@given(changes=st.dictionaries(st.sampled_from(sorted(PLAIN)), ODD, max_size=2))
def test_odd_rows_of_tables_are_judged_alike(changes: dict[str, Any]) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    nested = {"metadata": '{"source": "s"}', "call_errors": "[]", "cost_usd": "0.25"}
    plain = PLAIN | nested | {"created_at": datetime.fromisoformat(PLAIN["created_at"])}
    try:
        columns = {key: [value, value] for key, value in (plain | changes).items()}
        columns["command"] = ["first", columns["command"][0]]
        table = pa.table(columns)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError, TypeError):
        return  # no table holds such
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.parquet"
        try:
            pq.write_table(table, path)
        except pa.ArrowNotImplementedError:
            return
        for _, row in numbered_rows(path):
            assert outcome_of_reading(partial(from_row, row)) == outcome_of_reading(
                partial(from_odd_row, row)
            )

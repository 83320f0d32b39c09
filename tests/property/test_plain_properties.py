"""The short way from a file to rows gives what the long way gives."""

import json
import tempfile
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aegish_dist.core.parsing import outcome_of, parse
from aegish_dist.core.recording import CELLS, Cells, Recording, to_cells
from aegish_dist.core.sample import Sample
from aegish_dist.errors import DatasetError
from aegish_dist.recordings import read_recordings, write_recordings
from aegish_dist.recordings.chunks import ChunkReader, Row, split
from aegish_dist.recordings.plain import opinion
from tests.property.test_recording_properties import RECORDINGS

MEANING: dict[str, Any] = {
    **dict.fromkeys(("confidence", "queue_ms", "limiter_ms", "backoff_ms"), float),
    **dict.fromkeys(("service_ms", "total_ms"), float),
    "cost_usd": Decimal,
    "created_at": datetime.fromisoformat,
}
PLAIN: dict[str, Any] = {
    "model": "m",
    "dataset": "d",
    "command": "ls",
    "target": "harmless",
    "category": None,
    "cluster": "ls",
    "epoch": 1,
    "completion": '{"action": "allow", "reason": "r", "confidence": 0.5}',
    "stop_reason": "stop",
    "input_tokens": 10,
    "output_tokens": 2,
    "latency_ms": 1.5,
    "cost_usd": 0.25,
    "created_at": "2026-02-05T14:56:43.396296+00:00",
    "answered": True,
    "error_class": None,
    "generation": 0,
    "simulated": False,
    "attempts": 1,
    "stop_kind": "stop",
    "refusal": None,
    "returned_model": None,
    "upstream": None,
    "request_id": "r",
    "reasoning_tokens": None,
    "cache_read_tokens": 0,
    "cache_write_tokens": None,
    "queue_ms": 0,
    "limiter_ms": 0.0,
    "backoff_ms": None,
    "total_ms": 2.5,
    "worker": "w",
    "metadata": {"source": "s"},
    "call_errors": [],
}
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


def understood(cells: Cells) -> dict[str, Any]:
    return {
        name: None if cell is None else MEANING.get(name, str)(cell)
        for name, cell in zip(CELLS, cells, strict=True)
    }


def rows(path: Path) -> list[Row]:
    reader = ChunkReader()
    return [row for chunk in split(path) for row in reader.read(chunk)]


def require_alike(found: Iterable[Row], recordings: Iterable[Recording]) -> None:
    metadata: dict[Sample, Mapping[str, str]] = {}
    for row, recording in zip(found, recordings, strict=True):
        sample = recording.sample
        first = metadata.setdefault(sample, sample.metadata)
        assert (row.model, row.about) == (
            recording.model,
            (recording.dataset, sample.sample_id, sample),
        )
        assert row.about.sample.metadata in (first, sample.metadata)
        assert understood(row.cells) == understood(to_cells(recording))
        assert row.simulated == recording.simulated
        assert row.errors == recording.verdict.call_errors


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@settings(max_examples=60, deadline=None)
@given(recordings=st.lists(RECORDINGS, max_size=4))
def test_recordings_become_the_same_rows(suffix: str, recordings: list[Recording]) -> None:
    """Field by field, whatever was recorded."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a{suffix}"
        write_recordings(recordings, path)
        require_alike(rows(path), recordings)


@settings(max_examples=400, deadline=None)
@given(changes=st.dictionaries(st.sampled_from(sorted(PLAIN)), ODD, max_size=2), gone=st.booleans())
def test_odd_lines_are_judged_alike(changes: dict[str, Any], gone: bool) -> None:
    """What one way refuses the other refuses, and what both read means the same."""
    line = {key: value for key, value in PLAIN.items() if not (gone and key in changes)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        text = json.dumps(line if gone else line | changes)
        path.write_text(f"{json.dumps(PLAIN)}\n{text}\n", "ascii")
        try:
            expected = list(read_recordings(path))
        except DatasetError:
            with pytest.raises(DatasetError):
                rows(path)
        else:
            require_alike(rows(path), expected)


@pytest.mark.parametrize(
    "line",
    [
        '{"ignored": ' + "1" * 5000 + ", ",
        '{"ignored": "\\q", ',
        '{"ignored": 01, ',
        '{"ignored": "\xff", ',
        '{"ignored": NaN, ',
        '{"ignored": "\\ud800", ',
        '{"metadata": {"a": "\\u0000"}, "metadata": {}, ',
        '{"metadata": {"a": "\\u0000"}, ',
        '{"dataset": "\\u2003", "command": "\\u2003", ',
        "\ufeff" + '{"epoch": 1, ',
    ],
)
def test_what_is_passed_over_is_judged_alike(tmp_path: Path, line: str) -> None:
    """A key nobody knows, or one that comes twice, may make a line no JSON all the same."""
    path = tmp_path / "a.jsonl"
    encoding = "latin-1" if "\xff" in line else "utf-8"
    path.write_bytes((line + json.dumps(PLAIN)[1:] + "\n").encode(encoding))
    try:
        expected = list(read_recordings(path))
    except DatasetError:
        with pytest.raises(DatasetError):
            rows(path)
    else:
        require_alike(rows(path), expected)


@settings(max_examples=200, deadline=None)
@given(changes=st.dictionaries(st.sampled_from(sorted(PLAIN)), ODD, max_size=2))
def test_odd_rows_of_tables_are_judged_alike(changes: dict[str, Any]) -> None:
    """Whatever types the columns of other tools have."""
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
        try:
            expected = list(read_recordings(path))
        except DatasetError:
            with pytest.raises(DatasetError):
                rows(path)
        else:
            require_alike(rows(path), expected)


ANSWERS = st.fixed_dictionaries(
    {},
    optional={
        "action": st.sampled_from(["ALLOW", "block", " Warn ", "", 1, None]),
        "reason": st.sampled_from(
            ["r", "", '"action": "WARN"', "<think>", "\ud800", "\0", 1, None]
        ),
        "confidence": st.sampled_from(
            [0, 1, 0.5, -0.0, 1.5, True, "1", None, float("nan"), 1e-7, 10**400]
        ),
        "more": st.sampled_from([{"action": "ALLOW"}, [], "\ud800", float("inf")]),
        "Action": st.sampled_from(["WARN", 1]),
        "REASON": st.sampled_from(["R", None]),
        "Confidence": st.sampled_from([0.25, None]),
    },
)


@example({"action": "ALLOW", "REASON": "R", "Confidence": 0.25}, "", "")
@given(
    answer=ANSWERS,
    before=st.sampled_from(["", " ", "\n", "\u00a0", "{", "<think>", "x", "\ufeff"]),
    after=st.sampled_from(["", "\n", "}", ' {"action": "WARN"}', "</think>", '"action": "ALLOW"']),
)
def test_the_short_way_to_an_opinion_is_right(
    answer: dict[str, Any], before: str, after: str
) -> None:
    """It gives what the parser gives, whatever stands in and around the object."""
    for ascii_only in (True, False):
        text = before + json.dumps(answer, ensure_ascii=ascii_only) + after
        parsed = parse(text)
        confidence = None if parsed.confidence is None else repr(parsed.confidence)
        assert opinion(text) == (outcome_of(text, parsed), parsed.reason, confidence)

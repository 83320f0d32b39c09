"""Label checks one by one; hostile sizes are refused within bounded memory."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from aegish_dist.core.sample import Sample, TrueLabel
from aegish_dist.datasets import table
from aegish_dist.datasets.draft import CATEGORIES, Problem, Severity, problems
from aegish_dist.datasets.table import read_dataset
from aegish_dist.errors import DatasetError
from aegish_dist.interchange import verdict_files as verdict_parquet
from aegish_dist.interchange.verdict_files import read_rows
from tests.recorded import lines_of


def malicious(
    command: str = "nc -l 4444", category: str | None = "bind-shell", **rest: Any
) -> Sample:
    return Sample(command, TrueLabel.MALICIOUS, category, **rest)


def harmless(command: str = "ls", **rest: Any) -> Sample:
    return Sample(command, TrueLabel.HARMLESS, **rest)


def only(samples: Sequence[Sample], **options: Any) -> Problem:
    (problem,) = problems(samples, **options)
    return problem


def test_clean_samples_have_no_problems() -> None:
    samples = [malicious(f"a\n\tb {each}", each, cluster="a") for each in CATEGORIES]
    assert problems([*samples, harmless(metadata={"source": "me"})]) == ()


def sample_of(row: dict[str, Any]) -> Sample:
    return Sample(**{**row, "target": TrueLabel(row["target"])})


@pytest.mark.parametrize(
    ("row", "field", "message"),
    [
        *lines_of("draft_errors.jsonl"),
        ({"command": "x" * 10_001, "target": "harmless"}, "command", "has 10,001 characters, at most 10,000 are allowed"),
    ],
)  # fmt: skip
def test_errors(row: dict[str, Any], field: str, message: str) -> None:
    problem = only([sample_of(row)])
    assert (problem.severity, problem.record, problem.field) == (Severity.ERROR, 1, field)
    assert problem.message.startswith(message)


@pytest.mark.parametrize(("row", "field", "message"), lines_of("draft_warnings.jsonl"))
def test_what_is_suspect_is_a_warning(row: dict[str, Any], field: str, message: str) -> None:
    problem = only([sample_of(row)])
    assert (problem.severity, problem.field) == (Severity.WARNING, field)
    assert problem.message.startswith(message)


@pytest.mark.parametrize(
    "row",
    [*lines_of("draft_no_problems.jsonl"), {"command": "x" * 10_000, "target": "harmless"}],
)
def test_what_only_looks_like_a_problem(row: dict[str, Any]) -> None:
    assert problems([sample_of(row)]) == ()


def test_duplicate_names_both_lines() -> None:
    samples = [malicious("ls"), harmless("pwd"), harmless("ls")]
    problem = only(samples, lines=[2, 5, 9])
    assert (problem.severity, problem.record, problem.field) == (Severity.ERROR, 9, "command")
    assert problem.message == "the same command as in line 2, which is labelled malicious"


LINE = b'{"command":"a","target":"harmless"}\n'


def refused(path: Path) -> str:
    with pytest.raises(DatasetError) as caught:
        read_dataset(path)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(str(path))


def parquet(path: Path, columns: Mapping[str, object], **options: object) -> Path:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table(columns), path, **options)
    return path


@pytest.mark.parametrize("name", ["d.jsonl", "d.csv", "d.json", "d.parquet"])
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, name: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    os.mkfifo(tmp_path / name)
    assert "not a regular file" in refused(tmp_path / name)


def test_a_table_of_600_megabytes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    with path.open("wb") as file:
        file.truncate(600 * 10**6)
    assert refused(path) == (
        ": cannot be read: larger than 64 MiB, the most that is read of such a file"
    )


@pytest.mark.parametrize("name", ["d.jsonl", "d.csv", "d.json", "d.parquet"])
def test_too_many_samples_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(table, "MAX_SAMPLES", 3)
    path = tmp_path / name
    match path.suffix:
        case ".jsonl":
            path.write_bytes(LINE * 4)
        case ".csv":
            path.write_text("command,target\n" + "a,harmless\n" * 4)
        case ".json":
            path.write_text(json.dumps({"commands": [{"command": "a"}] * 4}))
        case _:
            parquet(path, {"command": ["a"] * 4, "target": ["harmless"] * 4})
    assert "more than 3 samples are not read" in refused(path)


def test_long_lines_and_many_columns_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(LINE + b'{"a": "' + b"x" * 2**20 + b'"}')
    assert refused(path) == ", line 2: is longer than 1,048,576 characters"
    path = tmp_path / "d.csv"
    path.write_text("command,target," + ",".join(f"c{n}" for n in range(100_000)))
    assert refused(path) == ", line 1: has more than 1,000 columns"


@pytest.mark.parametrize("depth", range(200, 1000, 25))
def test_metadata_of_any_depth_are_read_or_refused(tmp_path: Path, depth: int) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text(f'{{"command": "a", "target": "harmless", "n": {"[" * depth}{"]" * depth}}}')
    try:
        assert len(read_dataset(path).samples) == 1
    except DatasetError as error:
        assert "nested too deeply" in str(error)  # noqa: PT017


READ = """
import resource, sys
from pathlib import Path
from aegish_dist.inputs.documents import load_pyarrow
from aegish_dist.datasets.table import read_dataset
from aegish_dist.errors import DatasetError
from aegish_dist.interchange.verdict_files import read_rows
path = Path(sys.argv[2])
load_pyarrow()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    if sys.argv[1] == "dataset":
        read_dataset(path)
    else:
        for _ in read_rows(path):
            pass
except DatasetError as error:
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print((after - before) // 1024, error)
"""


def cost_and_message(kind: str, path: Path) -> tuple[float, str]:
    done = subprocess.run(
        [sys.executable, "-c", READ, kind, path], capture_output=True, text=True, check=True
    )
    mebibytes, _, problem = done.stdout.partition(" ")
    return int(mebibytes), problem.removeprefix(str(path)).rstrip("\n")


@pytest.mark.parametrize("kind", ["dataset", "verdicts"])
def test_a_long_text_repeated_by_parquet_is_refused(tmp_path: Path, kind: str) -> None:
    pa = pytest.importorskip("pyarrow")
    text = pa.DictionaryArray.from_arrays([0] * 20_000, ["x" * 2_000_000])
    path = parquet(
        tmp_path / "d.parquet",
        {
            "model": ["m"] * 20_000,
            "command": text,
            "target": ["harmless"] * 20_000,
            "completion": ["a"] * 20_000,
        },
        compression="zstd",
        store_schema=False,  # it would tell Arrow to read a dictionary in any case
    )
    assert path.stat().st_size < 10**6
    mebibytes, problem = cost_and_message(kind, path)
    assert "rows take" in problem
    assert mebibytes < 150


def test_a_text_beyond_the_limit_in_parquet_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"command": ["x" * 70 * 2**20], "target": ["harmless"]}
    path = parquet(tmp_path / "d.parquet", columns, compression="zstd", use_dictionary=False)
    mebibytes, problem = cost_and_message("dataset", path)
    assert "a group of rows take 70 MiB, at most 64 MiB are read" in problem
    assert mebibytes < 50
    few = replace(verdict_parquet.LIMITS, group_bytes=2**20)
    monkeypatch.setattr(verdict_parquet, "LIMITS", few)
    with pytest.raises(DatasetError, match="a group of rows take 70 MiB"):
        list(read_rows(path))


@pytest.mark.parametrize("kind", ["dataset", "verdicts"])
def test_many_rows_of_nothing_in_parquet_are_refused(tmp_path: Path, kind: str) -> None:
    pa = pytest.importorskip("pyarrow")
    path = parquet(
        tmp_path / "d.parquet", {"target": pa.nulls(6_000_000, pa.string())}, row_group_size=10**8
    )
    mebibytes, problem = cost_and_message(kind, path)
    assert "6,000,000 rows, at most" in problem
    assert mebibytes < 50


def test_samples_take_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    line = b'{"command":"a","target":"harmless","a":[[],[],[],[],[],[],[],[],[],[]],"b":{"c":0,"d":1}}\n'
    path.write_bytes(line * 40_000 + b"!")
    mebibytes, problem = cost_and_message("dataset", path)
    assert problem.startswith(", line 40001: is not valid JSON")
    assert mebibytes < 128

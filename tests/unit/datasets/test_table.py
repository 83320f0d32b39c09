"""Datasets in files: what is read and written, and how wrong ones are refused."""

import json
import sys
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.datasets.table import export_dataset, read_aegish, read_dataset, read_table
from aegish_dist.errors import ConfigError, DatasetError
from tests.recorded import lines_of

GOOD = {"command": "ls", "target": "harmless"}


def write(path: Path, content: object) -> Path:
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_bytes(text.encode())
    return path


def jsonl(path: Path, *rows: object) -> Path:
    return write(path, "".join(json.dumps(row) + "\n" for row in rows))


def refused(path: Path) -> DatasetError:
    with pytest.raises(DatasetError) as caught:
        read_dataset(path).checked()
    assert "\n" not in str(caught.value)
    assert caught.value.source == str(path)
    return caught.value


def test_commands_by_category(tmp_path: Path) -> None:
    content = {
        "metadata": {"source": "GTFOBins"},
        "commands": [{"command": "aa-exec /bin/sh", "binary": "aa-exec", "category": "shell"}],
    }
    dataset = read_aegish(write(tmp_path / "gtfobins.json", content)).checked()
    assert (dataset.name, dataset.source, dataset.licence) == ("gtfobins", "GTFOBins", "")
    assert dataset.samples == (Sample("aa-exec /bin/sh", TrueLabel.MALICIOUS, "shell", "aa-exec"),)
    assert dataset.samples[0].metadata == {}


def test_commands_by_ground_truth(tmp_path: Path) -> None:
    content = {
        "metadata": {"license": "MIT"},
        "commands": [
            {"command": "ls", "prompt": "List files", "ground_truth": "ALLOW"},
            {"command": "id", "ground_truth": "WARN", "category": "command"},
            {"command": "sh", "ground_truth": "BLOCK", "category": "shell", "binary": "sh"},
        ],
    }
    dataset = read_aegish(write(tmp_path / "x.json", content), "mine").checked()
    assert (dataset.name, dataset.source, dataset.licence) == ("mine", "x.json", "MIT")
    assert dataset.samples == (
        Sample("ls", TrueLabel.HARMLESS),
        Sample("id", TrueLabel.MALICIOUS, "command"),
        Sample("sh", TrueLabel.MALICIOUS, "shell", "sh"),
    )
    assert dataset.samples[0].metadata == {"prompt": "List files", "ground_truth": "ALLOW"}


@pytest.mark.parametrize(
    ("command", "field"),
    lines_of("refused_aegish_commands.jsonl"),
)
def test_wrong_command(tmp_path: Path, command: dict[str, object] | str, field: str) -> None:
    good = {"command": "ls", "ground_truth": "ALLOW"}
    error = refused(write(tmp_path / "x.json", {"commands": [good, command]}))
    assert (error.line, error.field) == (2, field)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{\n\n!", "line 3: is not valid JSON"),
        ("[" * 100_000, "is nested too deeply"),
        ("1" * 5_000, "holds a number with thousands of digits"),
        ([], "Expected `object`, got `array`"),
        ({}, "field 'commands': Expected `array`, got `null`"),
        ({"commands": [], "metadata": 1}, "field 'metadata': Expected `object`, got `int`"),
        ({"commands": []}, "holds no samples"),
    ],
)
def test_wrong_file(tmp_path: Path, content: object, message: str) -> None:
    assert message in str(refused(write(tmp_path / "x.json", content)))


DATASET = Dataset(
    "mine",
    (
        Sample(
            'echo "ä,\u2028"\n\tcat',
            TrueLabel.MALICIOUS,
            "shell",
            "echo",
            {"needs_root": "true", "empty": ""},
        ),
        Sample("=1+1", TrueLabel.HARMLESS, metadata={"source": "row's own", "licence": "MIT"}),
    ),
    "GTFOBins, commit 0123",
    "GPL-3.0",
)


def test_jsonl_round_trip_is_lossless(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    export_dataset(DATASET, path)
    back = read_table(path).checked()
    assert back == DATASET
    assert [sample.metadata for sample in back.samples] == [s.metadata for s in DATASET.samples]
    assert back.fingerprint == DATASET.fingerprint


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_flat_formats_keep_the_samples(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"mine.{suffix}"
    export_dataset(DATASET, path)
    back = read_table(path).checked()
    assert back.fingerprint == DATASET.fingerprint
    assert [sample.metadata for sample in back.samples] == [
        {"needs_root": "true", "source": "GTFOBins, commit 0123", "licence": "GPL-3.0"},
        {"source": "row's own", "licence": "MIT"},
    ]


def test_an_unknown_format_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match=r"is none of \.jsonl, \.csv, \.parquet"):
        export_dataset(DATASET, tmp_path / "mine.txt")


def test_jsonl(tmp_path: Path) -> None:
    row = {
        "command": "cat /etc/shadow\u2028x",
        "target": "malicious",
        "category": "file-read",
        "cluster": "cat",
        "metadata": {"a": "1", "gone": None},
        "note": "n",
        "n": 3,
        "yes": True,
        "tags": ["x"],
    }
    path = write(
        tmp_path / "My set.jsonl",
        f"\ufeff{json.dumps(row, ensure_ascii=False)}\n\n{json.dumps(GOOD)}",
    )
    dataset = read_table(path).checked()
    assert dataset.name == "My-set"
    assert dataset.source == "My set.jsonl"
    assert dataset.samples == (
        Sample("cat /etc/shadow\u2028x", TrueLabel.MALICIOUS, "file-read", "cat"),
        Sample("ls", TrueLabel.HARMLESS),
    )
    texts = {"a": "1", "note": "n", "n": "3", "yes": "true", "tags": '["x"]'}
    assert dataset.samples[0].metadata == texts
    assert dataset.samples[1].metadata == {}


def test_source_and_licence_of_all_rows_describe_the_dataset(tmp_path: Path) -> None:
    rows = [
        {**GOOD, "source": "NL2Bash", "licence": "MIT"},
        {**GOOD, "command": "pwd", "source": "NL2Bash", "licence": "CC-BY-4.0"},
    ]
    dataset = read_table(jsonl(tmp_path / "d.jsonl", *rows), "mine").checked()
    assert (dataset.name, dataset.source, dataset.licence) == ("mine", "NL2Bash", "")
    assert [sample.metadata for sample in dataset.samples] == [
        {"licence": "MIT"},
        {"licence": "CC-BY-4.0"},
    ]


def test_csv(tmp_path: Path) -> None:
    text = '\ufeffcommand,target,category,cluster,licence,note\n"a ""b""\nc",malicious,shell,a,MIT,\n\nls,harmless,,,MIT,n\n'
    dataset = read_table(write(tmp_path / "d.csv", text)).checked()
    assert dataset.samples == (
        Sample('a "b"\nc', TrueLabel.MALICIOUS, "shell", "a"),
        Sample("ls", TrueLabel.HARMLESS),
    )
    assert [sample.metadata for sample in dataset.samples] == [{}, {"note": "n"}]
    assert dataset.licence == "MIT"


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    rows = [
        {**GOOD, "category": None, "n": 1.5},
        {"command": "sh", "target": "malicious", "category": "shell", "n": 2.0},
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    dataset = read_table(path).checked()
    assert dataset.samples == (
        Sample("ls", TrueLabel.HARMLESS),
        Sample("sh", TrueLabel.MALICIOUS, "shell"),
    )
    assert dataset.samples[0].metadata == {"n": "1.5"}


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"pip install 'aegish-dist\[parquet\]'"):
        read_table(tmp_path / "d.parquet").checked()


@pytest.mark.parametrize(
    ("row", "field"),
    [
        *lines_of("refused_dataset_rows.jsonl"),
        *((text, None) for text in ("{", "[1]", "7", "[" * 100_000, "nul")),
        ('{"n": ' + "9" * 5_000 + "}", None),
    ],
)
def test_wrong_jsonl_row(tmp_path: Path, row: str | dict[str, object], field: str | None) -> None:
    text = row if isinstance(row, str) else json.dumps(row)
    error = refused(write(tmp_path / "d.jsonl", f"{json.dumps(GOOD)}\n{text}\n"))
    assert (error.line, error.field) == (2, field)


@pytest.mark.parametrize(
    ("text", "line", "field"),
    [
        *lines_of("refused_csv.jsonl"),
        (f"command,target\n{'x' * 140_000},harmless\n", 2, None),
    ],
)
def test_wrong_csv(tmp_path: Path, text: str, line: int, field: str | None) -> None:
    error = refused(write(tmp_path / "d.csv", text))
    assert (error.line, error.field) == (line, field)


@pytest.mark.parametrize(("name", "text"), [("d.jsonl", "\n"), ("d.csv", "command,target\n")])
def test_empty(tmp_path: Path, name: str, text: str) -> None:
    assert "holds no samples" in str(refused(write(tmp_path / name, text)))


def test_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b"\n\xff\n")
    assert refused(path).line == 2


def test_missing_file_and_other_formats(tmp_path: Path) -> None:
    assert "no such file" in str(refused(tmp_path / "d.jsonl"))
    assert "is none of .jsonl, .csv, .parquet" in str(refused(write(tmp_path / "d.xlsx", "")))
    assert "cannot be read as Parquet" in str(refused(write(tmp_path / "d.parquet", "no")))


@pytest.mark.parametrize("name", ["", "a,b", "../x", "x" * 101, "a\nb"])
def test_name_that_cannot_be_typed(tmp_path: Path, name: str) -> None:
    with pytest.raises(DatasetError, match="is no dataset name"):
        read_table(jsonl(tmp_path / "d.jsonl", GOOD), name).checked()

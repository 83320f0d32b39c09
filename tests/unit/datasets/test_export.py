"""Export: a written file is read as it was."""

from pathlib import Path

import pytest

from aegish_dist.core.sample import Dataset, Sample, Target
from aegish_dist.datasets.export import export_dataset
from aegish_dist.datasets.table import read_table
from aegish_dist.errors import DatasetError, OutputError

DATASET = Dataset(
    "mine",
    (
        Sample(
            'echo "ä,\u2028"\n\tcat',
            Target.MALICIOUS,
            "shell",
            "echo",
            {"needs_root": "true", "empty": ""},
        ),
        Sample("=1+1", Target.HARMLESS, metadata={"source": "row's own", "licence": "MIT"}),
    ),
    "GTFOBins, commit 0123",
    "GPL-3.0",
)


def test_jsonl_round_trip_is_lossless(tmp_path: Path) -> None:
    """Samples, metadata, source and licence are all read from JSONL."""
    path = tmp_path / "mine.jsonl"
    export_dataset(DATASET, path)
    back = read_table(path).checked()
    assert back == DATASET
    assert [sample.metadata for sample in back.samples] == [s.metadata for s in DATASET.samples]
    assert back.fingerprint == DATASET.fingerprint


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_flat_formats_keep_the_samples(tmp_path: Path, suffix: str) -> None:
    """CSV and Parquet bring back the same samples; source and licence go to their rows."""
    path = tmp_path / f"mine.{suffix}"
    export_dataset(DATASET, path)
    back = read_table(path).checked()
    assert back.fingerprint == DATASET.fingerprint
    assert [sample.metadata for sample in back.samples] == [
        {"needs_root": "true", "source": "GTFOBins, commit 0123", "licence": "GPL-3.0"},
        {"source": "row's own", "licence": "MIT"},
    ]


def test_replaces_a_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    """After an export there is the file and nothing beside it."""
    path = tmp_path / "mine.jsonl"
    path.write_text("old")
    export_dataset(DATASET, path)
    assert [file.name for file in tmp_path.iterdir()] == ["mine.jsonl"]
    assert "old" not in path.read_text(encoding="utf-8")


def test_failed_export_keeps_the_old_file(tmp_path: Path) -> None:
    """When writing breaks off, the old file is untouched and no part is left."""
    path = tmp_path / "mine.jsonl"
    path.write_text("old")
    unwritable = Dataset("mine", (*DATASET.samples, Sample("\ud800", Target.HARMLESS)))
    with pytest.raises(UnicodeEncodeError):
        export_dataset(unwritable, path)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["mine.jsonl"]


def test_refuses_what_it_cannot_write(tmp_path: Path) -> None:
    """An unknown format and a missing directory are one-line errors."""
    with pytest.raises(DatasetError, match=r"is none of \.jsonl, \.csv, \.parquet"):
        export_dataset(DATASET, tmp_path / "mine.txt")
    with pytest.raises(OutputError, match="cannot be written: No such file or directory"):
        export_dataset(DATASET, tmp_path / "none" / "mine.jsonl")
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot be written: Not a directory"):
        export_dataset(DATASET, tmp_path / "file" / "mine.jsonl")

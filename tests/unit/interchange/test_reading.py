"""Which file is read how, and that no half-written one is left."""

from pathlib import Path

import pytest

from aegish_dist.core.parsing import judge
from aegish_dist.core.sample import Sample, Target
from aegish_dist.core.verdict import Completion, Recording
from aegish_dist.db.engine import open_engine
from aegish_dist.errors import DatasetError, OutputError, StoreError
from aegish_dist.interchange.reading import read_recordings
from aegish_dist.pipeline.export_verdicts import export_file
from tests.recorded import write_recordings

RECORDING = Recording("m", "d", Sample("ls", Target.HARMLESS), 1, judge(Completion("hm")))
AWAY = open_engine("postgresql://127.0.0.1:1/nothing")


def test_the_suffix_decides_in_any_case(tmp_path: Path) -> None:
    """An upper-case suffix is the same suffix."""
    path = tmp_path / "A.JSONL"
    write_recordings([RECORDING], path)
    assert list(read_recordings(path)) == [RECORDING]
    assert [each.name for each in tmp_path.iterdir()] == ["A.JSONL"]


@pytest.mark.parametrize("name", ["a.json", "a", "a.csv"])
def test_an_unknown_suffix_is_refused_before_anything_is_read(tmp_path: Path, name: str) -> None:
    """The message lists what can be read."""
    with pytest.raises(DatasetError, match=r"known are \.eval, \.jsonl, \.parquet"):
        read_recordings(tmp_path / name)


def test_a_log_cannot_be_written(tmp_path: Path) -> None:
    """Logs are read only."""
    with pytest.raises(DatasetError, match=r"choose \.jsonl or \.parquet"):
        export_file(AWAY, "run", tmp_path / "a.eval")


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_failed_export_leaves_the_old_file(tmp_path: Path, suffix: str) -> None:
    """Only a complete file takes the place of one that was there."""
    path = tmp_path / f"a{suffix}"
    path.write_text("old")
    with pytest.raises(StoreError):
        export_file(AWAY, "run", path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A missing folder is the user's mistake, not a bug."""
    with pytest.raises(OutputError, match=r"a\.jsonl cannot be written: No such file"):
        export_file(AWAY, "run", tmp_path / "absent" / "a.jsonl")

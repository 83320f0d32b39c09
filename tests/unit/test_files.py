"""Files are written whole or not at all."""

from pathlib import Path

import pytest

from aegish_dist.errors import OutputError
from aegish_dist.files import replacing


def test_a_file_is_replaced_when_the_body_succeeds(tmp_path: Path) -> None:
    """Until then the old content is there; afterwards the new one, and no other file."""
    path = tmp_path / "report.html"
    path.write_text("old")
    with replacing(path) as part:
        part.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def _write_half(path: Path, error: BaseException) -> None:
    with replacing(path) as part:
        part.write_text("half")
        raise error


@pytest.mark.parametrize("error", [ValueError("bad data"), KeyboardInterrupt()], ids=repr)
def test_a_file_stays_when_the_body_fails(tmp_path: Path, error: BaseException) -> None:
    """The error goes on as it is, the old file stays, and no part of the new one is left."""
    path = tmp_path / "report.html"
    path.write_text("old")
    with pytest.raises(type(error)):
        _write_half(path, error)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """The message has the path that the user gave, and the system's reason."""
    path = tmp_path / "none" / "report.html"
    with pytest.raises(OutputError) as caught, replacing(path) as part:
        part.write_text("new")
    assert str(caught.value) == f"{path} cannot be written: No such file or directory"


@pytest.mark.parametrize("name", ["reports", ".", ".."])
def test_a_directory_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A path that is a directory is refused, and nothing is left beside it."""
    reports = tmp_path / "reports"
    reports.mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError, match="cannot be written"), replacing(Path(name)) as part:
        part.write_text("new")
    assert list(tmp_path.iterdir()) == [reports]

"""Files are written whole or not at all."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from aegish_dist.errors import OutputError
from aegish_dist.files import is_stream, replacing, replacing_text


def test_a_file_is_replaced_when_the_body_succeeds(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    with replacing_text(path) as stream:
        stream.write("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def _write_half(path: Path, error: BaseException) -> None:
    with replacing(path) as stream:
        stream.write(b"half")
        raise error


@pytest.mark.parametrize("error", [ValueError("bad data"), KeyboardInterrupt()], ids=repr)
def test_a_file_stays_when_the_body_fails(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    with pytest.raises(type(error)):
        _write_half(path, error)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def write(path: Path, content: bytes = b"new") -> None:
    with replacing(path) as stream:
        stream.write(content)


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none" / "report.html"
    with pytest.raises(OutputError) as caught:
        write(path)
    assert str(caught.value) == f"{path} cannot be written: No such file or directory"


@pytest.mark.parametrize("name", ["reports", ".", ".."])
def test_a_directory_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    reports = tmp_path / "reports"
    reports.mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError, match="cannot be written: it is a folder"):
        write(Path(name))
    assert list(tmp_path.rglob("*")) == [reports]


@pytest.mark.parametrize("exists", [True, False])
def test_a_symbolic_link_is_refused(tmp_path: Path, exists: bool) -> None:
    target, link = tmp_path / "private", tmp_path / "report.csv"
    if exists:
        target.write_text("old")
    link.symlink_to(target)
    with pytest.raises(OutputError, match=f"symbolic link; name the file .*{target}"):
        write(link)
    assert link.is_symlink()
    assert [path.read_text() for path in tmp_path.iterdir() if path != link] == ["old"] * exists


def test_a_device_or_a_pipe_in_the_file_system_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    leader, follower = os.openpty()
    try:
        for path in (pipe, Path(os.ttyname(follower))):
            with pytest.raises(OutputError, match="it is a device, pipe or socket, not a file"):
                write(path)
    finally:
        os.close(leader)
        os.close(follower)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o755])
def test_a_replaced_file_keeps_its_permissions(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "report.csv"
    path.touch()
    path.chmod(mode)
    with replacing(path) as stream:
        (part,) = set(tmp_path.iterdir()) - {path}
        assert stat.S_IMODE(part.stat().st_mode) == mode
        stream.write(b"new")
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_a_new_file_gets_the_permissions_of_the_umask(
    tmp_path: Path, umask: int, mode: int
) -> None:
    before = os.umask(umask)
    try:
        write(tmp_path / "report.csv")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "report.csv").stat().st_mode) == mode


def test_the_name_of_a_part_cannot_be_guessed(tmp_path: Path) -> None:
    """Nor does it follow from the file's own, which may be as long as the system allows."""
    path = tmp_path / ("n" * 255)
    with replacing(path), replacing(path):
        first, second = (each.name for each in tmp_path.iterdir())
    assert first != second
    assert str(os.getpid()) not in (first, second)


def test_a_read_only_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    path.write_text("old")
    path.chmod(0o444)
    with pytest.raises(OutputError, match="read-only"):
        write(path)
    assert path.read_text() == "old"


ONE_FILE = "with replacing(Path(sys.argv[1]) / 'large') as stream: stream.write(b'x' * 1001)"
SEVERAL = """with replacing_in(Path(sys.argv[1])) as opened:
    opened('large').write(b'x' * 1001)
    opened('report.csv').write(b'new')"""


@pytest.mark.parametrize("body", [ONE_FILE, SEVERAL])
def test_a_full_disk_keeps_all_old_files(tmp_path: Path, body: str) -> None:
    for name in ("large", "report.csv"):
        (tmp_path / name).write_text("old")
    script = (
        "import resource, sys; from pathlib import Path\n"
        "from aegish_dist.files import replacing, replacing_in\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n{body}"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1].endswith("large cannot be written: File too large")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "large": "old",
        "report.csv": "old",
    }


def test_an_open_descriptor_is_written_through(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    write(Path(f"/dev/fd/{writing}"))
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        assert stream.read() == b"new"


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_is_written_through(
    capfdbinary: pytest.CaptureFixture[bytes], name: str
) -> None:
    write(Path(name), b"to standard output")
    assert capfdbinary.readouterr().out == b"to standard output"


def test_the_null_device_swallows_what_is_written() -> None:
    write(Path(os.devnull))
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_a_closed_descriptor_is_an_error_of_one_line() -> None:
    with pytest.raises(OutputError, match="/dev/fd/999 cannot be written: Bad file descriptor"):
        write(Path("/dev/fd/999"))


def test_text_is_encoded_and_its_line_breaks_stay(tmp_path: Path) -> None:
    path = tmp_path / "report.csv"
    with replacing_text(path) as stream:
        stream.write("\u00e4\r\nb\n")
    assert path.read_bytes() == b"\xc3\xa4\r\nb\n"


@pytest.mark.parametrize("name", ["-", "/dev/stdout", "/dev/fd/63", os.devnull])
def test_streams_are_not_files(name: str) -> None:
    assert is_stream(Path(name))
    assert not is_stream(Path(f"{name}.jsonl"))

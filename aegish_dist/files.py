"""The one place that opens output files: each is written whole or not at all.

A file is written beside its target under a name that cannot be guessed, reaches the disk, and is
then renamed. Only a regular file is replaced: renaming would remove a device, and writing through a
symbolic link would change a file that the user did not name.
"""

import fcntl
import io
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from typing import IO, TextIO

from aegish_dist.errors import OutputError

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
_DESCRIPTOR = re.compile(r"(?:/dev|/proc/self)/fd/(\d{1,9})")
_STREAMS = {"-": 1, "/dev/stdout": 1, "/dev/stderr": 2}


@contextmanager
def replacing(path: Path, *, private: bool = False) -> Iterator[IO[bytes]]:
    """Open a file to write; it takes the path's place only when the body succeeds.

    A file that replaces another keeps its permissions. `-`, open descriptors (a shell's `>(...)`)
    and `/dev/null` are written to as they are, and give BrokenPipeError without a reader.
    """
    with _naming(path):
        number = _descriptor(str(path))
        if str(path) == os.devnull:
            stream: IO[bytes] | AbstractContextManager[IO[bytes]] = path.open("wb")
        elif number is not None:
            stream = os.fdopen(os.dup(number), "wb")
        else:
            stream = _part_of(path, private)
        with stream as opened:
            yield opened


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file that cannot be written; a pipe without a reader is no error of its own."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}") from error


@contextmanager
def replacing_text(path: Path) -> Iterator[TextIO]:
    with replacing(path) as stream:
        text = io.TextIOWrapper(stream, "utf-8", newline="")
        yield text
        text.flush()
        text.detach()


@contextmanager
def replacing_in(
    folder: Path, is_ours: Callable[[Path], bool] | None = None
) -> Iterator[Callable[[str], IO[bytes]]]:
    """Yield an opener of files in a folder; all take their places when the body succeeds.

    Missing folders are made, for a body that succeeds. A file that is there and not `is_ours` gives
    an OutputError.
    """
    with ExitStack() as files:
        with _naming(folder):
            for made in (each for each in (*folder.parents[::-1], folder) if not each.exists()):
                made.mkdir(exist_ok=True)
                files.callback(_remove_empty, made)
            TemporaryFile(dir=folder).close()
        written: dict[Path, IO[bytes]] = {}

        def opened(name: str) -> IO[bytes]:
            path = folder / name
            if is_ours is not None and path.exists() and not is_ours(path):
                raise OutputError(f"{path} is none of this export: choose another folder")
            with _naming(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            written[path] = files.enter_context(replacing(path))
            return written[path]

        yield opened
        for path, stream in written.items():
            # To the disk, which may be full, before another file takes its place.
            with _naming(path):
                stream.flush()
                os.fsync(stream.fileno())


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


@contextmanager
def part_folder(folder: Path, name: str) -> Iterator[Path]:
    """Make a hidden folder that the body renames when it is complete; else it is removed.

    Others that do so in the same folder wait. So what is there of such folders before was left by
    a process that was killed, and is removed.

    Args:
        name: The later name, of as many characters as all names in the folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # ends with the process
        for left in folder.glob(f".{'?' * len(name)}-*.part"):
            shutil.rmtree(left, ignore_errors=True)
        part = Path(mkdtemp(prefix=f".{name}-", suffix=".part", dir=folder))
        try:
            yield part
        finally:
            shutil.rmtree(part, ignore_errors=True)
    finally:
        os.close(descriptor)


def is_stream(path: Path) -> bool:
    """Whether a path names an open descriptor or the null device, and no file."""
    return str(path) == os.devnull or _descriptor(str(path)) is not None


def _descriptor(name: str) -> int | None:
    found = _DESCRIPTOR.fullmatch(name)
    return int(found[1]) if found else _STREAMS.get(name)


@contextmanager
def _part_of(path: Path, private: bool) -> Iterator[IO[bytes]]:
    replaced = _require_replaceable(path)
    part = path.parent / f".{secrets.token_hex(8)}.part"
    # Other users do not read a part before it has the permissions of the file that it replaces.
    descriptor = os.open(part, _NEW_FILE, 0o666 if replaced is None and not private else 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            if replaced is not None:
                _take_permissions(descriptor, replaced)
            yield stream
            stream.flush()
            os.fsync(descriptor)
        part.replace(path)
        sync_folder(path.parent)
    finally:
        with suppress(OSError):
            part.unlink()


def _require_replaceable(path: Path) -> os.stat_result | None:
    """Return the state of the regular file that is there, None when nothing is; else an OSError."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode):
        raise OSError(f"it is a symbolic link; name the file that it points to, {path.readlink()}")
    if not stat.S_ISREG(found.st_mode):
        kind = "folder" if stat.S_ISDIR(found.st_mode) else "device, pipe or socket"
        raise OSError(f"it is a {kind}, not a file")
    if not found.st_mode & _WRITE or not os.access(path, os.W_OK):
        raise OSError("the file there is read-only")
    return found


def _take_permissions(descriptor: int, replaced: os.stat_result) -> None:
    """Give a new file the mode and, where the system lets us, the owner of the one it replaces."""
    mode = stat.S_IMODE(replaced.st_mode) & 0o777
    with suppress(PermissionError):
        os.fchown(descriptor, replaced.st_uid, -1)
    try:
        os.fchown(descriptor, -1, replaced.st_gid)
    except PermissionError:
        mode &= ~stat.S_IRWXG  # they were meant for another group
    os.fchmod(descriptor, mode)


def sync_folder(folder: Path) -> None:
    """Make the new name survive a power cut, where the file system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def require_new(path: Path) -> None:
    """Refuse to replace a file that may have been edited by hand; a stream is never there."""
    if path.exists() and not is_stream(path):
        raise OutputError(
            f"{path} is there already, and may have been edited by hand; name another file"
        )

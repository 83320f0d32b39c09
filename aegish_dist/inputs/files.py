"""The one place that opens input files: regular ones only, within a limit of size."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from aegish_dist.errors import InputError


def open_input(path: Path) -> BinaryIO:
    """Open a regular file to read.

    A FIFO would block until another process writes to it, and a device may never end.

    Raises:
        OSError: It cannot be read, or is no regular file; `strerror` says which.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file; write it to one first", str(path))
        return os.fdopen(descriptor, "rb")
    except OSError:
        os.close(descriptor)
        raise


def read_input(path: Path, max_bytes: int) -> bytes:
    """Read a whole regular file.

    Raises:
        OSError: It cannot be read, is no regular file or is larger; `strerror` says which.
    """
    with open_input(path) as file:
        raw = file.read(max_bytes + 1)
    if len(raw) > max_bytes:
        problem = f"larger than {max_bytes / 2**20:.3g} MiB, the most that is read of such a file"
        raise OSError(errno.EFBIG, problem, str(path))
    return raw


def read_text(path: Path, max_bytes: int) -> str:
    """Read a whole UTF-8 file, without its byte order mark.

    Raises:
        InputError: It cannot be read, is larger, or is not UTF-8; tells the line of the last.
    """
    try:
        raw = read_input(path, max_bytes)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError("is not UTF-8; save it as UTF-8", line=line) from None

"""The one place that opens input files."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


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

    Args:
        path: The file.
        max_bytes: Size that it may have.

    Raises:
        OSError: It cannot be read, is no regular file or is larger; `strerror` says which.
    """
    with open_input(path) as file:
        raw = file.read(max_bytes + 1)
    if len(raw) > max_bytes:
        problem = f"larger than {max_bytes / 2**20:g} MiB, the most that is read of such a file"
        raise OSError(errno.EFBIG, problem, str(path))
    return raw

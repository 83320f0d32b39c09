"""Writing files whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from aegish_dist.errors import OutputError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a path beside a file to write to; it takes the file's place only when the body succeeds.

    Raises:
        OutputError: The file cannot be written there.
    """
    part = path.parent / f".{path.name}.{os.getpid()}.part"  # not `with_name`: "." has no name
    try:
        yield part
        part.replace(path)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            part.unlink()

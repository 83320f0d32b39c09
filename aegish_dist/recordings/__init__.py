"""Recorded verdicts as files: what other tools measured comes in, what was measured here goes out.

Reading gives facts, judged by today's parser; nothing here knows the database.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from aegish_dist.core.recording import Recording
from aegish_dist.errors import DatasetError
from aegish_dist.files import is_stream, replacing, replacing_text
from aegish_dist.recordings.inspect_log import read_inspect_log
from aegish_dist.recordings.verdict_lines import (
    read_verdict_lines,
    write_verdict_lines,
)
from aegish_dist.recordings.verdict_parquet import (
    read_verdict_parquet,
    write_verdict_parquet,
)

__all__ = [
    "is_parquet",
    "read_inspect_log",
    "read_recordings",
    "read_verdict_lines",
    "read_verdict_parquet",
    "write_recordings",
    "write_verdict_lines",
    "write_verdict_parquet",
]

READERS = {
    ".eval": read_inspect_log,
    ".jsonl": read_verdict_lines,
    ".parquet": read_verdict_parquet,
}


def read_recordings(path: Path) -> Iterator[Recording]:
    """Read the recordings of a file one by one, as its suffix says.

    Args:
        path: A log of Inspect AI (`.eval`), verdict lines (`.jsonl`) or the same as `.parquet`.

    Raises:
        DatasetError: At once when the suffix is none of these; while iterating when the file is
            wrong somewhere.
        ConfigError: While iterating, when the file is Parquet and pyarrow is not installed.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        problem = f"cannot be read as verdicts; known are {', '.join(READERS)}"
        raise DatasetError(problem, source=str(path))
    return reader(path)


def write_recordings(recordings: Iterable[Recording], path: Path) -> None:
    """Write recordings to a `.jsonl` or `.parquet` file, which appears only when it is complete.

    Raises:
        DatasetError: The suffix is neither.
        OutputError: The file cannot be written.
        ConfigError: The file is Parquet and pyarrow is not installed.
    """
    if is_parquet(path):
        with replacing(path) as stream:
            write_verdict_parquet(recordings, stream)
    else:
        with replacing_text(path, "ascii") as text:
            write_verdict_lines(recordings, text)


def is_parquet(path: Path) -> bool:
    """Tell in which of the two formats a file is to be written; a stream takes lines.

    Raises:
        DatasetError: The suffix is of neither.
    """
    suffix = path.suffix.lower()
    if is_stream(path):
        return False
    if suffix not in (".jsonl", ".parquet"):
        problem = "cannot be written as verdicts; choose .jsonl or .parquet"
        raise DatasetError(problem, source=str(path))
    return suffix == ".parquet"

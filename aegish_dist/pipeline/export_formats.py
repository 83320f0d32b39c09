"""The formats that verdicts are exported in: some are files, some are folders of files."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from sqlalchemy import Engine

from aegish_dist.core.opinion import Opinion
from aegish_dist.errors import ConfigError
from aegish_dist.files import is_stream
from aegish_dist.pipeline.export_every_eval_ever import export_every_eval_ever
from aegish_dist.pipeline.export_inspect import export_inspect
from aegish_dist.pipeline.export_verdicts import export_file

FolderExport = Callable[[Engine, str, Path, Sequence[Opinion]], list[str]]
"""Writes the run of this id into a folder and returns the names of the files."""


class ExportFormat(StrEnum):
    """The formats by name."""

    JSONL = "jsonl"
    PARQUET = "parquet"
    INSPECT = "inspect"
    EVERY_EVAL_EVER = "every-eval-ever"


FOLDERS: Mapping[ExportFormat, FolderExport] = {
    ExportFormat.INSPECT: export_inspect,
    ExportFormat.EVERY_EVAL_EVER: export_every_eval_ever,
}


def export_as(
    chosen: ExportFormat, engine: Engine, run_id: str, output: Path, opinions: Sequence[Opinion]
) -> list[str]:
    """Write every verdict of a run in a format.

    Args:
        output: A file or a stream, or a folder for those of `FOLDERS`.

    Returns:
        The names of the files in the folder; none for a file.

    Raises:
        ConfigError: The format takes a folder, and this is a stream.
    """
    if chosen not in FOLDERS:
        export_file(engine, run_id, output, opinions, table=chosen is ExportFormat.PARQUET)
        return []
    if is_stream(output):
        raise ConfigError(f"--format {chosen} writes several files: name a folder with -o")
    return FOLDERS[chosen](engine, run_id, output, opinions)

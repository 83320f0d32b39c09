"""Importing recorded verdicts as a run: rows of files, stored in one transaction."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Engine, text

from aegish_dist import __version__
from aegish_dist.core.run import Run, new_run_id
from aegish_dist.db.engine import transaction
from aegish_dist.db.imports import RunImport, settle
from aegish_dist.errors import DatasetError, OtherDatasetError, SecondVerdictError
from aegish_dist.interchange.record import RecordChecker, Row
from aegish_dist.interchange.verdict_files import format_of, read_rows

BATCH_ROWS = 5_000
BATCH_CHARS = 4 * 2**20
"""Verdicts that are stored at once, and characters of their completions."""

SETTLE_FROM = 100_000
"""Verdicts; fewer are counted at once all the same."""

_ROOM_TO_CHECK = text("SELECT set_config('work_mem', '64MB', true)")
"""The check of a statement's references holds its rows in memory."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import."""

    run_id: str
    verdicts: int
    models: int
    samples: int
    negative_times: int
    """Verdicts of which a time was below zero and counts as unknown."""


def import_verdicts(engine: Engine, paths: Sequence[Path], name: str) -> Imported:
    """Store the verdicts of files as one run, in one transaction.

    Nothing is held in memory as a whole but the ids of the samples.

    Raises:
        DatasetError: A file is wrong somewhere; nothing is kept.
    """
    for path in paths:
        format_of(path)  # refuses what is no file of verdicts before any other is read
    known: Mapping[str, str] | None = None
    while True:  # at most twice, unless another import of the same samples runs at the same time
        try:
            imported = _import(engine, paths, name, known)
            break
        except OtherDatasetError as found:
            known = found.fingerprints
    if imported.verdicts >= SETTLE_FROM:
        settle(engine)
    return imported


def _import(
    engine: Engine, paths: Sequence[Path], name: str, known: Mapping[str, str] | None
) -> Imported:
    now = datetime.now(UTC)
    run = Run(new_run_id(now), now, name, "import", __version__, None, None, 1, (), ())
    verdicts, epochs, negative_times = 0, 1, 0
    checker = RecordChecker()
    with transaction(engine) as session:
        session.execute(_ROOM_TO_CHECK)
        target = RunImport(session, run, known)
        for path in paths:
            for rows in _batches(read_rows(path, checker)):
                try:
                    target.add([(row.record, row.about) for row in rows])
                except SecondVerdictError as error:
                    raise DatasetError(
                        "holds a second verdict of one model about one sample in one epoch, in"
                        " this file or one before; give repeats different epochs",
                        source=str(path),
                    ) from error
                verdicts += len(rows)
                epochs = max(epochs, *(row.record.epoch for row in rows))
                negative_times += sum(row.negative_time for row in rows)
        if not verdicts:
            files = ", ".join(dict.fromkeys(map(str, paths)))
            raise DatasetError("holds no verdict", source=files)
        target.finish(epochs)
        return Imported(run.run_id, verdicts, target.models, target.samples, negative_times)


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row.record.completion or "")
        if len(batch) >= BATCH_ROWS or size >= BATCH_CHARS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch

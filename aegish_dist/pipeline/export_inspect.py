"""Exporting a run as logs of Inspect AI, one for each model and dataset."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import IO

from sqlalchemy import Engine

from aegish_dist.core.opinion import Opinion
from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import load_run
from aegish_dist.db.verdict_export import export
from aegish_dist.errors import DatasetError, StoreError
from aegish_dist.files import replacing_in
from aegish_dist.interchange.inspect_archive import InspectArchive
from aegish_dist.interchange.inspect_sample import PREFIX
from aegish_dist.interchange.inspect_writer import InspectLogWriter, LogHead
from aegish_dist.interchange.record import JudgedLines, JudgedVerdict
from aegish_dist.pipeline.export_verdicts import judgements_of


def export_inspect(
    engine: Engine, run_id: str, folder: Path, opinions: Sequence[Opinion] = ()
) -> list[str]:
    """Write a run as logs of Inspect AI, with a scorer for each opinion.

    Args:
        folder: Takes one log for each model and dataset that has a verdict.
        opinions: They have the same overlay; without one it is the default rule set.

    Returns:
        The names of the logs.

    Raises:
        OpinionError: The overlay does not fit the datasets of the run.
        OutputError: The folder cannot be written to, or holds another file of such a name.
    """
    opinions, names = opinions or [Opinion()], list[str]()
    with transaction(engine) as session:
        run = load_run(session, run_id)
        judged = judgements_of(session, run, opinions)
        lines = JudgedLines(tuple(judged.rules))
        with replacing_in(folder, lambda path: _run_of(path) == run.run_id) as opened:
            parts = export(session, run, judged)
            verdicts = (verdict for part in parts for verdict in lines.read(part))
            for (model, dataset), group in groupby(verdicts, _log_of):
                head = LogHead.of(run, model, dataset, opinions)
                names.append(head.file_name)
                _write(opened(head.file_name), head, group)
    if not names:
        raise StoreError(f"run {run_id} has no verdict yet")
    return names


def _run_of(path: Path) -> object:
    """Return the run that a log was exported from; None for any other file."""
    try:
        with InspectArchive(path) as archive:
            metadata = archive.header().part("eval").part("metadata")
    except DatasetError:
        return None
    return metadata.values.get(f"{PREFIX}run_id")


def _log_of(verdict: JudgedVerdict) -> tuple[str, str]:
    return verdict.record.model, verdict.record.dataset or ""


def _sample_of(verdict: JudgedVerdict) -> tuple[str, ...]:
    record = verdict.record
    return record.command, record.target, record.category or "", record.cluster or ""


def _write(stream: IO[bytes], head: LogHead, verdicts: Iterator[JudgedVerdict]) -> None:
    with InspectLogWriter(stream, head) as log:
        for _, of_sample in groupby(verdicts, _sample_of):
            epochs = groupby(of_sample, lambda verdict: verdict.record.epoch)
            log.add([list(of_epoch) for _, of_epoch in epochs])

"""Verdicts to files and from files: JSONL and Parquet, logs of Inspect AI."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import IO

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Engine, text

from aegish_dist import __version__
from aegish_dist.core.output import Output
from aegish_dist.core.run import Run
from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import load_run, unused_run_id
from aegish_dist.db.verdict_reader import NO_CHANGES, export
from aegish_dist.db.verdicts import RunImport, StoredRunVerdicts
from aegish_dist.errors import (
    ConfigError,
    DatasetError,
    OtherDatasetError,
    SecondVerdictError,
    StoreError,
)
from aegish_dist.files import is_stream, replacing, replacing_in
from aegish_dist.inputs.documents import load_pyarrow
from aegish_dist.interchange.inspect_reader import PREFIX, InspectArchive
from aegish_dist.interchange.inspect_writer import LogHead, write_inspect_log
from aegish_dist.interchange.parquet_tables import records_schema, write_records
from aegish_dist.interchange.record import (
    RecordChecker,
    Row,
    ScoredRecord,
    in_ascii,
    scored_records,
)
from aegish_dist.interchange.verdict_files import Decoder, format_of, read_rows
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.pipeline.opinions import overlay_of
from aegish_dist.pipeline.verdicts import no_mapping, settle_imported

# Bytes that a pipe takes at once; of a longer write, some systems do not report that its reader
# has gone.
PIPE_BYTES = 2**16
COLUMN_PREFIX = "correct_"
MAX_COLUMN_CHARS = 63


def export_file(
    engine: Engine,
    run_id: str,
    path: Path,
    opinions: Sequence[Opinion] = (),
    *,
    table: bool | None = None,
) -> None:
    """Write every verdict of a run to a file, in a fixed order; opinions as of `export_lines`.

    `table` says whether it is Parquet; None leaves that to the suffix, which may be a DatasetError.
    """
    if table is None:
        suffix = ".jsonl" if is_stream(path) else path.suffix.lower()
        if suffix not in (".jsonl", ".parquet"):
            raise DatasetError(
                "cannot be written as verdicts; choose .jsonl, .parquet or .csv, or say --format",
                source=str(path),
            )
        table = suffix == ".parquet"
    with replacing(path) as stream:
        (_export_table if table else export_lines)(engine, run_id, stream, opinions)


def export_lines(
    engine: Engine, run_id: str, stream: IO[bytes], opinions: Sequence[Opinion] = ()
) -> None:
    """Write every verdict of a run as lines of JSON.

    For each opinion, all of one overlay, a key says whether it is correct, null where unscored.
    """
    with _judged(engine, run_id, opinions) as (_, _, exported):
        for lines in map(in_ascii, exported()):
            for start in range(0, len(lines), PIPE_BYTES):
                stream.write(memoryview(lines)[start : start + PIPE_BYTES])


def _export_table(
    engine: Engine, run_id: str, stream: IO[bytes], opinions: Sequence[Opinion]
) -> None:
    load_pyarrow()  # before the database is asked for anything
    with _judged(engine, run_id, opinions) as (run, names, exported):
        # A table that is copied elsewhere still says where it comes from.
        about = {"version": __version__, "run_id": run.run_id, "run_name": run.name}
        if opinions:
            about["correct"] = json.dumps([opinion.provenance for opinion in opinions])
        metadata = {f"aegish-dist.{key}": text for key, text in about.items()}
        write_records(exported(columns=True), records_schema(names, metadata), stream)


@contextmanager
def _judged(
    engine: Engine, run_id: str, opinions: Sequence[Opinion]
) -> Iterator[tuple[Run, tuple[str, ...], Callable[..., Iterator[bytes]]]]:
    """Give a run, the columns of some opinions in their order, and what exports both."""
    with transaction(engine) as session:
        run = load_run(session, run_id)
        rules = {_column(opinion.rule.name): opinion.rule for opinion in opinions}
        if len(rules) < len(opinions):
            raise ConfigError(
                "--correct names two rule sets whose columns would have the same name"
            )
        changes = overlay_of(session, run, opinions[0]).values if opinions else NO_CHANGES
        yield run, tuple(rules), partial(export, session, run, rules, changes)


def _column(rule: str) -> str:
    """Return a plain name: the database cuts longer ones, and scripts shall need no quotes."""
    return (COLUMN_PREFIX + re.sub(r"[^A-Za-z0-9.-]", "_", rule))[:MAX_COLUMN_CHARS]


def export_inspect(
    engine: Engine, run_id: str, folder: Path, opinions: Sequence[Opinion] = ()
) -> list[str]:
    """Write a run as logs of Inspect AI, with a scorer for each opinion; return their names.

    There is a log for each model and dataset with a verdict. All opinions have the same overlay;
    without one it is the default rule set. Another file of such a name is an OutputError.
    """
    opinions, names = opinions or [Opinion()], list[str]()
    with (
        _judged(engine, run_id, opinions) as (run, columns, exported),
        replacing_in(folder, lambda path: _run_of(path) == run.run_id) as opened,
    ):
        verdicts = scored_records(exported(), columns)
        for (model, dataset), group in groupby(
            verdicts, lambda verdict: (verdict.record.model, verdict.record.dataset or "")
        ):
            head = LogHead.of(run, model, dataset, opinions)
            names.append(head.file_name)
            samples = (_epochs(each) for _, each in groupby(group, _SAMPLE_OF))
            write_inspect_log(opened(head.file_name), head, samples)
    if not names:
        raise StoreError(f"run {run_id} has no verdict yet")
    return names


def _run_of(path: Path) -> object:
    """Return the run that a log was exported from; None for any other file."""
    try:
        with InspectArchive(path) as archive:
            _, header = archive.header()
    except DatasetError:
        return None
    return header.metadata.get(f"{PREFIX}run_id")


def _epochs(of_sample: Iterable[ScoredRecord]) -> list[list[ScoredRecord]]:
    epochs = groupby(of_sample, lambda verdict: verdict.record.epoch)
    return [list(verdicts) for _, verdicts in epochs]


_SAMPLE_OF = attrgetter("record.command", "record.target", "record.category", "record.cluster")


BATCH_ROWS = 5_000  # verdicts that are stored at once
BATCH_CHARS = 4 * 2**20  # characters of their completions

# The check of a statement's references holds its rows in memory.
_ROOM_TO_CHECK = text("SELECT set_config('work_mem', '64MB', true)")


class Imported(Struct, frozen=True):
    run_id: str
    verdicts: int
    models: int
    samples: int
    negative_times: int  # verdicts of which a time was below zero and counts as unknown
    unread: tuple[str, ...] = ()  # models whose answers a mapping had read that is not here


def import_verdicts(
    engine: Engine,
    paths: Sequence[Path],
    name: str,
    predicted: Decoder | None = None,
    output_of: Callable[[str], Output | None] = no_mapping,
) -> Imported:
    """Store the verdicts of files as one run, in one transaction, whole or not at all.

    Nothing is held in memory as a whole but the ids of the samples. A wrong file is a DatasetError.
    Answers of models with a mapping, by `output_of`, are then read by it; predictions are none.
    """
    for path in paths:
        format_of(path)  # refuses what is no file of verdicts before any other is read
    known: Mapping[str, str] | None = None
    while True:  # at most twice, unless another import of the same samples runs at the same time
        try:
            imported = _import(engine, paths, name, known, predicted)
            break
        except OtherDatasetError as found:
            known = found.fingerprints
    if predicted is not None:
        output_of = no_mapping
    run_id, verdicts = imported.run_id, imported.verdicts
    unread = settle_imported(engine, run_id, verdicts, imported.unread, output_of)
    return replace(imported, unread=unread)


def _import(
    engine: Engine,
    paths: Sequence[Path],
    name: str,
    known: Mapping[str, str] | None,
    predicted: Decoder | None,
) -> Imported:
    now = datetime.now(UTC)
    verdicts, epochs, negative_times = 0, 1, 0
    checker = RecordChecker()
    with transaction(engine) as session:
        session.execute(_ROOM_TO_CHECK)
        run_id = unused_run_id(session, now)
        run = Run(run_id, now, name, "import", __version__, None, None, 1, (), ())
        target = RunImport(session, run, known)
        for path in paths:
            for rows in add_verdicts(target, path, checker, predicted):
                verdicts += len(rows)
                epochs = max(epochs, *(row.record.epoch for row in rows))
                negative_times += sum(row.negative_time for row in rows)
        if not verdicts:
            raise DatasetError("holds no verdict", source=", ".join(dict.fromkeys(map(str, paths))))
        target.finish(epochs)
        unread = tuple(checker.mapped)
        return Imported(run.run_id, verdicts, target.models, target.samples, negative_times, unread)


def add_verdicts(
    target: RunImport | StoredRunVerdicts,
    path: Path,
    checker: RecordChecker,
    predicted: Decoder | None = None,
) -> Iterator[list[Row]]:
    """Add the verdicts of a file to a run, batch by batch; yield each batch once it is added."""
    for rows in batches(read_rows(path, checker, predicted)):
        try:
            target.add([(row.record, row.about) for row in rows])
        except SecondVerdictError as error:
            raise DatasetError(
                "holds a second verdict of one model about one sample in one epoch, in"
                " this file or one before; give repeats different epochs",
                source=str(path),
            ) from error
        yield rows


def batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
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

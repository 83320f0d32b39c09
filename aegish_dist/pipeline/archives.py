"""Runs that leave the store: deleted, without their completions, archived; and brought back.

A run is held first, so that no worker asks anything of it; then its verdicts go in batches, and
with the last transaction the run itself. Where only completions go, no metric changes and no hash
of a snapshot: they are made from other columns. After an interruption the same command goes on.

An archive is a folder of plain files: what a run asks of whom, its verdicts as `verdicts export`
writes them, and its snapshots for those who read them. The folder takes its name when its files
were read back. Nothing is deleted that is not in it, line by line.

Restoring reads the files as an import reads those of strangers, in one transaction. A run that is
in the store and lacks completions gets its completions back, and nothing else.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec
import psycopg
from msgspec.structs import replace
from sqlalchemy import Engine, Row, exc
from sqlalchemy.orm import Session

from aegish_dist.broker.messages import queue_names
from aegish_dist.core.output import Output
from aegish_dist.core.run import Run, RunPause
from aegish_dist.core.sample import Dataset
from aegish_dist.db import deletion
from aegish_dist.db.batches import batches_at_providers
from aegish_dist.db.engine import execute, in_transaction, transaction
from aegish_dist.db.fleet import living_fleet
from aegish_dist.db.runs import (
    hold,
    load_bare_run,
    load_run,
    load_run_dataset,
    one_at_a_time,
    require_free_name,
    run_row,
    save_dataset,
    save_run,
)
from aegish_dist.db.verdict_reader import export
from aegish_dist.db.verdicts import StoredRunVerdicts
from aegish_dist.errors import ConfigError, InputError, OutputError, StoreError
from aegish_dist.files import part_folder, replacing, sync_folder
from aegish_dist.inputs.checking import Location
from aegish_dist.inputs.documents import open_input, read_input, read_text
from aegish_dist.interchange.record import RecordChecker, in_ascii
from aegish_dist.interchange.record import Row as VerdictRow
from aegish_dist.interchange.verdict_files import read_rows
from aegish_dist.pipeline.control import await_calls, drop_messages
from aegish_dist.pipeline.datasets import describe
from aegish_dist.pipeline.observer import SILENT, Observer
from aegish_dist.pipeline.runs import checked_name
from aegish_dist.pipeline.status import items_held, run_status
from aegish_dist.pipeline.verdict_files import add_verdicts, batches
from aegish_dist.pipeline.verdicts import no_mapping, settle_imported
from aegish_dist.pipeline.workspace import Workspace

BATCH = 20_000  # verdicts per transaction: a second, in which those who wait for its rows wait
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


class LeavingRun(msgspec.Struct, frozen=True):
    """A run that is to be deleted, archived or pruned."""

    run: Run
    size: Row[Any]  # of `size_of_run`
    busy: str | None = None  # why it cannot be deleted now; None when it can
    texts: Row[Any] | None = None  # of `size_of_completions`


def look_at(engine: Engine, run_id: str) -> LeavingRun:
    """Return what would be lost with a run, and whether workers are at it."""
    with transaction(engine) as session:
        run = load_bare_run(session, run_id)
        size = deletion.size_of(session, run_id)
    return LeavingRun(run, size, _busy(engine, run))


def _busy(engine: Engine, run: Run) -> str | None:
    """Return why a run cannot be deleted: workers ask its models, or would soon."""
    run_id = run.run_id
    cancel = f"`aegish-dist cancel --run-id {run_id}`"
    if run.held is not RunPause.CANCELLED and in_transaction(engine, batches_at_providers, run_id):
        return f"batches of run {run_id} are at a provider and paid for: {cancel} ends them"
    if run.prompt is None or run.held is not None:
        return None
    workers = in_transaction(engine, living_fleet).workers
    if items_held(engine, run_id) or (workers and run_status(engine, run_id).missing):
        return f"workers are at run {run_id}: {cancel} stops them"
    return None


def old_runs(engine: Engine, age: timedelta, keep: int = 0) -> list[LeavingRun]:
    """Return the runs that are older than an age, oldest first, without the `keep` newest."""
    old = in_transaction(engine, deletion.old_runs, datetime.now(UTC) - age, keep)
    return [look_at(engine, run_id) for run_id in old]


def parsed_age(text: str) -> timedelta:
    """Read an age such as `90d`."""
    match = re.fullmatch(r"([0-9]{1,5})([hdw])", text.strip())
    if match is None:
        raise ConfigError(f"'{text}' is no age: write 12h, 90d or 8w")
    return int(match[1]) * _UNITS[match[2]]


def delete_run(
    workspace: Workspace,
    leaving: LeavingRun,
    observer: Observer = SILENT,
    archived: Path | None = None,
) -> None:
    """Delete a run with all that belongs to it; its archive is None if it was not archived.

    It stays whole, by a StoreError, if workers are at it or its archive lacks rows of it.
    """
    if leaving.busy is not None:
        raise StoreError(leaving.busy)
    run_id = leaving.run.run_id
    in_transaction(workspace.engine, hold, run_id, RunPause.CANCELLED)
    if not leaving.run.imported:
        await_calls(workspace.engine, leaving.run, observer)
        drop_messages(workspace.app, leaving.run, observer)
    if archived is not None:
        require_archived(workspace.engine, run_id, archived)
    with observer.counting("verdicts deleted", leaving.size.verdicts) as show:
        _by_batch(workspace.engine, run_id, deletion.delete_verdicts, show)
        in_transaction(workspace.engine, deletion.delete_run, run_id)


def _by_batch(
    engine: Engine,
    run_id: str,
    change: Callable[[Session, int, int, int], int],
    show: Callable[[int], None],
) -> int:
    """Change a run's verdicts, a batch per transaction; show and return how many.

    `change` gets keys: of a model, and of samples, after the one and through the other.
    """
    done = 0
    for model in in_transaction(engine, deletion.model_keys, run_id):
        after = -1
        while True:
            with transaction(engine) as session:
                through = deletion.last_of_batch(session, model, after, BATCH)
                if through is None:
                    break
                done += change(session, model, after, through)
            show(done)
            after = through
    return done


def prunable(engine: Engine, runs: Sequence[LeavingRun]) -> list[LeavingRun]:
    """Return those of some runs that have completions and are not worked on; reads all of them."""
    counted = [
        replace(each, texts=in_transaction(engine, deletion.size_of_completions, each.run.run_id))
        for each in runs
        if each.busy is None
    ]
    return [each for each in counted if each.texts and each.texts.completions]


def prune_completions(
    engine: Engine, leaving: LeavingRun, observer: Observer = SILENT, archived: Path | None = None
) -> int:
    """Delete the completions that `prunable` counted, and return how many; see `delete_run`."""
    run_id, texts = leaving.run.run_id, leaving.texts
    if archived is not None:
        require_archived(engine, run_id, archived)
    if texts is None:
        return 0
    in_transaction(engine, load_run, run_id)
    prune = partial(deletion.prune_verdicts, run_id=run_id, before=texts.counted_at)
    with observer.counting("completions deleted", texts.completions) as show:
        return _by_batch(engine, run_id, prune, show)


FORMAT: Literal[2] = 2
RUN, VERDICTS, SNAPSHOTS = "run.json", "verdicts.jsonl", "snapshots.jsonl"
FILES = (RUN, VERDICTS, SNAPSHOTS)
SUMS = "SHA256SUMS"
EARLIER = "manifest.json"  # of archives of tables, which this version does not read
MAX_RUN_BYTES = 2**28  # a million samples
MAX_SUMS_BYTES = 2**12
OLDEST = datetime(2000, 1, 1, tzinfo=UTC)


class ArchivedRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`run.json`: what a run asks of whom, at which prices, with which prompts, about what."""

    format: Literal[2]
    verdicts: int
    run: Run
    datasets: tuple[Dataset, ...]


_RUN_ENCODER = msgspec.json.Encoder(order="deterministic")
_RUN_DECODER = msgspec.json.Decoder(ArchivedRun)
_ZERO = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def archive_run(engine: Engine, run_id: str, folder: Path, observer: Observer = SILENT) -> Path:
    """Write a run to a folder of its own and read that back; return the folder.

    It is named after the run; the folder around it is made where it is missing. An archive that is
    there already, as after an interruption, is compared with the store.

    Raises:
        StoreError: A provider still works on batches of the run, or what was read back differs.
        OutputError: The folder cannot be written.
    """
    place = folder / run_id
    if os.path.lexists(place):
        _read_back(place, observer)
        require_archived(engine, run_id, place)
        return place
    try:
        with part_folder(folder, run_id) as part:
            write_files(engine, run_id, part)
            _read_back(part, observer)
            part.chmod(0o755)
            part.rename(place)
            sync_folder(folder)
    except OSError as error:
        raise OutputError(
            f"{place} cannot be made: {error.strerror or error}; the store is as it was"
        ) from error
    return place


def write_files(engine: Engine, run_id: str, part: Path) -> None:
    """Write the files of an archive, all as of one moment, and last the sums of their content."""
    sums = []
    with transaction(engine, isolation_level="REPEATABLE READ") as session:
        if batches_at_providers(session, run_id):
            raise StoreError(
                f"batches of run {run_id} are at a provider: archive it when they ended"
            )
        archived = _archived(session, run_id)
        document = msgspec.json.format(_RUN_ENCODER.encode(archived), indent=1)
        for name, parts in ((RUN, [document, b"\n"]), *_lines_of(session, archived.run)):
            digest = hashlib.sha256()
            with replacing(part / name) as stream:
                for each in parts:
                    digest.update(each)
                    stream.write(each)
            sums.append(f"{digest.hexdigest()}  {name}\n")
    with replacing(part / SUMS) as stream:
        stream.write("".join(sums).encode())


def _archived(session: Session, run_id: str) -> ArchivedRun:
    execute(session, "settings_for_archives")
    run = load_run(session, run_id)
    datasets = []
    for asked in run.datasets:
        dataset = load_run_dataset(session, run_id, asked.name)
        if dataset is not None:
            datasets.append(dataset)
    verdicts = deletion.size_of(session, run_id).verdicts
    return ArchivedRun(FORMAT, verdicts, run, tuple(datasets))


def _lines_of(session: Session, run: Run) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Yield the files of lines of an archive: their names, and their content in parts."""
    verdicts = export(session, run, {})
    yield VERDICTS, map(in_ascii, verdicts)
    snapshots = execute(session, "snapshots_as_json", run=run.run_id)
    yield SNAPSHOTS, (f"{snapshot}\n".encode() for snapshot in snapshots.scalars())


def _read_back(folder: Path, observer: Observer) -> None:
    """Read an archive as `restore_run` does."""
    archived = _read(folder)
    with observer.counting("verdicts read back", archived.verdicts) as show:
        for done in _counted(batches(_verdicts(folder)), archived):
            show(done)


def _read(folder: Path) -> ArchivedRun:
    """Return the run of an archive whose files are those that were written.

    Raises:
        StoreError: A file has another content, or the run is not one that a store may have.
        DatasetError: A file is missing, or is not what it should be.
    """
    with Location(str(folder)):
        is_earlier = (folder / EARLIER).exists() and not (folder / RUN).exists()
    if is_earlier:
        raise StoreError(
            f"{folder} is an archive of an earlier version of aegish-dist: restore it by that"
            " version, and archive it again by this one"
        )
    with Location(str(folder / SUMS)):
        sums = read_text(folder / SUMS, MAX_SUMS_BYTES)
    for name in FILES:
        with Location(str(folder / name)), open_input(folder / name) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if f"{digest}  {name}\n" not in sums:
            raise StoreError(
                f"{folder / name} is not what was archived: {SUMS} has another sum; nothing was"
                " changed"
            )
    with Location(str(folder / RUN)):
        return _decoded(read_input(folder / RUN, MAX_RUN_BYTES))


def _decoded(document: bytes) -> ArchivedRun:
    if _ZERO.search(document):
        raise InputError("holds a zero byte, which no store takes")
    try:
        archived = _RUN_DECODER.decode(document)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(f"is no run of an archive of format {FORMAT}: {error}") from None
    run = archived.run
    names = {dataset.name for dataset in archived.datasets}
    if len(names) < len(archived.datasets):
        raise InputError("names two data sets alike", field="datasets")
    if run.datasets != tuple(map(describe, archived.datasets)):
        raise InputError("has other samples than its fingerprints say", field="datasets")
    if not run.prompts.keys() <= {spec.id for spec in run.models}:
        raise InputError("has the prompt of a model that is not asked", field="run.prompts")
    if not OLDEST <= run.created_at <= datetime.now(UTC):
        raise InputError("is before 2000 or in the future", field="run.created_at")
    if not run.imported == (run.prompt is None) == (run.parameters is None):
        raise InputError("has a prompt and parameters unless it was imported", field="run")
    checked_name(run.name)
    return archived


def _verdicts(folder: Path) -> Iterator[VerdictRow]:
    return read_rows(folder / VERDICTS, RecordChecker(keep_pruned=True))


def _counted(parts: Iterable[Sequence[VerdictRow]], archived: ArchivedRun) -> Iterator[int]:
    """Yield how many verdicts were read so far, and refuse other ones than a run has."""
    done = 0
    for rows in parts:
        done += len(rows)
        if any(row.record.epoch > archived.run.epochs for row in rows):
            raise StoreError("the archive has a verdict of an epoch that the run does not ask")
        yield done
    if done != archived.verdicts:
        raise StoreError(f"the archive has {done:,} verdicts, of {archived.verdicts:,} expected")


def require_archived(engine: Engine, run_id: str, folder: Path) -> None:
    """Refuse to go on where the store has something of a run that its archive lacks.

    What an interrupted deletion has left of a run is all in its archive.
    """
    archived = _read(folder)
    if archived.run.run_id != run_id:
        raise StoreError(
            f"{folder} is the archive of run {archived.run.run_id}: nothing was deleted"
        )
    with transaction(engine, isolation_level="REPEATABLE READ") as session:
        stored = _archived(session, run_id)
        changed = []
        if _lasting(stored) != _lasting(archived):
            changed.append(RUN)
        for name, parts in _lines_of(session, stored.run):
            with open_input(folder / name) as file:
                if not _holds(file, parts):
                    changed.append(name)
    if changed:
        raise StoreError(
            f"run {run_id} was changed after it was archived to {folder} ({changed[0]}): archive"
            " it to another folder; nothing was deleted"
        )


def _lasting(archived: ArchivedRun) -> tuple[Run, tuple[Dataset, ...]]:
    """Return what neither holding a run nor deleting verdicts or texts of it changes."""
    return replace(archived.run, held=None, pruned=None), archived.datasets


def _holds(archived: Iterable[bytes], stored: Iterable[bytes]) -> bool:
    """Return whether each line of the store is among those of an archive, in the same order."""
    lines = iter(archived)
    for part in stored:
        for line in part.splitlines(keepends=True):
            if not any(_is_of(line, known) for known in lines):
                return False
    return True


def _is_of(stored: bytes, archived: bytes) -> bool:
    """Return whether a stored line is an archived one, or was before its completion went."""
    if stored == archived or b'"pruned":true' not in stored:
        return stored == archived
    pruned = json.loads(archived) | {"completion": None, "pruned": True}
    return bool(pruned == json.loads(stored))


class Restored(msgspec.Struct, frozen=True):
    run: Run
    verdicts: int = 0  # none where the run was there
    completions: int | None = None  # that were put back; None where the whole run was added
    unread: tuple[str, ...] = ()  # models whose answers a mapping had read that is not here


def restore_run(
    engine: Engine,
    folder: Path,
    output_of: Callable[[str], Output | None] = no_mapping,
    observer: Observer = SILENT,
) -> Restored:
    """Bring a run back from its archive, or the completions that it lacks.

    Answers are read as those of an import: by the parser of this version, and by the mappings that
    `output_of` knows.

    Raises:
        StoreError: It is not what was archived, the run is in the store with all its completions,
            or this store cannot take it; nothing is kept.
    """
    archived = _read(folder)
    run_id = archived.run.run_id
    checker = RecordChecker(keep_pruned=True)
    with _unfit_values_in_one_line(folder), transaction(engine) as session:
        execute(session, "settings_for_archives")
        one_at_a_time(session)
        stored = run_row(session, run_id)
        if stored is not None and stored.pruned_completions:
            completions = _put_completions_back(session, folder, run_id)
            return Restored(load_run(session, run_id), completions=completions)
        _require_absent(session, archived)
        _add(session, folder, archived, checker, observer)
        run = load_run(session, run_id)
    unread = settle_imported(engine, run_id, archived.verdicts, checker.mapped, output_of)
    return Restored(run, archived.verdicts, unread=unread)


@contextmanager
def _unfit_values_in_one_line(folder: Path) -> Iterator[None]:
    """Turn the errors of values that no store takes into one line."""
    try:
        yield
    except (exc.DataError, exc.IntegrityError, psycopg.DataError) as error:
        cause = error.orig if isinstance(error, exc.DBAPIError) else error
        what = str(cause).partition("\n")[0][:200]
        raise StoreError(
            f"{folder} does not fit this store ({what}); nothing was changed"
        ) from error


def _require_absent(session: Session, archived: ArchivedRun) -> None:
    run_id, name = archived.run.run_id, archived.run.name
    if run_row(session, run_id) is not None:
        stored = deletion.size_of(session, run_id).verdicts
        raise StoreError(
            f"run {run_id} is in this store with {stored:,} of {archived.verdicts:,} archived"
            f" verdicts: `aegish-dist runs delete {run_id}` first to restore it whole"
        )
    try:
        require_free_name(session, name)
        require_free_name(session, run_id)
    except ConfigError as error:
        raise StoreError(
            f"another run is called '{name}' or {run_id} by now: `aegish-dist runs rename` that one"
            " first"
        ) from error


def _add(
    session: Session,
    folder: Path,
    archived: ArchivedRun,
    checker: RecordChecker,
    observer: Observer,
) -> None:
    run = replace(archived.run, held=archived.run.held or RunPause.PAUSED)
    keys = [save_dataset(session, dataset, selectable=False) for dataset in archived.datasets]
    queues = [] if run.imported else queue_names(run)
    save_run(session, run, keys, queues, batch_after_s=0.0 if run.batched else None)
    execute(session, "close_models", run=run.run_id)
    target = StoredRunVerdicts(session, run.run_id)
    added = add_verdicts(target, folder / VERDICTS, checker)
    with observer.counting("verdicts restored", archived.verdicts) as show:
        for done in _counted(added, archived):
            show(done)
    if run.imported:
        execute(session, "set_datasets_of_models", run=run.run_id)
    execute(session, "release_complete", run=run.run_id)


def _put_completions_back(session: Session, folder: Path, run_id: str) -> int:
    target = StoredRunVerdicts(session, run_id)
    restored = 0
    for rows in batches(_verdicts(folder)):
        restored += target.put_completions_back([(row.record, row.about) for row in rows])
    if not restored:
        raise StoreError(
            f"the archive has no completion that run {run_id} of this store lacks: delete the run"
            " first to restore it whole"
        )
    execute(session, "count_restored", run=run_id, completions=restored)
    return restored

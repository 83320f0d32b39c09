"""Runs that leave the store: deleted, without their completions, archived; and brought back.

A run is held first, so that no worker asks anything of it; then its verdicts go in batches, and
with the last transaction the run itself. Where only completions go, no metric changes and no hash
of a snapshot: they are made from other columns. After an interruption the same command goes on.

Archiving reads the folder again by the code that restores, into tables of PostgreSQL that end with
the transaction, and compares each with the store. The folder takes its name when it is complete.
Restoring puts all rows back in one transaction. A run that is in the store and lacks completions
gets its completions back, and nothing else.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any, Literal

import msgspec
from msgspec.structs import replace
from sqlalchemy import Engine, Row
from sqlalchemy.orm import Session

from aegish_dist import __version__
from aegish_dist.core.run import Run, RunPause
from aegish_dist.db import archive
from aegish_dist.db.archive import TABLES
from aegish_dist.db.batches import batches_at_providers
from aegish_dist.db.engine import execute, in_transaction, transaction
from aegish_dist.db.fleet import living_fleet
from aegish_dist.db.runs import hold, load_bare_run, load_run, run_row
from aegish_dist.db.schema import head
from aegish_dist.db.verdicts import settle
from aegish_dist.errors import ConfigError, DatasetError, OutputError, StoreError
from aegish_dist.files import part_folder, replacing, sync_folder
from aegish_dist.inputs.checking import Location
from aegish_dist.inputs.documents import load_pyarrow, read_input
from aegish_dist.interchange.parquet_tables import copy_lines, write_table
from aegish_dist.pipeline.control import await_calls, drop_messages
from aegish_dist.pipeline.status import run_status
from aegish_dist.pipeline.workspace import SILENT, Observer, Workspace

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
        size = archive.size_of(session, run_id)
    return LeavingRun(run, size, _busy(engine, run))


def _busy(engine: Engine, run: Run) -> str | None:
    """Return why a run cannot be deleted: workers ask its models, or would soon."""
    cancel = f"`aegish-dist cancel --run-id {run.run_id}`"
    if run.held is not RunPause.CANCELLED and in_transaction(
        engine, batches_at_providers, run.run_id
    ):
        return f"batches of run {run.run_id} are at a provider and paid for: {cancel} ends them"
    if run.prompt is None or run.held is not None:
        return None
    fleet = in_transaction(engine, living_fleet)
    held = sum(items for (run_id, _), items in fleet.in_flight.items() if run_id == run.run_id)
    busy = held or (fleet.workers and run_status(engine, run.run_id).missing)
    return f"workers are at run {run.run_id}: {cancel} stops them" if busy else None


def old_runs(engine: Engine, age: timedelta, keep: int = 0) -> list[LeavingRun]:
    """Return the runs that are older than an age, oldest first, without the `keep` newest."""
    old = in_transaction(engine, archive.old_runs, datetime.now(UTC) - age, keep)
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
        drop_messages(workspace, leaving.run, observer)
    if archived is not None:
        require_archived(workspace.engine, run_id, archived)
    with observer.counting("verdicts deleted", leaving.size.verdicts) as show:
        _by_batch(workspace.engine, run_id, archive.delete_verdicts, show)
        in_transaction(workspace.engine, archive.delete_run, run_id)


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
    for model in in_transaction(engine, archive.model_keys, run_id):
        after = -1
        while True:
            with transaction(engine) as session:
                through = archive.last_of_batch(session, model, after, BATCH)
                if through is None:
                    break
                done += change(session, model, after, through)
            show(done)
            after = through
    return done


def prunable(engine: Engine, runs: Sequence[LeavingRun]) -> list[LeavingRun]:
    """Return those of some runs that have completions and are not worked on; reads all of them."""
    counted = [
        replace(each, texts=in_transaction(engine, archive.size_of_completions, each.run.run_id))
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
    prune = partial(archive.prune_verdicts, run_id=run_id, before=texts.counted_at)
    with observer.counting("completions deleted", texts.completions) as show:
        return _by_batch(engine, run_id, prune, show)


FORMAT = 1
MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 2**20
CHANGES_WITH_HOLDING = {"runs"}


class ArchivedTable(msgspec.Struct, frozen=True):
    columns: list[str]
    rows: int
    digest: str  # two sums of hashes of the rows as texts, decimal


class Manifest(msgspec.Struct, frozen=True):
    format: Literal[1]
    run_id: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-z]{9}\Z")]
    tables: dict[str, ArchivedTable]


def archive_run(engine: Engine, run_id: str, folder: Path, observer: Observer = SILENT) -> Path:
    """Write a run to a folder of its own, read that back and compare it with the store.

    An archive that is there already, as after an interruption, is compared in the same way. Returns
    the archive, a folder named after the run; the folder around it is made where it is missing.

    Raises:
        StoreError: A provider still works on batches of the run, or what was read back differs.
        OutputError: The folder cannot be written.
    """
    load_pyarrow()
    place = folder / run_id
    if os.path.lexists(place):
        compare_archive(engine, place, observer)
        require_archived(engine, run_id, place)
        return place
    try:
        with part_folder(folder, run_id) as part:
            _write(engine, run_id, part, observer)
            compare_archive(engine, part, observer)
            part.chmod(0o755)
            part.rename(place)
            sync_folder(folder)
    except OSError as error:
        raise OutputError(
            f"{place} cannot be made: {error.strerror or error}; the store is as it was"
        ) from error
    return place


def _write(engine: Engine, run_id: str, part: Path, observer: Observer) -> None:
    tables: dict[str, object] = {}
    with (
        transaction(engine, isolation_level="REPEATABLE READ") as session,
        observer.counting("tables written", len(TABLES)) as show,
    ):
        archive.prepare(session)
        run = load_run(session, run_id)
        archive.require_settled(session, run_id)
        for table in TABLES:
            columns = archive.columns_of(session, table)
            with replacing(part / f"{table}.parquet") as stream, TemporaryFile(dir=part) as rows:
                archive.write_csv(session, table, [*columns], run_id, rows)
                rows.seek(0)
                write_table(rows, columns, stream)
            number, digest = archive.content(session, table, [*columns], run_id)
            tables[table] = {"columns": [*columns], "rows": number, "digest": digest}
            show(len(tables))
    manifest = {
        "format": FORMAT,
        "aegish_dist": __version__,
        "schema": head(),
        "run_id": run.run_id,
        "run_name": run.name,
        "run_created_at": run.created_at.isoformat(),
        "archived_at": datetime.now(UTC).isoformat(),
        "tables": tables,
    }
    with replacing(part / MANIFEST) as stream:
        stream.write(json.dumps(manifest, indent=1).encode() + b"\n")


UNPACKED_PER_BYTE, SMALL_BYTES = 100, 2**30


class Room:
    """The bytes that rows of an archive may still take in PostgreSQL.

    A kilobyte of Parquet can hold a terabyte of rows. Verdicts with texts of their own take 3 to 10
    times what their files do, with one text of 1,200 characters in all of them 60 times.
    """

    def __init__(self, folder: Path, most_gib: int | None) -> None:
        """Allow some GiB; None: 100 times what the files take on the disk, and at least 1 GiB."""
        if most_gib is None:
            # Allocated blocks, as a sparse file may state any size; some file systems state no
            # blocks. Links are not followed.
            paths = (folder / f"{table}.parquet" for table in TABLES)
            files = [path.lstat() for path in paths if os.path.lexists(path)]
            taken = sum(each.st_blocks * 512 or each.st_size for each in files)
            self.most = max(SMALL_BYTES, UNPACKED_PER_BYTE * taken)
        else:
            self.most = most_gib * 2**30
        self.folder, self.left = folder, self.most

    def taken(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        for part in parts:
            self.left -= len(part)
            if self.left < 0:
                raise StoreError(
                    f"{self.folder} holds more than {self.most / 2**30:,.1f} GiB of rows; nothing"
                    " was changed. `--max-gib` allows more: only if you trust where it is from"
                )
            yield part


def compare_archive(engine: Engine, folder: Path, observer: Observer = SILENT) -> None:
    """Read an archive as `runs restore` does, and compare each table with what was archived."""
    manifest = read_manifest(folder)
    with observer.counting("tables read back", len(TABLES)) as show:
        for number, table in enumerate(TABLES, 1):
            with transaction(engine) as session:
                archive.prepare(session)
                _stage(session, folder, table, manifest)
            show(number)


def _stage(
    session: Session, folder: Path, table: str, manifest: Manifest, room: Room | None = None
) -> None:
    expected = manifest.tables[table]
    path = folder / f"{table}.parquet"
    parts = _first_rows(copy_lines(path), expected.rows)
    if room is not None:
        parts = room.taken(parts)
    rows, digest = archive.stage(session, table, expected.columns, parts)
    if (rows, digest) != (expected.rows, expected.digest):
        raise StoreError(
            f"{path} is not what was archived: {rows:,} rows, of {expected.rows:,} expected;"
            " nothing was changed"
        )


def _first_rows(parts: Iterable[bytes], number: int) -> Iterator[bytes]:
    """Yield lines until there are more than a number of them."""
    for part in parts:
        yield part
        number -= part.count(b"\n")
        if number < 0:
            return


def require_archived(engine: Engine, run_id: str, folder: Path) -> None:
    """Refuse to go on where the store has a row of a run that its archive lacks.

    What an interrupted deletion has left of a run is all in its archive.
    """
    manifest = read_manifest(folder)
    if manifest.run_id != run_id:
        raise StoreError(f"{folder} is the archive of run {manifest.run_id}: nothing was deleted")
    with transaction(engine, isolation_level="REPEATABLE READ") as session:
        archive.prepare(session)
        for table in manifest.tables.keys() - CHANGES_WITH_HOLDING:
            columns, archived = manifest.tables[table].columns, manifest.tables[table].digest
            if archive.content(session, table, columns, run_id)[1] == archived:
                continue
            _stage(session, folder, table, manifest)
            if archive.lacks_rows(session, table, columns, run_id):
                raise StoreError(
                    f"run {run_id} was changed after it was archived to {folder} ({table}): archive"
                    " it to another folder; nothing was deleted"
                )


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of an archive of a format that is known here."""
    path = folder / MANIFEST
    try:
        with Location(str(path)):
            manifest = msgspec.json.decode(read_input(path, MAX_MANIFEST_BYTES), type=Manifest)
    except (ValueError, RecursionError) as error:
        raise DatasetError(
            f"is no manifest of an archive of format {FORMAT}", source=str(path)
        ) from error
    if manifest.tables.keys() != TABLES.keys():
        raise DatasetError("names other tables", source=str(path))
    return manifest


class Restored(msgspec.Struct, frozen=True):
    run_id: str
    name: str
    verdicts: int
    completions: int | None  # completions that were put back; None where the whole run was added
    still_pruned: int  # completions of the run that are missing all the same
    held: bool = False  # whether items have no verdict, which nothing asks before `resume`


def restore_run(
    engine: Engine, folder: Path, observer: Observer = SILENT, most_gib: int | None = None
) -> Restored:
    """Bring a run back from its archive, or the completions that it lacks; `most_gib` is of `Room`.

    Raises:
        StoreError: It is not what was archived, the run is in the store with all its completions,
            or this store cannot take it; nothing is kept.
    """
    manifest = read_manifest(folder)
    run_id, verdicts = manifest.run_id, manifest.tables["verdicts"].rows
    completions, room = None, Room(folder, most_gib)
    with archive.unfit_rows_in_one_line(folder), transaction(engine) as session:
        archive.prepare(session)
        run = run_row(session, run_id)
        if run is not None and run.pruned_completions:
            _stage(session, folder, "verdicts", manifest, room)
            completions = archive.put_completions_back(session, run_id)
            verdicts = 0
        else:
            archive.require_absent(session, run_id, verdicts)
            _add(session, folder, manifest, room, observer)
        stored = load_run(session, run_id)
        still = 0 if stored.pruned is None else stored.pruned.completions
        held = completions is None and stored.held is not None
        result = Restored(run_id, stored.name, verdicts, completions, still, held)
    settle(engine, verdicts)
    return result


def _add(
    session: Session, folder: Path, manifest: Manifest, room: Room, observer: Observer
) -> None:
    execute(session, "create_new_keys")
    with observer.counting("tables restored", len(TABLES)) as show:
        for number, table in enumerate(TABLES, 1):
            columns = manifest.tables[table].columns
            _stage(session, folder, table, manifest, room)
            archive.require_own(session, table, columns, manifest.run_id)
            archive.add_rows(session, table, columns)
            show(number)
    hold(session, manifest.run_id, RunPause.PAUSED)
    execute(session, "release_complete", run=manifest.run_id)

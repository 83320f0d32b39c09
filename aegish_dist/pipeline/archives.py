"""Archives of runs: every row to a folder and back, compared both times.

Archiving reads the folder again by the code that restores, into tables of PostgreSQL that end with
the transaction, and compares each with the store. The folder takes its name when it is complete.
Restoring puts all rows back in one transaction. A run that is in the store and lacks completions
gets its completions back, and nothing else.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist import __version__
from aegish_dist.core.run import Run
from aegish_dist.db import archive
from aegish_dist.db import archive as restoring
from aegish_dist.db.archive import TABLES, Content
from aegish_dist.db.engine import transaction
from aegish_dist.db.imports import settle
from aegish_dist.db.runs import load_run
from aegish_dist.db.schema import head
from aegish_dist.db.tables import RunRow
from aegish_dist.errors import DatasetError, OutputError, StoreError
from aegish_dist.files import replacing, sync_folder
from aegish_dist.inputs.documents import load_pyarrow
from aegish_dist.interchange.archive_tables import copy_lines, write_table
from aegish_dist.pipeline.delete_runs import Doomed, delete_runs
from aegish_dist.pipeline.import_verdicts import SETTLE_FROM
from aegish_dist.pipeline.workspace import SILENT, Observer

if TYPE_CHECKING:
    from aegish_dist.pipeline.workspace import Workspace


FORMAT = 1
MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 2**20
CHANGES_WITH_HOLDING = ("runs",)
_RUN_ID = re.compile(r"[0-9a-z]{9}")


def archive_run(engine: Engine, run_id: str, folder: Path, observer: Observer = SILENT) -> Path:
    """Write a run to a folder of its own, read that back and compare it with the store.

    Args:
        folder: Where the folder shall be; made where it is missing.

    Returns:
        The folder, named after the run.

    Raises:
        StoreError: A provider still works on batches of the run, or what was read back differs.
        OutputError: The folder is there already, or cannot be written.
    """
    load_pyarrow()
    place = folder / run_id
    if place.exists():
        raise OutputError(f"{place} is there already: name another folder with --to")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part = Path(mkdtemp(prefix=f".{run_id}-", suffix=".part", dir=folder))
    except OSError as error:
        raise OutputError(f"{folder} cannot be written: {error.strerror or error}") from error
    try:
        manifest = _write(engine, run_id, part, observer)
        compare_archive(engine, part, manifest, observer)
        _give_name(part, place)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return place


def _give_name(part: Path, place: Path) -> None:
    try:
        part.chmod(0o755)
        part.rename(place)
        sync_folder(place.parent)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(f"{place} cannot be made: {reason}; the store is as it was") from error


def _write(engine: Engine, run_id: str, part: Path, observer: Observer) -> dict[str, Any]:
    contents: dict[str, Any] = {}
    with (
        transaction(engine, isolation_level="REPEATABLE READ") as session,
        observer.counting("tables written", len(TABLES)) as show,
    ):
        archive.prepare(session)
        run = load_run(session, run_id)
        archive.require_settled(session, run_id)
        for table in TABLES:
            columns = archive.columns_of(session, table)
            with (
                replacing(part / f"{table}.parquet") as stream,
                archive.rows_as_csv(session, table, list(columns), run_id) as rows,
            ):
                write_table(rows, columns, stream)
            found = archive.content(session, table, list(columns), run_id)
            contents[table] = {"columns": list(columns), **asdict(found)}
            show(len(contents))
    manifest = _manifest(run, contents)
    with replacing(part / MANIFEST) as stream:
        stream.write(json.dumps(manifest, indent=1).encode() + b"\n")
    return manifest


def _manifest(run: Run, contents: dict[str, Any]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "aegish_dist": __version__,
        "schema": head(),
        "run_id": run.run_id,
        "run_name": run.name,
        "run_created_at": run.created_at.isoformat(),
        "archived_at": datetime.now(UTC).isoformat(),
        "tables": contents,
    }


def compare_archive(
    engine: Engine, folder: Path, manifest: dict[str, Any], observer: Observer = SILENT
) -> None:
    """Read an archive as `runs restore` does, and compare each table with what was archived.

    Raises:
        StoreError: A table is not what was archived.
    """
    with (
        transaction(engine) as session,
        observer.counting("tables read back", len(TABLES)) as show,
    ):
        archive.prepare(session)
        for number, table in enumerate(TABLES, 1):
            staged(session, folder, table, manifest, lambda: None)
            show(number)
        session.rollback()


def staged(
    session: Session,
    folder: Path,
    table: str,
    manifest: dict[str, Any],
    use: Callable[[], object] | None,
) -> None:
    """Read a table of an archive into the transaction, and compare it with the manifest.

    Args:
        use: Called with each part in place, which is then taken out; None leaves all in place.

    Raises:
        StoreError: It is not what was archived, or the store lacks a column of it.
    """
    archive.open_stage(session, table, manifest["tables"][table]["columns"])
    parts: list[Content] = []
    for lines in copy_lines(folder / f"{table}.parquet"):
        archive.stage(session, table, lines)
        if use is not None:
            parts.append(archive.staged_content(session, table))
            use()
            archive.clear_stage(session, table)
    found = archive.staged_content(session, table) if use is None else archive.added(parts)
    expected = manifest["tables"][table]
    if (found.rows, found.digest) != (expected["rows"], expected["digest"]):
        raise StoreError(
            f"{folder / table}.parquet is not what was archived: {found.rows:,} rows, of"
            f" {expected['rows']:,} expected; nothing was changed"
        )


def delete_archived(
    workspace: Workspace, archived: Sequence[tuple[Doomed, Path]], observer: Observer = SILENT
) -> None:
    """Delete runs of which the store has nothing that their archives lack.

    Raises:
        StoreError: A run was changed after it was archived, or workers are at it; it stays whole.
    """
    manifests = {each.run.run_id: read_manifest(place) for each, place in archived}
    delete_runs(
        workspace,
        [each for each, _ in archived],
        observer,
        lambda run: require_unchanged(workspace.engine, manifests[run.run_id]),
    )


def require_unchanged(engine: Engine, manifest: dict[str, Any]) -> None:
    """Refuse to go on where the store has another content of a run than its archive."""
    run_id = manifest["run_id"]
    with transaction(engine, isolation_level="REPEATABLE READ") as session:
        archive.prepare(session)
        for table, expected in manifest["tables"].items():
            if table not in CHANGES_WITH_HOLDING:
                found = archive.content(session, table, expected["columns"], run_id)
                if found.digest != expected["digest"]:
                    raise StoreError(
                        f"run {run_id} was changed after it was archived ({table}): archive it"
                        " again; nothing was deleted"
                    )


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of an archive.

    Raises:
        DatasetError: The folder is no archive of a format that is known here.
    """
    path = folder / MANIFEST
    try:
        with path.open("rb") as stream:
            manifest = json.loads(stream.read(MAX_MANIFEST_BYTES))
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            raise DatasetError(f"is no archive of format {FORMAT}", source=str(path))
        manifest["tables"] = {
            table: {
                "columns": list(map(str, each["columns"])),
                "rows": int(each["rows"]),
                "digest": str(each["digest"]),
            }
            for table, each in manifest["tables"].items()
        }
        if manifest["tables"].keys() != TABLES.keys() or not _RUN_ID.fullmatch(manifest["run_id"]):
            raise DatasetError("names other tables or no run", source=str(path))
    except OSError as error:
        reason = error.strerror or str(error)
        raise DatasetError(f"cannot be read: {reason}", source=str(path)) from error
    except (
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise DatasetError("is no manifest of an archive", source=str(path)) from error
    return manifest


_OF_COMPLETIONS = ("run_models", "samples", "verdicts")


@dataclass(frozen=True, slots=True)
class Restored:
    """The result of a restore."""

    run_id: str
    name: str
    """Its name; may be empty."""
    verdicts: int
    completions: int | None
    """Completions that were put back; None where the whole run was added."""
    still_pruned: int
    """Completions of the run that are missing all the same."""


def restore_run(engine: Engine, folder: Path, observer: Observer = SILENT) -> Restored:
    """Bring a run back from its archive, or the completions that it lacks.

    Raises:
        StoreError: It is not what was archived, the run is in the store with all its completions,
            or this store cannot take it; nothing is kept.
    """
    manifest = read_manifest(folder)
    run_id = manifest["run_id"]
    archived: int = manifest["tables"]["verdicts"]["rows"]
    with restoring.unfit_rows_in_one_line(folder), transaction(engine) as session:
        archive.prepare(session)
        run = session.get(RunRow, run_id)
        if run is not None and run.pruned_completions:
            restored = _put_back(session, folder, manifest)
            session.expire_all()
        else:
            restoring.require_absent(session, run_id, archived)
            _add(session, folder, manifest, observer)
            restored = None
        row = session.get_one(RunRow, run_id)
        verdicts = 0 if restored is not None else archived
        result = Restored(run_id, row.name, verdicts, restored, row.pruned_completions)
    if verdicts >= SETTLE_FROM:
        settle(engine)
    return result


def _add(session: Session, folder: Path, manifest: dict[str, Any], observer: Observer) -> None:
    restoring.open_keys(session)
    with observer.counting("tables restored", len(TABLES)) as show:
        for number, table in enumerate(TABLES, 1):
            columns: Sequence[str] = manifest["tables"][table]["columns"]
            add = partial(restoring.add_rows, session, table, columns)
            if table in restoring.LARGE:
                staged(session, folder, table, manifest, add)
            else:
                staged(session, folder, table, manifest, None)
                if table in restoring.OWN_KEYS:
                    restoring.give_keys(session, table)
                add()
            if table == "runs":
                restoring.require_own_name(session, manifest["run_id"])
            show(number)


def _put_back(session: Session, folder: Path, manifest: dict[str, Any]) -> int:
    run_id: str = manifest["run_id"]
    *small, verdicts = _OF_COMPLETIONS
    for table in small:
        staged(session, folder, table, manifest, None)
    restoring.require_same_keys(session, run_id)
    restored = 0

    def use() -> None:
        nonlocal restored
        restored += restoring.put_completions_back(session, run_id)

    staged(session, folder, verdicts, manifest, use)
    if not restored:
        raise StoreError(f"the archive has no completion that run {run_id} of this store lacks")
    return restored

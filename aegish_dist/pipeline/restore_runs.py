"""Restoring runs from archives: all rows in one transaction, compared with what was archived.

Of a run that is in the store and lacks completions, these are put back, and nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.db import archive, restoring
from aegish_dist.db.archive import TABLES
from aegish_dist.db.engine import transaction
from aegish_dist.db.imports import settle
from aegish_dist.db.tables import RunRow
from aegish_dist.errors import StoreError
from aegish_dist.pipeline.archive_runs import read_manifest, staged
from aegish_dist.pipeline.import_verdicts import SETTLE_FROM
from aegish_dist.pipeline.workspace import SILENT, Observer

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

"""Deleting runs, or the completions of runs that stay.

A run is held first, so that no worker asks anything of it; then its verdicts go in batches, and
with the last transaction the run itself. Where only completions go, no metric changes and no hash
of a snapshot: they are made from other columns. `reparse` cannot read again what is gone, and
reports say how much that is. After an interruption the same command goes on.

Celery takes 0.1 s to import: what needs it does so itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from aegish_dist.core.run import Run, RunPause
from aegish_dist.db import deletion
from aegish_dist.db.deletion import CompletionsSize, model_keys, prune_batch, size_of_completions
from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import hold, load_run
from aegish_dist.db.workers import living_fleet
from aegish_dist.errors import ConfigError, StoreError
from aegish_dist.pipeline.control import at_providers, await_calls, drop_messages
from aegish_dist.pipeline.status import run_status
from aegish_dist.pipeline.workspace import SILENT, Observer

if TYPE_CHECKING:
    from aegish_dist.pipeline.workspace import Workspace


BATCH = 20_000
"""Verdicts per transaction: a second, in which those who wait for its rows wait."""
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


@dataclass(frozen=True, slots=True)
class Doomed:
    """A run that is to be deleted."""

    run: Run
    size: deletion.RunSize
    busy: str | None = None
    """Why it cannot be deleted now; None when it can."""


def look_at(engine: Engine, run_id: str) -> Doomed:
    """Return what would be lost with a run, and whether workers are at it."""
    with transaction(engine) as session:
        run = load_run(session, run_id)
        size = deletion.size_of(session, run_id)
    return Doomed(run, size, _busy(engine, run))


def _busy(engine: Engine, run: Run) -> str | None:
    """Return why a run cannot be deleted: workers ask its models, or would soon."""
    if run.held is not RunPause.CANCELLED and at_providers(engine, run.run_id):
        cancel = f"`aegish-dist cancel --run-id {run.run_id}`"
        return f"batches of run {run.run_id} are at a provider and paid for: {cancel} ends them"
    if run.prompt is None or run.held is not None:
        return None
    with transaction(engine) as session:
        fleet = living_fleet(session)
    held = sum(items for (run_id, _), items in fleet.in_flight.items() if run_id == run.run_id)
    if held or (fleet.workers and run_status(engine, run.run_id).missing):
        cancel = f"`aegish-dist cancel --run-id {run.run_id}`"
        return f"workers are at run {run.run_id}: {cancel} stops them"
    return None


def old_runs(engine: Engine, age: timedelta, keep: int = 0) -> list[Doomed]:
    """Return the runs that are older than an age, oldest first.

    Args:
        keep: So many newest runs are left out, however old they are.
    """
    with transaction(engine) as session:
        kept = set(deletion.newest_runs(session, keep))
        old = deletion.runs_before(session, datetime.now(UTC) - age)
    return [look_at(engine, run_id) for run_id in old if run_id not in kept]


def parsed_age(text: str) -> timedelta:
    """Read an age such as `90d`."""
    match = re.fullmatch(r"([0-9]{1,5})([hdw])", text.strip())
    if match is None:
        raise ConfigError(f"'{text}' is no age: write 12h, 90d or 8w")
    return int(match[1]) * _UNITS[match[2]]


def delete_runs(
    workspace: Workspace,
    doomed: Sequence[Doomed],
    observer: Observer = SILENT,
    last_look: Callable[[Run], object] = lambda run: None,
) -> None:
    """Delete runs with all that belongs to them.

    Args:
        last_look: Called with each run when nothing is added to it any more; its error keeps it.
    """
    total = sum(each.size.verdicts for each in doomed)
    done = 0
    with observer.counting("verdicts deleted", total) as show:
        for each in doomed:
            if each.busy is not None:
                raise StoreError(each.busy)
            for deleted in _delete(workspace, each.run, observer, last_look):
                done += deleted
                show(done)


def _delete(
    workspace: Workspace, run: Run, observer: Observer, last_look: Callable[[Run], object]
) -> Iterator[int]:
    """Delete a run, and yield how many verdicts went with each transaction."""
    engine = workspace.engine
    with transaction(engine) as session:
        hold(session, run.run_id, RunPause.CANCELLED)
    if run.prompt is not None:
        await_calls(engine, run, observer)
        drop_messages(workspace, run, observer)
    last_look(run)
    with transaction(engine) as session:
        models = deletion.model_keys(session, run.run_id)
    for model in models:
        after = -1
        while True:
            with transaction(engine) as session:
                batch = deletion.delete_batch(session, model, after, BATCH)
            if batch is None:
                break
            after = batch.through
            yield batch.verdicts
    with transaction(engine) as session:
        deletion.delete_run(session, run.run_id)


@dataclass(frozen=True, slots=True)
class Prunable:
    """A run that has completions to delete."""

    run: Run
    size: CompletionsSize


def prunable(engine: Engine, runs: Sequence[Doomed]) -> list[Prunable]:
    """Return those of some runs that have completions and are not worked on; reads all of them."""
    found = []
    for each in runs:
        if each.busy is None:
            with transaction(engine) as session:
                size = size_of_completions(session, each.run.run_id)
            if size.completions:
                found.append(Prunable(each.run, size))
    return found


def prune_completions(engine: Engine, runs: Sequence[Prunable], observer: Observer = SILENT) -> int:
    """Delete the completions of runs, and return how many they were.

    Raises:
        StoreError: The database cannot be used; what is deleted stays so.
    """
    done = 0
    with observer.counting("completions deleted", sum(e.size.completions for e in runs)) as show:
        for each in runs:
            for deleted in _prune(engine, each.run.run_id, each.size.counted_at):
                done += deleted
                show(done)
    return done


def _prune(engine: Engine, run_id: str, before: datetime) -> Iterator[int]:
    """Prune a run, and yield how many completions went with each transaction."""
    with transaction(engine) as session:
        models = model_keys(session, run_id)
    if not models:
        raise StoreError(f"run {run_id} was deleted by another command")
    for model in models:
        after = -1
        while True:
            with transaction(engine) as session:
                batch = prune_batch(session, run_id, model, after, BATCH, before=before)
            if batch is None:
                break
            after = batch.through
            yield batch.completions

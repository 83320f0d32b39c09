"""Pruning completions of old runs: the verdicts stay, with all that was read and measured.

No metric changes, and no hash of a snapshot: they are made from other columns. `reparse` cannot
read again what is gone, and reports name how much that is. Interrupted in between, the same command
goes on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine

from aegish_dist.core.run import Run
from aegish_dist.db.deletion import model_keys
from aegish_dist.db.engine import transaction
from aegish_dist.db.pruning import CompletionsSize, prune_batch, size_of_completions
from aegish_dist.errors import StoreError
from aegish_dist.pipeline.delete_runs import BATCH, Doomed
from aegish_dist.pipeline.workspace import SILENT, Observer


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

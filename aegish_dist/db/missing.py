"""The items of runs that have no verdict, the open models, and what follows when none is missing.

A model of a run is open, and workers listen to its queue, while one of its items may wait there.

Verdicts are only ever added, so a search for the first sample that lacks one goes on where the last
search ended: over a whole run each item is looked at about once, most of them at its end because
samples are asked in mixed order. Counting would read all verdicts each time.

The aggregation of a complete run is a row of an outbox. It is written in the transaction that finds
the run complete, enqueued after its commit, and finished in the transaction that appends its
snapshots: whatever crashes in between, one completion of a run leads to one aggregation.
"""

import time
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import Row
from sqlalchemy.orm import Session

from aegish_dist.core.model import Destination, ModelSpec
from aegish_dist.core.outcome import Outcome
from aegish_dist.core.run import Prompt, Run
from aegish_dist.core.text import clean_text
from aegish_dist.core.verdict import Item
from aegish_dist.db.engine import execute, statement
from aegish_dist.db.runs import destination_of, load_run, save_models
from aegish_dist.db.schema import AdvisoryLock, outcome_number
from aegish_dist.errors import StoreError
from aegish_dist.opinions.scoring import DEFAULT_RULE

# Seconds after which an aggregation that was enqueued and is not being made is enqueued again: its
# message is lost, or its turn has not come yet and a second message does no harm.
LOST_AFTER_S = 60.0
PROBLEM_LENGTH = 500


class Aggregation(Struct, frozen=True):
    finished: bool  # whether it was made, or has failed and is not tried again
    snapshot_id: int | None
    problem: str | None


def request_of_completed(session: Session, run_ids: Collection[str]) -> None:
    """Ask for one aggregation of each run that is complete now and was not before.

    One that a user paused or cancelled while its last calls were in flight is held no more.
    """
    runs = sorted(run_ids)
    execute(session, "release_completed", runs=runs)
    execute(session, "request_of_completed", runs=runs, scoring=DEFAULT_RULE.name)


def may_aggregate(session: Session) -> bool:
    """Return whether the role of this session may store snapshots; that of workers may not."""
    return bool(execute(session, "may_aggregate").scalar())


def take_due(session: Session, lost_after_s: float | None = LOST_AFTER_S) -> Sequence[int]:
    """Mark aggregations as enqueued, which the caller does after its commit; return their keys.

    Args:
        lost_after_s: Seconds after which a message counts as lost; None: never.
    """
    return sorted(execute(session, "take_due_aggregations", lost_after_s=lost_after_s).scalars())


def unfinished(session: Session, run_id: str) -> Sequence[int]:
    """Return the keys of a run's aggregations that are not finished, oldest first."""
    return execute(session, "unfinished_aggregations", run=run_id).scalars().all()


def claim(session: Session, key: int) -> tuple[str, str] | None:
    """Lock an aggregation until the end of the transaction; return its run id and rule set.

    Args:
        session: Transaction of the caller, who makes the aggregation in it.

    Returns:
        None when it is finished, unknown, or being made by another worker.
    """
    row = execute(session, "claim_aggregation", id=key).one_or_none()
    return None if row is None else (row.run_id, row.scoring)


def is_unfinished(session: Session, key: int) -> bool:
    return bool(execute(session, "is_unfinished", id=key).scalar())


def finish(
    session: Session, key: int, snapshot_ids: Sequence[int], problem: str | None = None
) -> None:
    """Write down what came of an aggregation; one that is finished stays as it is.

    Args:
        problem: Why it made none, one line without a key; None when it did.
    """
    execute(
        session,
        "finish_aggregation",
        id=key,
        snapshots=list(snapshot_ids) or None,
        problem=None if problem is None else clean_text(problem[:PROBLEM_LENGTH]),
    )


def newest_aggregation(session: Session, run_id: str) -> Aggregation | None:
    """Return the newest aggregation since a run was last extended or retried; None without one."""
    row = execute(session, "newest_aggregation", run=run_id).one_or_none()
    return None if row is None else Aggregation(*row)


SEARCH_S = 0.3  # seconds that one call may search for; meanwhile its worker looks for no new runs
STRETCH = 5000
STREAM_ROWS = 5000


class OpenModel(Struct, frozen=True):
    """A model of a run of which workers may find items in a queue."""

    run_id: str
    model: str
    destination: Destination  # where its calls go, and with which key
    held: bool = False  # whether its run is held: no item may be taken from its queue


class Extent(Struct, frozen=True):
    models: tuple[str, ...]
    dataset_ids: tuple[int, ...]
    epochs: int


def missing_items(
    session: Session, run_id: str, generation: int | None = None, beyond: Extent | None = None
) -> Generator[Item, None, None]:
    """Stream the items of a run that have no verdict and are asked by messages.

    That is what is planned, minus verdicts, minus what is asked in batches.

    Args:
        generation: Only those that this retry planned; None for all, first tries included.
        beyond: Only first tries that the run did not plan while it asked no more than this.
    """
    planned, values = "missing_items", dict[str, object](run=run_id)
    if generation is not None:
        planned, values["generation"] = "missing_items_of_retry", generation
    elif beyond is not None:
        planned = "missing_items_beyond"
        values |= {"models": list(beyond.models), "epochs": beyond.epochs}
        values["datasets"] = list(beyond.dataset_ids)
    streamed = {"yield_per": STREAM_ROWS}
    with session.execute(statement(planned), values, execution_options=streamed) as rows:
        for row in rows:
            yield Item(run_id, row.model, row.sample_key, row.epoch, row.generation)


def open_models(session: Session, run_id: str) -> None:
    """Have the workers listen to the queues of a run's models."""
    execute(session, "open_asked_models", run=run_id)


def open_queues(session: Session) -> dict[str, OpenModel]:
    """Return the queues of open models, and whose items are in them.

    Workers should listen to those of runs that are not held. Where a row cannot be read, the
    destination says so, and no worker may call that model.
    """
    return {
        row.queue: OpenModel(
            row.run_id, row.model, destination_of(row.run_id, row.model, row.spec), row.held
        )
        for row in execute(session, "open_queues")
    }


class FinishedModels:
    """Closes models that are finished; remembers up to where their items are answered."""

    def __init__(self, *, search_s: float = SEARCH_S, stretch: int = STRETCH) -> None:
        """Begin at the first sample; a call searches for `search_s`, `stretch` keys at a time."""
        self._search_s = search_s
        self._stretch = stretch
        # By key of a model of a run: no sample up to this key lacks a verdict.
        self._answered: dict[int, int] = {}

    def close(self, session: Session, among: Collection[tuple[str, str]] | None = None) -> bool:
        """Stop listening for the models of which nothing is missing.

        A run whose last open model is closed is complete: its aggregation is asked for.

        Args:
            session: Transaction of the caller. While another one does this, nothing is done.
            among: Models to look at, as run id and model id; None for all.

        Returns:
            Whether each of them is now known to be finished or not.
        """
        if not execute(session, "try_lock", key=AdvisoryLock.CLOSING).scalar():
            return False
        execute(session, "read_samples_by_key")
        opened = execute(session, "open_models").all()
        self._answered = {model.id: self._answered.get(model.id, 0) for model in opened}
        last = execute(session, "last_sample").scalar_one()
        deadline = time.monotonic() + self._search_s
        misses = {
            model.id: self._misses_one(session, model, last, deadline)
            for model in opened
            if among is None or (model.run_id, model.model) in among
        }
        finished = [model_id for model_id, missing in misses.items() if missing is False]
        if finished:
            _close(session, finished)
            for model_id in finished:  # deleted verdicts are found missing next time
                del self._answered[model_id]
        return None not in misses.values()

    def _misses_one(
        self, session: Session, model: Row[Any], last: int, deadline: float
    ) -> bool | None:
        """Search on; return whether a sample lacks a verdict, None before the end of the search."""
        after = self._answered[model.id]
        while after < last:
            missing = execute(
                session,
                "first_missing",
                model=model.id,
                epochs=model.epochs,
                after=after,
                through=after + self._stretch,
                datasets=model.datasets,
            ).scalar()
            after = self._answered[model.id] = (
                after + self._stretch if missing is None else missing - 1
            )
            if missing is not None:
                return True
            if after < last and time.monotonic() > deadline:
                return None
        return False


def _close(session: Session, models: Sequence[int]) -> None:
    # A retry opens a model in the transaction that plans its items: whichever of the two comes
    # first, the other one waits or is left out, and then sees what the first one did.
    locked = execute(session, "lock_open_models", models=models).scalars().all()
    runs = set(execute(session, "close_finished_models", models=locked).scalars())
    execute(session, "forget_live_items", models=locked)
    if runs:
        request_of_completed(session, runs)


def extent_of(session: Session, run: Run) -> Extent:
    """Lock a run until the transaction ends, and return what it asks.

    Args:
        session: Transaction of the caller. Two that extend one run wait for each other.

    Raises:
        StoreError: It was extended, held or deleted since.
    """
    locked = execute(session, "lock_run", run=run.run_id).scalar()
    if locked is None or load_run(session, run.run_id) != run:
        raise StoreError(f"run {run.run_id} was changed by another command meanwhile: try again")
    datasets = execute(session, "asked_datasets", run=run.run_id)
    models = tuple(spec.id for spec in run.models)
    return Extent(models, tuple(dataset.id for dataset in datasets), run.epochs)


def save_extension(
    session: Session,
    run_id: str,
    models: Sequence[ModelSpec],
    queues: Sequence[str],
    dataset_ids: Sequence[int],
    *,
    epochs: int,
    in_batches: bool = False,
    prompts: Mapping[str, Prompt] | None = None,
) -> None:
    """Add to what a run asks, and have workers listen to all its queues again.

    Args:
        session: Transaction of the caller, which `extent_of` locked the run in.
        in_batches: Whether the new models are asked in batches, where their providers take them.
    """
    execute(session, "set_epochs", run=run_id, epochs=epochs)
    execute(session, "add_datasets", run=run_id, datasets=list(dataset_ids))
    after_s = 0.0 if in_batches else None
    save_models(session, run_id, models, queues, batch_after_s=after_s, prompts=prompts)
    open_models(session, run_id)


class Retry(Struct, frozen=True):
    generation: int
    items: int


def save_retry(
    session: Session, run_id: str, outcomes: Collection[Outcome], models: Sequence[str]
) -> Retry | None:
    """Plan once more what ended in some outcomes, as a generation of its own.

    Args:
        session: Transaction of the caller. Two at once for one run wait for each other.

    Returns:
        The retry; None when no verdict ended so, or all that did are planned again already.
    """
    execute(session, "lock_run", run=run_id)
    generation: int = execute(session, "next_generation", run=run_id).scalar_one()
    planned = execute(
        session,
        "plan_retry",
        run=run_id,
        models=list(models),
        outcomes=sorted(map(outcome_number, outcomes)),
        generation=generation,
    )
    if not planned.rowcount:
        return None
    retry = Retry(generation, planned.rowcount)
    named = [outcome.value for outcome in Outcome if outcome in outcomes]
    execute(session, "add_retry", run=run_id, outcomes=named, **asdict(retry))
    return retry

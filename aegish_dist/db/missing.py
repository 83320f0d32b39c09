"""The items of runs that have no verdict, and the models that workers listen to because of them.

A model of a run is open while one of its items may wait in its queue.

Verdicts are only ever added, and messages come in the order of the samples, so a search for the
first sample that lacks one goes on where the last search ended: over a whole run each item is
looked at about once, where counting would read all verdicts each time.
"""

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select, text, update
from sqlalchemy.orm import Session

from aegish_dist.core.model import Destination
from aegish_dist.core.verdict import Item
from aegish_dist.db.base import AdvisoryLock
from aegish_dist.db.retries import UNANSWERED
from aegish_dist.db.tables import RunModelRow, SampleRow

SEARCH_S = 0.3
"""How long one call goes on searching; meanwhile its worker looks for no new runs."""
STRETCH = 5000
"""Keys of samples per statement."""

STREAM_ROWS = 5000

_MISSING = text(
    f"""
    SELECT model.model, sample.key, repeat.epoch, 0 AS generation
    FROM runs AS run
    JOIN run_models AS model ON model.run_id = run.id
    JOIN run_datasets AS asked ON asked.run_id = run.id
    JOIN samples AS sample ON sample.dataset_id = asked.dataset_id
    CROSS JOIN generate_series(1, run.epochs) AS repeat (epoch)
    WHERE run.id = :run AND NOT EXISTS (
        SELECT FROM verdicts AS verdict
        WHERE verdict.run_model_id = model.id AND verdict.sample_key = sample.key
          AND verdict.epoch = repeat.epoch)
    UNION ALL
    SELECT model.model, retried.sample_key, retried.epoch, retried.generation
    FROM run_models AS model JOIN retried_items AS retried ON retried.run_model_id = model.id
    WHERE model.run_id = :run AND {UNANSWERED}
    ORDER BY 1, 4, 3, 2
    """  # noqa: S608  # nosec B608 # put together from nothing but our own conditions
)

_MISSING_OF_RETRY = text(
    f"""
    SELECT model.model, retried.sample_key, retried.epoch, retried.generation
    FROM run_models AS model JOIN retried_items AS retried ON retried.run_model_id = model.id
    WHERE model.run_id = :run AND retried.generation = :generation AND {UNANSWERED}
    ORDER BY 1, 3, 2
    """  # noqa: S608  # nosec B608 # put together from nothing but our own conditions
)


_OPEN = text(
    """
    SELECT model.id, run.epochs, array_agg(asked.dataset_id) AS datasets
    FROM run_models AS model
    JOIN runs AS run ON run.id = model.run_id
    JOIN run_datasets AS asked ON asked.run_id = run.id
    WHERE model.open
    GROUP BY model.id, run.epochs
    ORDER BY model.id
    """
)

_IN_ORDER_OF_KEYS = text(
    "SELECT set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true)"
)
"""Has PostgreSQL read samples by their key and end with the first that is asked for, even where
its statistics are wrong about their number."""

_FIRST_MISSING = text(
    """
    SELECT sample.key FROM samples AS sample
    WHERE sample.key > :after AND sample.key <= :through AND sample.dataset_id = ANY(:datasets)
      AND :epochs > (
        SELECT count(*) FROM verdicts
        WHERE run_model_id = :model AND sample_key = sample.key AND generation = 0)
    ORDER BY sample.key LIMIT 1
    """
)

_LOCK = text(
    "SELECT id FROM run_models WHERE id = ANY(:models) AND open FOR NO KEY UPDATE SKIP LOCKED"
)

_CLOSE = text(
    f"""
    UPDATE run_models SET open = false
    WHERE id = ANY(:models)
      AND (SELECT count(*) FROM verdicts WHERE run_model_id = run_models.id AND generation = 0) >= (
        SELECT sum(dataset.samples) * run.epochs
        FROM runs AS run
        JOIN run_datasets AS asked ON asked.run_id = run.id
        JOIN datasets AS dataset ON dataset.id = asked.dataset_id
        WHERE run.id = run_models.run_id
        GROUP BY run.epochs)
      AND NOT EXISTS (
        SELECT FROM retried_items AS retried
        WHERE retried.run_model_id = run_models.id AND {UNANSWERED})
    """  # noqa: S608  # nosec B608 # put together from nothing but our own conditions
)


@dataclass(frozen=True, slots=True)
class OpenModel:
    """A model of a run of which workers may find items in a queue."""

    run_id: str
    model: str
    destination: Destination


@dataclass(frozen=True, slots=True)
class _OpenModel:
    id: int
    epochs: int
    datasets: Sequence[int]


def missing_items(
    session: Session, run_id: str, generation: int | None = None
) -> Generator[Item, None, None]:
    """Stream the items of a run that have no verdict: what is planned minus verdicts.

    Args:
        session: Transaction of the caller.
        run_id: A full run id.
        generation: Only those that this retry planned; None for all, first tries included.
    """
    statement = _MISSING if generation is None else _MISSING_OF_RETRY
    values = {"run": run_id} if generation is None else {"run": run_id, "generation": generation}
    streamed = {"yield_per": STREAM_ROWS}
    with session.execute(statement, values, execution_options=streamed) as rows:
        for model, key, epoch, planned in rows:
            yield Item(run_id, model, key, epoch, planned)


def open_models(session: Session, run_id: str) -> None:
    """Have the workers listen to the queues of a run's models."""
    session.execute(
        update(RunModelRow)
        .where(RunModelRow.run_id == run_id, RunModelRow.queue != "")
        .values(open=True)
    )


def open_queues(session: Session) -> dict[str, OpenModel]:
    """Return the queues that workers should listen to, and whose items are in them."""
    needs = ("wire", "base_url", "key_variable")
    rows = session.execute(
        select(
            RunModelRow.queue,
            RunModelRow.run_id,
            RunModelRow.model,
            *(RunModelRow.spec[need].astext for need in needs),
        ).where(RunModelRow.open)
    )
    return {row[0]: OpenModel(row[1], row[2], Destination(*row[3:])) for row in rows}


class FinishedModels:
    """Closes models that are finished; remembers up to where their items are answered."""

    def __init__(self, *, search_s: float = SEARCH_S, stretch: int = STRETCH) -> None:
        """Begin every search at the first sample.

        Args:
            search_s: Seconds that one call may search for; another statement is always made.
            stretch: Keys of samples per statement, at least 1.
        """
        self._search_s = search_s
        self._stretch = stretch
        self._answered: dict[int, int] = {}
        """By key of a model of a run: no sample up to this key lacks a verdict."""

    def close(self, session: Session) -> None:
        """Stop listening for the models of which nothing is missing.

        Args:
            session: Transaction of the caller. While another one does this, nothing is done.
        """
        if not session.scalar(select(func.pg_try_advisory_xact_lock(AdvisoryLock.CLOSING))):
            return
        session.execute(_IN_ORDER_OF_KEYS)
        opened = [_OpenModel(*row) for row in session.execute(_OPEN)]
        self._answered = {model.id: self._answered.get(model.id, 0) for model in opened}
        last = session.scalar(select(func.max(SampleRow.key))) or 0
        deadline = time.monotonic() + self._search_s
        finished = [
            model.id for model in opened if not self._misses_one(session, model, last, deadline)
        ]
        if finished:
            _close(session, finished)
            for model_id in finished:  # deleted verdicts are found missing next time
                del self._answered[model_id]

    def _misses_one(self, session: Session, model: _OpenModel, last: int, deadline: float) -> bool:
        """Search on; whether a sample lacks a verdict, or the search has not got to the end."""
        after = self._answered[model.id]
        while after < last:
            stretch = {"after": after, "through": after + self._stretch, "datasets": model.datasets}
            missing = session.scalar(
                _FIRST_MISSING, {"model": model.id, "epochs": model.epochs, **stretch}
            )
            after = self._answered[model.id] = (
                after + self._stretch if missing is None else missing - 1
            )
            if missing is not None or (after < last and time.monotonic() > deadline):
                return True
        return False


def _close(session: Session, models: Sequence[int]) -> None:
    # A retry opens a model in the transaction that plans its items: whichever of the two comes
    # first, the other one waits or is left out, and then sees what the first one did.
    locked = session.scalars(_LOCK, {"models": models}).all()
    session.execute(_CLOSE, {"models": locked})

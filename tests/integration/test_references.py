"""Verdicts refer to models and samples that are there, whatever happens at the same time."""

import threading
from collections.abc import Callable

import pytest
from sqlalchemy import Engine, delete, func, select, text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from aegish_dist.core.verdict import Item
from aegish_dist.db.runs import save_dataset
from aegish_dist.db.schema import DATASETS, RUN_MODELS, RUNS, SAMPLES, VERDICTS
from tests.integration.samples import BLOCKED, COMMANDS, TAR
from tests.integration.stored_runs import answer, stored_run
from tests.services import wait_until

WAITING = text(
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


def orphans(engine: Engine) -> int:
    with Session(engine) as session:
        return session.scalar(
            select(func.count())
            .select_from(VERDICTS)
            .where(~select(RUN_MODELS.c.id).where(RUN_MODELS.c.id == VERDICTS.c.run_model_id).exists())
        ) or 0  # fmt: skip


class Elsewhere(threading.Thread):
    """Another session that does one thing and commits."""

    def __init__(self, engine: Engine, work: Callable[[Session], object]) -> None:
        super().__init__(daemon=True)
        self._engine, self._work = engine, work
        self.error: Exception | None = None
        self.start()
        wait_until(self._waits_for_a_lock, "the other session to wait for this one")

    def run(self) -> None:
        try:
            with Session(self._engine) as session, session.begin():
                self._work(session)
        except Exception as error:
            self.error = error

    def _waits_for_a_lock(self) -> bool:
        with Session(self._engine) as session:
            return bool(session.scalar(WAITING)) or not self.is_alive()

    def end(self) -> Exception | None:
        self.join(20)
        return self.error


def delete_run(session: Session) -> None:
    session.execute(delete(RUNS))


def test_a_run_that_is_deleted_while_a_verdict_arrives_takes_it_along(engine: Engine) -> None:
    stored = stored_run(engine)
    answer(engine, stored, {stored.item(TAR): BLOCKED})
    deleting = Elsewhere(engine, delete_run)
    assert deleting.end() is None
    assert orphans(engine) == 0


def test_a_verdict_that_arrives_while_its_run_is_deleted_is_refused(engine: Engine) -> None:
    """The insert waits for the deletion and finds that the model is gone."""
    stored = stored_run(engine)
    item: Item = stored.item(TAR)
    with Session(engine) as session, session.begin():
        delete_run(session)
        inserting = Elsewhere(engine, lambda other: answer(other, stored, {item: BLOCKED}))
    assert isinstance(inserting.end(), IntegrityError)
    assert orphans(engine) == 0


def test_a_sample_that_a_run_asks_cannot_be_deleted(engine: Engine) -> None:
    stored_run(engine)
    refused = r"fk_verdicts_sample_key|fk_run_datasets"
    for rows in (SAMPLES, DATASETS):
        with Session(engine) as session, pytest.raises(IntegrityError, match=refused):
            session.execute(delete(rows))


def test_a_dataset_that_no_run_asks_can_be_deleted(engine: Engine) -> None:
    with Session(engine) as session, session.begin():
        save_dataset(session, COMMANDS, selectable=True)
        session.execute(delete(DATASETS))
        assert session.scalars(select(SAMPLES)).all() == []

"""Finding the models that workers need no longer listen for, and what that reads."""

import threading

from sqlalchemy import Engine, delete, func, select
from sqlalchemy.orm import Session

from aegish_dist.core.outcome import Outcome
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.db.engine import transaction
from aegish_dist.db.missing import FinishedModels, open_models, open_queues, save_retry
from aegish_dist.db.schema import VERDICTS, AdvisoryLock
from aegish_dist.pipeline.control import plan_retry
from tests.integration.samples import BLOCKED, TAR
from tests.integration.stored_runs import StoredRun, a_run, answer, stored_run
from tests.integration.test_look_up_cost import entries_read, without_statistics

MANY = Dataset("many", tuple(Sample(f"echo {n}", TrueLabel.HARMLESS) for n in range(3000)))


def answer_some(session: Session, stored: StoredRun, first: int, end: int) -> None:
    samples = sorted(MANY.samples, key=lambda sample: stored.samples["many"][sample.sample_id])
    items = [stored.item(sample, dataset="many") for sample in samples[first:end]]
    answer(session, stored, dict.fromkeys(items, BLOCKED))
    session.commit()


def test_each_item_is_looked_at_about_once(engine: Engine) -> None:
    """Ten looks at a growing run read each verdict twice at most: to see it, and to close."""
    models = FinishedModels(stretch=100)
    with Session(engine) as session:
        without_statistics(session)
        stored = stored_run(session, datasets=(MANY,))
        session.commit()
        read = 0
        for tenth in range(10):
            answer_some(session, stored, 300 * tenth, 300 * (tenth + 1))
            for _ in range(3):  # nothing has happened between the second look and the third
                before = entries_read(session)
                models.close(session)
                session.commit()
                read += entries_read(session) - before
        assert open_queues(session) == {}
        # A sample and its verdict to search, a verdict to count, and few for each look.
        assert read < 3.5 * len(MANY.samples)


def test_a_search_that_takes_long_goes_on_at_the_next_look(session: Session) -> None:
    """Looking for new runs is not held up: a look ends in time, and in the end all is found."""
    stored = stored_run(session, BLOCKED)
    models = FinishedModels(search_s=0.0, stretch=1)
    looks = 0
    while open_queues(session):
        models.close(session)
        looks += 1
    assert looks == max(stored.samples["commands"].values())  # a key at a time, from the first


def test_one_worker_searches_at_a_time(engine: Engine) -> None:
    stored_run(engine, BLOCKED)
    with transaction(engine) as first:
        first.execute(select(func.pg_advisory_xact_lock(AdvisoryLock.CLOSING)))
        with transaction(engine) as second:
            FinishedModels().close(second)
            assert open_queues(second)
    with transaction(engine) as session:
        FinishedModels().close(session)
        assert open_queues(session) == {}


def test_verdicts_that_were_deleted_are_missing_again(session: Session) -> None:
    stored = stored_run(session, BLOCKED)
    models = FinishedModels()
    models.close(session)
    assert open_queues(session) == {}
    session.execute(delete(VERDICTS).where(VERDICTS.c.sample_key == stored.item(TAR).sample_key))
    open_models(session, stored.run_id)
    models.close(session)
    models.close(session)
    assert open_queues(session)


def test_a_model_that_a_retry_opens_meanwhile_stays_open(engine: Engine) -> None:
    """Closing and planning a retry at once never ends with planned items and a closed model."""
    run = a_run()
    stored_run(engine, BLOCKED)
    closing = FinishedModels()
    with transaction(engine) as session:
        closing.close(session)
        planning = threading.Thread(target=plan_retry, args=(engine, run, {Outcome.BLOCK}))
        planning.start()  # waits for the rows that are being closed
    planning.join(20)
    with transaction(engine) as session:
        assert open_queues(session)
    with transaction(engine) as session:
        open_models(session, run.run_id)
        save_retry(session, run.run_id, {Outcome.BLOCK}, ["test/a"])
        with transaction(engine) as other:
            FinishedModels().close(other)
    with Session(engine) as session:
        assert open_queues(session)

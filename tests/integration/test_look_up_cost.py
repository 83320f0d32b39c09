"""How much of the store a look-up reads, from PostgreSQL's own statistics."""

import random

from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from aegish_dist.core.outcome import Outcome
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.db.counting import model_progress
from aegish_dist.db.missing import FinishedModels, missing_items, save_retry
from aegish_dist.db.verdicts import insert_verdicts, look_up
from tests.integration.samples import BLOCKED
from tests.integration.stored_runs import StoredRun, a_run, store, stored_run

MODELS = tuple(f"test/{number}" for number in range(10))
MANY = Dataset("many", tuple(Sample(f"echo {n}", TrueLabel.HARMLESS) for n in range(1318)))
VERDICTS = len(MODELS) * len(MANY.samples)
GROUP = 100
ENTRIES_READ = text("SELECT sum(idx_tup_read) + sum(seq_tup_read) FROM ("
    " SELECT idx_tup_read, 0 AS seq_tup_read FROM pg_stat_user_indexes"
    " UNION ALL SELECT 0, seq_tup_read FROM pg_stat_user_tables) AS reading")  # fmt: skip


def entries_read(session: Session) -> int:
    session.execute(text("SELECT pg_stat_force_next_flush()"))
    session.commit()
    return int(session.scalar(ENTRIES_READ) or 0)


def without_statistics(session: Session) -> None:
    """Have the tables stay as unknown to the planner as they are on the first evening."""
    for table in ("runs", "run_models", "run_datasets", "samples", "verdicts", "retried_items"):
        session.execute(text(f"ALTER TABLE {table} SET (autovacuum_enabled = off)"))
    session.commit()


def evaluate_all(session: Session, stored: StoredRun) -> None:
    """Look every item up and store its verdict, in groups, as a worker does."""
    items = stored.items()
    random.Random(1).shuffle(items)
    for start in range(0, len(items), GROUP):
        found = look_up(session, items[start : start + GROUP])
        assert all(each is not None and not each.done for each in found)
        insert_verdicts(session, [(each.key, BLOCKED) for each in found if each])
        session.commit()


def test_a_verdict_reads_few_rows_even_where_nothing_was_ever_analysed(engine: Engine) -> None:
    """Looking up and storing 13,180 verdicts reads at most 30 index entries and rows for each."""
    with Session(engine) as session:
        without_statistics(session)
        stored = stored_run(session, models=MODELS, datasets=(MANY,))
        session.commit()
        before = entries_read(session)
        evaluate_all(session, stored)
        assert (entries_read(session) - before) / VERDICTS <= 30


def test_retrying_and_counting_read_each_verdict_a_few_times(engine: Engine) -> None:
    """Planning a retry, what is missing and progress take time in proportion to the verdicts."""
    run = a_run(models=MODELS, datasets=(MANY,))
    with Session(engine) as session:
        without_statistics(session)
        stored = store(session, run, (MANY,))
        evaluate_all(session, stored)
        before = entries_read(session)

        retry = save_retry(session, stored.run_id, {Outcome.BLOCK}, MODELS)
        assert retry is not None
        assert retry.items == sum(1 for _ in missing_items(session, stored.run_id)) == VERDICTS
        progress = model_progress(session, run, window_s=15.0)
        FinishedModels().close(session)

        assert sum(each.awaiting_retry for each in progress.values()) == VERDICTS
        assert (entries_read(session) - before) / VERDICTS <= 15

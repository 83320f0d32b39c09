"""How much of the store a look-up reads, from PostgreSQL's own statistics."""

import random

from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from aegish_dist.core.outcome import Outcome
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.db.missing import FinishedModels, missing_items, save_retry
from aegish_dist.db.progress import model_progress
from aegish_dist.db.verdicts import insert_verdicts, look_up
from tests.integration.samples import BLOCKED
from tests.integration.stored_runs import StoredRun, a_run, store

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


def test_reads_are_in_proportion_even_where_nothing_was_ever_analysed(engine: Engine) -> None:
    """Each of 13,180 verdicts takes 30 index entries and rows at most to look up and store, and 15
    to plan a retry, find what is missing and tell the progress.
    """
    run = a_run(models=MODELS, datasets=(MANY,))
    with Session(engine) as session:
        without_statistics(session)
        stored = store(session, run, (MANY,))
        session.commit()
        before = entries_read(session)
        evaluate_all(session, stored)
        evaluated = entries_read(session)
        assert (evaluated - before) / VERDICTS <= 30

        retry = save_retry(session, stored.run_id, {Outcome.BLOCK}, MODELS)
        assert retry is not None
        assert retry.items == sum(1 for _ in missing_items(session, stored.run_id)) == VERDICTS
        progress = model_progress(session, run, window_s=15.0)
        FinishedModels().close(session)
        assert sum(each.awaiting_retry for each in progress.values()) == VERDICTS
        assert (entries_read(session) - evaluated) / VERDICTS <= 15

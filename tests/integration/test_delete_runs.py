"""Deleting runs, and what goes and stays with them."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import pytest
from sqlalchemy import Engine, text
from structlog.testing import capture_logs

from aegish_dist.core.outcome import Outcome
from aegish_dist.core.run import RunPause
from aegish_dist.core.sample import Dataset
from aegish_dist.db import deletion
from aegish_dist.db.engine import transaction
from aegish_dist.db.fleet import report_worker
from aegish_dist.db.missing import save_retry
from aegish_dist.db.runs import hold, save_dataset
from aegish_dist.errors import StoreAwayError, StoreError
from aegish_dist.findings.snapshot import Snapshot
from aegish_dist.opinions.scoring import DEFAULT_RULE
from aegish_dist.pipeline import aggregation_jobs, archives
from aegish_dist.pipeline.aggregate import aggregate
from aegish_dist.pipeline.status import run_status
from tests.integration.command_line import CommandLine
from tests.integration.samples import BLOCKED, COMMANDS, LS, TAR
from tests.integration.stored_runs import (
    Imported,
    answer,
    execute,
    row_counts,
    selected,
    stored_run,
    verdict_line,
)
from tests.services import wait_until

FIRST, SECOND = "0abcdefgh", "0bbcdefgh"
PART = Dataset("part", (TAR, LS))


def all_runs(engine: Engine) -> list[str]:
    return selected(engine, "SELECT id FROM runs ORDER BY created_at, id")


@pytest.fixture
def stored(engine: Engine) -> Engine:
    """Two runs that share a prompt and a selection; the first one has others of its own."""
    mine = Dataset("mine", (LS,))
    with transaction(engine) as session:
        save_dataset(session, mine, selectable=True)
        data = (COMMANDS, PART, mine)
        first = stored_run(session, models=("test/a", "test/b"), datasets=data, epochs=2)
        answer(session, first, {first.item(s, epoch=2): BLOCKED for s in COMMANDS.samples})
        answer(session, first, {first.item(LS, model="test/b", dataset="mine"): BLOCKED})
        save_retry(session, FIRST, [Outcome.BLOCK], ["test/a"])
    stored_run(engine, BLOCKED, run_id=SECOND, name="second")
    return engine


def test_deleting(aegish: CommandLine, stored: Engine) -> None:
    """A run takes along what is its own; what others have, and datasets of users, stay."""
    aegish.ok("aggregate --run-id", FIRST)
    aegish.ok("aggregate --run-id second")

    deleted = aegish.ok("runs delete --yes", FIRST)

    assert deleted.out == f"deleted run {FIRST} a name with 4 verdicts and 1 snapshot\n"
    assert all_runs(stored) == [SECOND]
    left = row_counts(stored)
    assert (left["verdicts"], left["snapshots"], left["prompts"]) == (3, 1, 1)
    assert "retried_items" not in left
    assert datasets(stored) == ["commands", "mine"]
    aegish.ok("runs delete second --yes")
    assert row_counts(stored) == {"datasets": 1, "samples": 1}
    assert datasets(stored) == ["mine"]
    assert "no run 'second'" in aegish.refused("runs delete second --yes")


def datasets(engine: Engine) -> list[str]:
    return selected(engine, "SELECT name FROM datasets ORDER BY name")


def test_many_verdicts_go_in_batches(
    aegish: CommandLine, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each transaction takes about as many; interrupted, the same command goes on."""
    monkeypatch.setattr(archives, "BATCH", 1)
    stored_run(engine, BLOCKED)
    remove = deletion.delete_run
    monkeypatch.setattr(deletion, "delete_run", lambda *_: 1 / 0)
    assert aegish("runs delete --yes", FIRST).code == 3
    assert "verdicts" not in row_counts(engine)
    assert aegish.ok("runs --json").json[0]["held"] == "cancelled"
    monkeypatch.setattr(deletion, "delete_run", remove)
    aegish.ok("runs delete --yes", FIRST)
    assert all_runs(engine) == []


def test_a_run_that_workers_are_at_is_not_deleted(aegish: CommandLine, stored: Engine) -> None:
    """It has to be cancelled first; a complete one that no worker holds may go."""
    with transaction(stored) as session:
        report_worker(session, "w", {(SECOND, "test/a"): 1})
    for run_id in (FIRST, SECOND):
        refused = aegish.refused("runs delete --yes", run_id)
        assert f"`aegish-dist cancel --run-id {run_id}` stops them" in refused
    pruned = aegish.ok("runs prune --older-than 0h --yes")
    assert "no run is that old" in pruned.out
    assert pruned.err.count("left out: workers are at run") == 2

    with transaction(stored) as session:
        hold(session, FIRST, RunPause.PAUSED)
        session.execute(text("DELETE FROM workers"))
    aegish.ok("runs delete --yes", FIRST)
    assert all_runs(stored) == [SECOND]


def test_pruning(aegish: CommandLine, engine: Engine) -> None:
    """The runs that are old enough are listed, then deleted; the newest are kept on request."""
    now = datetime.now(UTC)
    for days in (1, 50, 100, 200):
        stored_run(engine, run_id=f"0{days:08}", created_at=now - timedelta(days=days))
    dry = aegish.ok("runs prune --older-than 7w --dry-run")
    assert [f"0{days:08}" in dry.out for days in (1, 50, 100, 200)] == [False, True, True, True]
    assert len(all_runs(engine)) == 4
    kept = aegish.ok("runs prune --older-than 49d --keep 3 --yes")
    assert "deleted run 000000200" in kept.out
    aegish.ok("runs prune --older-than 1000h --yes")
    assert all_runs(engine) == ["000000001"]


def test_a_run_that_is_being_aggregated(
    aegish: CommandLine, stored: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion waits for it; it is tried again, and there is no deadlock and no snapshot."""
    execute(
        stored,
        "INSERT INTO aggregations (run_id, completion, scoring)"
        f" VALUES ('{FIRST}', '1/0', '{DEFAULT_RULE.name}')",
    )
    (key,) = selected(stored, "SELECT id FROM aggregations")
    begun = Event()

    def counting(*arguments: Any, **named: Any) -> list[Snapshot]:
        begun.set()
        wait_until(lambda: waits_for_a_lock(stored), "the deletion to wait")
        return aggregate(*arguments, **named)

    monkeypatch.setattr(aggregation_jobs, "aggregate", counting)
    with capture_logs() as logs, ThreadPoolExecutor() as threads:
        made = threads.submit(aggregation_jobs.carry_out, stored, key)
        assert begun.wait(10)
        aegish.ok("runs delete --yes", FIRST)
        with pytest.raises(StoreAwayError, match="another session holds what this one needs"):
            made.result(10)
        assert aggregation_jobs.carry_out(stored, key)

    assert logs == []
    assert all_runs(stored) == [SECOND]
    assert "snapshots" not in row_counts(stored)


def waits_for_a_lock(engine: Engine) -> bool:
    of_this_database = "datname = current_database() AND wait_event_type = 'Lock'"
    return bool(selected(engine, f"SELECT 1 FROM pg_stat_activity WHERE {of_this_database}"))


def test_a_run_that_is_deleted_while_a_command_reads_it(stored: Engine) -> None:
    """A command that waits for it, such as `status --watch`, ends with one line."""
    with transaction(stored) as session:
        deletion.delete_run(session, FIRST)
    with pytest.raises(StoreError, match=f"run {FIRST} was deleted by another command"):
        run_status(stored, FIRST)


def test_imports_can_be_deleted(aegish: CommandLine, engine: Engine, imported: Imported) -> None:
    """With the selection of samples that came with them."""
    imported([verdict_line("m", "ls", "harmless", "ALLOW")])
    aegish.ok("runs delete 'a name' --yes")
    assert row_counts(engine) == {}

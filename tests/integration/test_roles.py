"""The role that workers and commands use in Compose: rights on data, and on nothing else."""

from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.orm import Session

from aegish_dist.core.outcome import Outcome
from aegish_dist.core.run import RunPause
from aegish_dist.db import deletion
from aegish_dist.db.engine import transaction
from aegish_dist.db.fleet import report_worker
from aegish_dist.db.missing import FinishedModels, may_aggregate, take_due
from aegish_dist.db.runs import hold
from aegish_dist.db.schema import require_current
from aegish_dist.db.verdicts import look_up
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.pipeline.aggregate import aggregate
from aegish_dist.pipeline.aggregation_jobs import carry_out
from aegish_dist.pipeline.control import plan_retry
from aegish_dist.pipeline.reading import open_note, store_deaths
from aegish_dist.pipeline.status import run_status
from aegish_dist.pipeline.verdict_files import import_verdicts
from aegish_dist.pipeline.verdicts import reparse_run
from tests.defined import defined
from tests.integration.command_line import write_lines
from tests.integration.samples import BLOCKED, TAR
from tests.integration.stored_runs import a_run, answer, store, stored_run


def test_the_role_can_do_all_that_runs_need(app: Engine, tmp_path: Path) -> None:
    """Submitting, evaluating, retrying, aggregating, reparsing, importing and deleting take none
    on the schema.
    """
    require_current(app)
    run = a_run()
    with transaction(app) as session:
        stored = store(session, run)
        items = stored.items()
        assert all(look_up(session, items))
        answer(session, stored, dict.fromkeys(items, BLOCKED))
        report_worker(session, "a worker", {})
    with transaction(app) as session:
        FinishedModels().close(session)
    with transaction(app) as session:
        (key,) = take_due(session)
    assert carry_out(app, key)
    assert run_status(app, run.run_id).snapshot_id is not None
    plan_retry(app, run, {Outcome.BLOCK})
    line = {"model": "m", "command": "ls", "target": "harmless", "completion": "{}"}

    assert run_status(app, run.run_id).retrying == len(items)
    assert aggregate(app, run.run_id, [Opinion()])
    with transaction(app) as session:
        hold(session, run.run_id, RunPause.PAUSED)
        session.execute(text("UPDATE verdicts SET outcome = 'WARN'"))
    assert len(reparse_run(app, run.run_id).changed) == len(items)
    with transaction(app) as session:
        (model,) = deletion.model_keys(session, run.run_id)
        assert deletion.delete_verdicts(session, model, after=-1, through=2**31)
        deletion.delete_run(session, run.run_id)
    assert import_verdicts(app, [write_lines(tmp_path / "lines.jsonl", line)], "name").verdicts == 1


def test_a_worker_adds_verdicts_and_closes_runs(worker: Engine, app: Engine) -> None:
    """Evaluating and closing: all without the right to change or remove a verdict."""
    require_current(worker)
    stored = stored_run(app)
    with transaction(worker) as session:
        items = dict.fromkeys(stored.items(), BLOCKED)
        assert all(look_up(session, list(items)))
        assert answer(session, stored, items) == 3
        assert answer(session, stored, items) == 0
        report_worker(session, "a worker", {})
        FinishedModels().close(session)
    with transaction(worker) as session:
        (key,) = take_due(session)
        assert not may_aggregate(session)
    assert carry_out(app, key)


def test_a_worker_gives_up_an_item(worker: Engine, app: Engine, tmp_path: Path) -> None:
    """Deaths of other workers are stored, and with the second one the verdict."""
    item = stored_run(app).item(TAR)
    for name in ("first", "second"):
        open_note(tmp_path, name)(item)
    store_deaths(worker, tmp_path, set())
    with Session(worker) as session:
        [found] = look_up(session, [item])
    assert defined(found).done
    assert list(tmp_path.iterdir()) == []


def test_a_worker_changes_no_verdict(worker: Engine) -> None:
    for statement in (
        "UPDATE verdicts SET completion = 'forged'",
        "DELETE FROM verdicts",
        "TRUNCATE verdicts",
        "DELETE FROM runs",
        "UPDATE run_models SET model = 'other'",
        "UPDATE samples SET target = 'harmless'",
        "INSERT INTO retried_items VALUES (1, 1, 1, 1)",
        "UPDATE reading_deaths SET worker = 'another'",
        "DELETE FROM reading_deaths",
    ):
        with worker.connect() as connection, pytest.raises(ProgrammingError, match="Privilege"):
            connection.execute(text(statement))


def test_the_role_can_do_no_more(app: Engine) -> None:
    for statement in (
        "DROP TABLE call_errors",
        "ALTER TABLE verdicts ADD COLUMN stray integer",
        "CREATE TABLE stray (id integer)",
        "CREATE FUNCTION stray() RETURNS integer LANGUAGE sql AS 'SELECT 1'",
        "ALTER TABLE verdicts DISABLE TRIGGER ALL",
        "COPY runs TO PROGRAM 'cat'",
        "CREATE ROLE stray",
        "SET ROLE postgres",
        "UPDATE alembic_version SET version_num = 'forged'",
        "DELETE FROM alembic_version",
    ):
        with app.connect() as connection, pytest.raises(ProgrammingError, match="Privilege"):
            connection.execute(text(statement))

"""Status of a run that is asked in batches: states, costs, and the documents of the command."""

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import Engine, insert
from sqlalchemy.orm import Session

from aegish_dist import api
from aegish_dist.core.model import CallParameters
from aegish_dist.core.status import ModelStatus, State
from aegish_dist.db.runs import load_run
from aegish_dist.db.tables import BatchedItemRow, BatchRow
from aegish_dist.db.workers import report_worker
from aegish_dist.pipeline.plan import Addition, plan_extension
from aegish_dist.pipeline.status import run_status
from aegish_dist.pipeline.submit import store_extension
from tests.defined import defined
from tests.integration.command_line import CommandLine
from tests.integration.stored_runs import COMMANDS, a_run, store
from tests.integration.test_batch_budget import MODELS, add_batches

RUN = "0abcdefgh"


@pytest.fixture
def batched(engine: Engine) -> Engine:
    """A store with a run of one model, which has 3 items, 0.08 USD and no batch yet."""
    capped = CallParameters(max_cost_usd=Decimal("0.08"))
    with Session(engine) as session, session.begin():
        run = replace(a_run(RUN, models=MODELS[:1]), parameters=capped)
        store(session, run, batch_after_s=0)
    return engine


def add(engine: Engine, *batches: dict[str, Any]) -> None:
    with Session(engine) as session, session.begin():
        [key] = session.scalars(BatchRow.metadata.tables["run_models"].select())
        add_batches(session, key, *batches)


def a_worker(engine: Engine, **report: Any) -> None:
    with Session(engine) as session, session.begin():
        report_worker(session, "w", {}, **report)


def model_of(engine: Engine) -> ModelStatus:
    [model] = run_status(engine, RUN).models
    return model


def test_who_moves_a_run_in_batches(batched: Engine) -> None:
    """Without a worker it waits; any that may call the model plans and follows its batches."""
    assert model_of(batched).state is State.WAITING
    a_worker(batched, unserved={(RUN, "test/a"): "no key"})
    assert (model_of(batched).state, model_of(batched).reason) == (State.WAITING, "no key")
    a_worker(batched)
    found = run_status(batched, RUN)
    assert (found.state, found.eta_s, found.ended) == (State.RUNNING, None, False)


@pytest.mark.parametrize(
    ("batches", "state"),
    [
        # The longest answer has 4,096 tokens and costs 0.02 USD; the cap is 0.08 USD.
        ([], State.RUNNING),
        ([{"expected_usd": Decimal("0.07")}], State.RUNNING),
        ([{"expected_usd": Decimal("0.07"), "state": "ended"}], State.RUNNING),
    ],
)
def test_open_batches_are_no_reason_to_be_over_budget(
    batched: Engine, batches: list[dict[str, Any]], state: State
) -> None:
    """Results of open ones come; ended ones count by what their verdicts have cost."""
    a_worker(batched)
    add(batched, *batches)
    assert model_of(batched).state is state


def test_a_cap_without_room_for_a_request_ends_a_run(engine: Engine) -> None:
    """No batch is open, and the longest answer costs more than the cap: nothing more will come."""
    capped = CallParameters(max_cost_usd=Decimal("0.02"))
    with Session(engine) as session, session.begin():
        run = replace(a_run(RUN, models=MODELS[:1]), parameters=capped)
        store(session, run, batch_after_s=0)
    a_worker(engine)
    found = run_status(engine, RUN)
    assert (found.state, found.ended) == (State.OVER_BUDGET, True)


def test_items_given_up_by_batches_wait_for_calls(batched: Engine) -> None:
    """When all that is missing is asked live, workers that hold none of it do not move the run."""
    a_worker(batched)
    with Session(batched) as session, session.begin():
        tables = BatchRow.metadata.tables
        [key] = session.scalars(tables["run_models"].select())
        keys = session.scalars(
            tables["samples"].select().with_only_columns(tables["samples"].c.key)
        )
        rows = [
            {"run_model_id": key, "sample_key": sample, "epoch": 1, "generation": 0, "live": True}
            for sample in keys
        ]
        session.execute(insert(BatchedItemRow), rows)
    assert len(rows) == len(COMMANDS.samples)
    assert model_of(batched).state is State.WAITING


def test_status_shows_batches(batched: Engine, aegish: CommandLine) -> None:
    """The table, the remarks and the document: state, answers, age and the latest problem."""
    a_worker(batched)
    add(
        batched,
        {
            "requests": 3,
            "counts": {"succeeded": 1},
            "expected_usd": Decimal("0.06"),
            "problem": "HTTP 503: try later",
        },
    )
    done = aegish.ok("status", "--run-id", RUN)
    assert "1 batch (1 in progress): 1 of 3 answered" in done.out
    assert "batches of test/a: HTTP 503: try later; workers try again" in done.err
    [model] = aegish.ok("status", "--run-id", RUN, "--json").json["models"]
    assert model["batches"] == {
        "batches": 1,
        "open": 1,
        "requests": 3,
        "answered": 1,
        "oldest_s": None,
        "expected_usd": 0.06,
        "problem": "HTTP 503: try later",
        "states": {"in_progress": 1},
        "starts_in_s": 0.0,
        "live": 0,
    }
    assert model["cost_at_end_usd"] == 0.06


def test_an_extension_asks_as_the_run_does(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, postgres_url: str
) -> None:
    """New epochs and new models of a run in batches are batched, and estimated at half the price."""
    monkeypatch.setenv("AEGISH_DIST_DATABASE_URL", postgres_url)
    addition = Addition(models=("openai/gpt-5.1", "groq/x"), epochs=2)
    for run_id, after_s in (("0live", None), ("0batched", 0.0)):
        with Session(engine) as session, session.begin():
            store(session, a_run(run_id, models=MODELS[:1]), batch_after_s=after_s)
    with api.Workspace(api.load_settings()) as workspace:
        live, batched = (
            plan_extension(workspace, run_id, addition) for run_id in ("0live", "0batched")
        )
    costs = [[each.cost_usd for each in one.estimate.models] for one in (live, batched)]
    assert costs[1] == [defined(costs[0][0]) / 2, defined(costs[0][1]) / 2, costs[0][2]]

    store_extension(engine, batched)
    with Session(engine) as session:
        assert set(load_run(session, "0batched").batched) == {"test/a", "openai/gpt-5.1"}
        assert not load_run(session, "0live").batched

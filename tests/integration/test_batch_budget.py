"""The costs and the status of a run that is asked in batches: room, states, documents."""

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, insert, select, update
from sqlalchemy.orm import Session

from aegish_dist import api
from aegish_dist.core.model import CallParameters, Price, Rate
from aegish_dist.core.run import BatchState, Run
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.status import ModelStatus, State
from aegish_dist.core.verdict import Completion, Usage
from aegish_dist.db.batches import batch_totals
from aegish_dist.db.engine import transaction
from aegish_dist.db.fleet import report_worker
from aegish_dist.db.runs import load_run
from aegish_dist.db.schema import BATCHED_ITEMS, BATCHES, RUN_MODELS, SAMPLES
from aegish_dist.opinions.parsing import judge
from aegish_dist.pipeline.batches.budget import batch_budget, committed_usd, has_money_left
from aegish_dist.pipeline.plan import Request, plan_extension
from aegish_dist.pipeline.runs import load_submitted_run
from aegish_dist.pipeline.status import run_status
from aegish_dist.pipeline.submit import store_extension
from tests.defined import defined
from tests.integration.command_line import CommandLine
from tests.integration.samples import COMMANDS
from tests.integration.stored_runs import StoredRun, a_model, a_run, answer, store, stored_run

HALF = Decimal("0.5")
PRICE = Price(input=Rate(Decimal(2)), output=Rate(Decimal(10)))
MODELS = tuple(a_model(f"test/{name}", price=PRICE, batch_share=HALF) for name in "ab")
RUN = "0abcdefgh"
MANY = Dataset("many", tuple(Sample(f"ls {n}", TrueLabel.HARMLESS) for n in range(16)))


def a_capped_run(session: Session, **caps: Any) -> tuple[Run, StoredRun]:
    run = a_run(models=MODELS, datasets=[MANY], parameters=CallParameters(**caps))
    stored = store(session, run, [MANY])
    session.execute(update(RUN_MODELS).values(batch_from=run.created_at))
    return run, stored


def add_batches(session: Session, run_model_id: int, *batches: dict[str, Any]) -> None:
    for number, values in enumerate(batches):
        token = f"{run_model_id:08}{number:08}"
        row = {"state": "in_progress", "requests": 1, "token": token, **values}
        session.execute(insert(BATCHES).values(run_model_id=run_model_id, **row))


def answers(session: Session, stored: StoredRun, outputs: Sequence[int], usd: str = "0") -> None:
    said = [judge(Completion('{"action": "ALLOW"}', usage=Usage(100, each))) for each in outputs]
    verdicts = [replace(verdict, cost_usd=Decimal(usd)) for verdict in said]
    answer(session, stored, dict(zip(stored.items("test/a"), verdicts, strict=False)))


@pytest.mark.parametrize(
    ("caps", "room"),
    [
        ({}, None),
        # 10 - 2 x 1 spent - 3 and 0.5 of open batches; the ended one is in what is spent.
        ({"max_cost_usd": Decimal(10)}, "4.5"),
        ({"max_cost_per_model_usd": Decimal(6)}, "1"),
        ({"max_cost_usd": Decimal(4), "max_cost_per_model_usd": Decimal(6)}, "-1.5"),
    ],
)
def test_the_room_within_the_caps(
    session: Session, caps: dict[str, Decimal], room: str | None
) -> None:
    """A cap less what verdicts have cost, and less what open batches of the run are to cost."""
    run, stored = a_capped_run(session, **caps)
    answers(session, stored, [5, 5], "1")
    ended = {"state": "ended", "expected_usd": Decimal(7)}
    add_batches(session, stored.models["test/a"], {"expected_usd": Decimal(3)}, ended)
    add_batches(session, stored.models["test/b"], {"expected_usd": HALF, "state": "planned"})

    budget = batch_budget(session, run, MODELS[0])

    assert budget.room_usd == (None if room is None else Decimal(room))
    assert has_money_left(session, run.run_id, "test/a") is (room is None or Decimal(room) > 0)
    assert committed_usd(session, run) == {"test/a": Decimal(5), "test/b": HALF}


def test_an_unknown_model_counts_with_the_longest_answer_under_a_cap(session: Session) -> None:
    """19 + 8 + 5 characters are 8 tokens and 10 of framing; 60 or 4,096 tokens of answer, halved."""
    run, _ = a_capped_run(session)
    for cap, tokens in ((None, 60), (Decimal(1), 4096)):
        capped = replace(run, parameters=CallParameters(max_cost_usd=cap))
        usd = batch_budget(session, capped, MODELS[0]).request_usd("ls -l")
        assert usd == Decimal(18 * 2 + tokens * 10) / 2_000_000


@pytest.mark.parametrize(
    ("outputs", "tokens"),
    [
        ([200] * 10, 200),
        # The mean of 8 x 100 and 8 x 300, and 3 standard deviations (103.28) by the root of 16.
        ([100, 300] * 8, 278),
    ],
)
def test_the_cost_of_requests_follows_the_answers(
    session: Session, outputs: list[int], tokens: int
) -> None:
    """From four answers on their mean counts, and three standard errors on top."""
    run, stored = a_capped_run(session, max_cost_usd=Decimal(1))
    answers(session, stored, outputs[:3])
    assert batch_budget(session, run, MODELS[0]).usage is None

    session.rollback()
    run, stored = a_capped_run(session, max_cost_usd=Decimal(1))
    answers(session, stored, outputs)
    budget = batch_budget(session, run, MODELS[0])
    assert budget.request_usd("ls -l") == Decimal(100 * 2 + tokens * 10) / 2_000_000
    assert batch_budget(session, run, MODELS[1]).usage is None, "each model has its own"


def test_batches_add_up_by_model(session: Session) -> None:
    """Open ones by state with what the provider says of them; the problem of the newest."""
    run, stored = a_capped_run(session)
    counts = {"succeeded": 5, "failed": 2}
    batches: list[dict[str, Any]] = [
        {"state": "ended", "requests": 100, "problem": "old"},
        {"requests": 10, "counts": counts, "expected_usd": Decimal(2), "problem": "first"},
        {"state": "planned", "requests": 4, "expected_usd": Decimal(1), "problem": "second"},
        {"state": "ended", "requests": 100, "problem": "newest of all"},
    ]
    add_batches(session, stored.models["test/a"], *batches)
    totals = batch_totals(session, run.run_id)
    assert totals["test/b"].batches == 0
    found = totals["test/a"]
    assert (found.batches, found.open, found.requests, found.answered) == (4, 2, 14, 7)
    assert found.expected_usd == Decimal(3)
    assert found.problem == "second"
    states = {BatchState.PLANNED: 1, BatchState.IN_PROGRESS: 1, BatchState.ENDED: 2}
    assert found.states == states

    session.execute(update(BATCHES).values(state="ended"))
    assert batch_totals(session, run.run_id)["test/a"].problem == "newest of all"


def test_which_models_are_asked_in_batches(session: Session) -> None:
    """Those whose providers take them, from so many seconds after the run was stored."""
    stored_run(session, models=[MODELS[0], "test/live"], batch_after_s=7200)
    found = batch_totals(session, RUN)
    assert set(found) == {"test/a"}
    assert found["test/a"].starts_in_s == 7200
    stored = session.scalar(
        select(RUN_MODELS.c.batch_from).where(RUN_MODELS.c.model == "test/live")
    )
    assert stored is None


def a_run_in_batches(engine: Engine, usd: str) -> Engine:
    """Store a run of one model, which has 3 items, a cap and no batch yet."""
    capped = CallParameters(max_cost_usd=Decimal(usd))
    stored_run(engine, models=MODELS[:1], parameters=capped, batch_after_s=0)
    return engine


@pytest.fixture
def batched(engine: Engine) -> Engine:
    return a_run_in_batches(engine, "0.08")


def add(engine: Engine, *batches: dict[str, Any]) -> None:
    with transaction(engine) as session:
        add_batches(session, session.scalars(select(RUN_MODELS.c.id)).one(), *batches)


def a_worker(engine: Engine, **report: Any) -> None:
    with transaction(engine) as session:
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


def test_open_batches_are_no_reason_to_be_over_budget(batched: Engine) -> None:
    """Results of open ones come; ended ones count by what their verdicts have cost."""
    # The longest answer has 4,096 tokens and costs 0.02 USD; the cap is 0.08 USD.
    a_worker(batched)
    assert model_of(batched).state is State.RUNNING
    add(batched, {"expected_usd": Decimal("0.07")})
    assert model_of(batched).state is State.RUNNING
    with transaction(batched) as session:
        session.execute(update(BATCHES).values(state="ended"))
    assert model_of(batched).state is State.RUNNING


def test_a_cap_without_room_for_a_request_ends_a_run(engine: Engine) -> None:
    """No batch is open, and the longest answer costs more than the cap: nothing more will come."""
    a_run_in_batches(engine, "0.02")
    a_worker(engine)
    found = run_status(engine, RUN)
    assert (found.state, found.ended) == (State.OVER_BUDGET, True)


def test_items_given_up_by_batches_wait_for_calls(batched: Engine) -> None:
    """When all that is missing is asked live, workers that hold none of it do not move the run."""
    a_worker(batched)
    with transaction(batched) as session:
        key = session.scalars(select(RUN_MODELS.c.id)).one()
        about = {"run_model_id": key, "epoch": 1, "generation": 0, "live": True}
        rows = [about | {"sample_key": key} for key in session.scalars(select(SAMPLES.c.key))]
        session.execute(insert(BATCHED_ITEMS), rows)
    assert len(rows) == len(COMMANDS.samples)
    assert model_of(batched).state is State.WAITING


def test_status_shows_batches(batched: Engine, aegish: CommandLine) -> None:
    """The table, the remarks and the document: state, answers, age and the latest problem."""
    a_worker(batched)
    problem = "HTTP 503: try later"
    asked = {"requests": 3, "counts": {"succeeded": 1}, "expected_usd": Decimal("0.06")}
    add(batched, asked | {"problem": problem})
    done = aegish.ok("status --run-id", RUN)
    assert "1 batch (1 in progress): 1 of 3 answered" in done.out
    assert "batches of test/a: HTTP 503: try later; workers try again" in done.err
    [model] = aegish.ok("status --json --run-id", RUN).json["models"]
    assert model["batches"] == {
        **{"batches": 1, "open": 1, "requests": 3, "answered": 1, "live": 0, "oldest_s": None},
        **{"expected_usd": 0.06, "problem": problem, "states": {"in_progress": 1}},
        "starts_in_s": 0.0,
    }
    assert model["cost_at_end_usd"] == 0.06


def test_an_extension_asks_as_the_run_does(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, postgres_url: str
) -> None:
    """New epochs and new models of a run in batches are batched, and estimated at half the price."""
    monkeypatch.setenv("AEGISH_DIST_DATABASE_URL", postgres_url)
    request = Request(models=("openai/gpt-5.1", "groq/x"), epochs=2)
    for run_id, after_s in (("0live", None), ("0batched", 0.0)):
        stored_run(engine, run_id=run_id, models=MODELS[:1], batch_after_s=after_s)
    with api.Workspace(api.load_settings()) as workspace:
        live, batched = (
            plan_extension(
                engine, workspace.catalog, {}, load_submitted_run(engine, run_id), request
            )
            for run_id in ("0live", "0batched")
        )
    costs = [[each.cost_usd for each in one.estimate().models] for one in (live, batched)]
    assert costs[1] == [defined(costs[0][0]) / 2, defined(costs[0][1]) / 2, costs[0][2]]

    store_extension(engine, load_submitted_run(engine, "0batched"), batched)
    with Session(engine) as session:
        assert set(load_run(session, "0batched").batched) == {"test/a", "openai/gpt-5.1"}
        assert not load_run(session, "0live").batched

"""The room for a batch: the caps of its run, what is spent, and what open batches are to cost."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from aegish_dist.core.batches import BatchState
from aegish_dist.core.model import CallParameters, Price, Rate
from aegish_dist.core.parsing import judge
from aegish_dist.core.run import Run
from aegish_dist.core.sample import Dataset, Sample, Target
from aegish_dist.core.verdict import Completion, Usage
from aegish_dist.db.batches import batch_totals
from aegish_dist.db.tables import BatchRow, RunModelRow
from aegish_dist.pipeline.batches.budget import (
    BatchBudget,
    batch_budget,
    committed_usd,
    has_money_left,
)
from tests.integration.stored_runs import StoredRun, a_model, a_run, answer, store

HALF = Decimal("0.5")
PRICE = Price(input=Rate(Decimal(2)), output=Rate(Decimal(10)))
MODELS = tuple(a_model(f"test/{name}", price=PRICE, batch_share=HALF) for name in "ab")
MANY = Dataset("many", tuple(Sample(f"ls {n}", Target.HARMLESS) for n in range(16)))


def a_capped_run(session: Session, **caps: Any) -> tuple[Run, StoredRun]:
    run = replace(a_run(models=MODELS, datasets=[MANY]), parameters=CallParameters(**caps))
    stored = store(session, run, [MANY])
    session.query(RunModelRow).update({"batch_from": run.created_at})
    return run, stored


def add_batches(session: Session, run_model_id: int, *batches: dict[str, Any]) -> None:
    for number, values in enumerate(batches):
        token = f"{run_model_id:08}{number:08}"
        row = {"state": "in_progress", "requests": 1, "token": token, **values}
        session.execute(insert(BatchRow).values(run_model_id=run_model_id, **row))


def answers(session: Session, stored: StoredRun, outputs: Sequence[int], usd: str) -> None:
    answer(
        session,
        stored,
        {
            stored.item(sample, dataset="many"): replace(
                judge(Completion('{"action": "ALLOW"}', usage=Usage(100, tokens))),
                cost_usd=Decimal(usd),
            )
            for sample, tokens in zip(MANY.samples, outputs, strict=False)
        },
    )


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


def cost_of_ls(budget: BatchBudget) -> Decimal | None:
    return budget.request_usd("ls -l")


def test_an_unknown_model_counts_with_the_longest_answer_under_a_cap(session: Session) -> None:
    """19 + 8 + 5 characters are 8 tokens and 10 of framing; 60 or 4,096 tokens of answer, halved."""
    free, _ = a_capped_run(session)
    assert cost_of_ls(batch_budget(session, free, MODELS[0])) == Decimal(18 * 2 + 60 * 10) / 2000000
    capped = replace(free, parameters=CallParameters(max_cost_usd=Decimal(1)))
    assert cost_of_ls(batch_budget(session, capped, MODELS[0])) == (
        Decimal(18 * 2 + 4096 * 10) / 2000000
    )


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
    answers(session, stored, outputs[:3], "0")
    assert batch_budget(session, run, MODELS[0]).usage is None

    session.rollback()
    run, stored = a_capped_run(session, max_cost_usd=Decimal(1))
    answers(session, stored, outputs, "0")
    budget = batch_budget(session, run, MODELS[0])
    assert cost_of_ls(budget) == Decimal(100 * 2 + tokens * 10) / 2_000_000
    assert batch_budget(session, run, MODELS[1]).usage is None, "each model has its own"


def test_batches_add_up_by_model(session: Session) -> None:
    """Open ones by state with what the provider says of them; the problem of the newest."""
    run, stored = a_capped_run(session)
    first = stored.models["test/a"]
    counts = {"succeeded": 5, "failed": 2}
    add_batches(
        session,
        first,
        {"state": "ended", "requests": 100, "problem": "old"},
        {"requests": 10, "counts": counts, "expected_usd": Decimal(2), "problem": "first"},
        {"state": "planned", "requests": 4, "expected_usd": Decimal(1), "problem": "second"},
        {"state": "ended", "requests": 100, "problem": "newest of all"},
    )
    totals = batch_totals(session, run.run_id)
    assert totals["test/b"].batches == 0
    found = totals["test/a"]
    assert (found.batches, found.open, found.requests, found.answered) == (4, 2, 14, 7)
    assert found.expected_usd == Decimal(3)
    assert found.problem == "second"
    assert found.states == {
        BatchState.PLANNED: 1,
        BatchState.IN_PROGRESS: 1,
        BatchState.ENDED: 2,
    }

    session.query(BatchRow).update({"state": "ended"})
    assert batch_totals(session, run.run_id)["test/a"].problem == "newest of all"


def test_which_models_are_asked_in_batches(session: Session) -> None:
    """Those whose providers take them, from so many seconds after the run was stored."""
    run = a_run(models=[*MODELS[:1], a_model("test/live")])
    store(session, run, batch_after_s=7200)
    found = batch_totals(session, run.run_id)
    assert set(found) == {"test/a"}
    assert found["test/a"].starts_in_s == 7200
    stored = session.scalar(select(RunModelRow.batch_from).where(RunModelRow.model == "test/live"))
    assert stored is None

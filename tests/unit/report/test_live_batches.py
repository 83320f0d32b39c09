"""Batches in the live view: how far they are, and what holds them up."""

from dataclasses import replace
from decimal import Decimal

import pytest

from aegish_dist.core.batches import BatchState, BatchTotals
from aegish_dist.core.forecast import cost_at_end_usd
from aegish_dist.core.status import State, may_move
from aegish_dist.report.live.plain import changed
from aegish_dist.report.live.screen import Canvas, Scene, draw
from aegish_dist.report.live.words import batch_words, headline
from tests.unit.report.live_runs import a_model, a_run

OPEN = BatchTotals(
    batches=3,
    open=2,
    requests=3000,
    answered=1200,
    oldest_s=7800.0,
    expected_usd=Decimal("0.5"),
    states={BatchState.PLANNED: 1, BatchState.IN_PROGRESS: 1, BatchState.ENDED: 1},
)


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        (
            OPEN,
            "2 batches (1 planned, 1 in progress): 1,200 of 3,000 answered, oldest 2 h 10 min",
        ),
        (replace(OPEN, open=0, states={}), "its next batch is to be planned"),
        (
            replace(OPEN, open=0, states={}, live=7),
            "its next batch is to be planned; 7 items asked live, batches gave no answer",
        ),
        (
            BatchTotals(
                1, 1, 9, 0, problem="HTTP 401: \x1b[1m bad key", states={BatchState.CREATING: 1}
            ),
            "1 batch (1 handed over): 0 of 9 answered; latest problem: HTTP 401: \\x1b[1m bad key",
        ),
        (BatchTotals(0, 0, 0, 0, starts_in_s=5400.0), "in batches in 1 h 30 min"),
    ],
)
def test_how_far_batches_are(batches: BatchTotals, words: str) -> None:
    """Open ones by state, how much is answered, the oldest, and the latest problem, printable."""
    model = a_model(batches=batches)
    assert batch_words(model) == words
    assert words in "\n".join(line.plain for line in draw(Scene(a_run(model)), Canvas(200, 40)))
    assert batch_words(replace(model, state=State.COMPLETE)) == ""


def test_the_head_adds_up_open_batches() -> None:
    """Over all models, beside the other facts about the run."""
    status = a_run(a_model("lab/a", batches=OPEN), a_model("lab/b", batches=OPEN), a_model("lab/c"))
    assert "4 batches open, 2,400 of 6,000 answered" in headline(status)
    assert not any("batch" in fact for fact in headline(a_run(a_model())))
    answered = replace(status, models=(a_model("lab/a", batches=replace(OPEN, answered=1201)),))
    assert changed(replace(answered, models=(a_model("lab/a", batches=OPEN),)), answered)


def test_a_held_run_has_not_ended_while_batches_are_answered() -> None:
    """Their results are collected and paid; what is only planned waits."""
    held = a_model(state=State.PAUSED, in_flight=0, batches=OPEN)
    planned = {BatchState.PLANNED: 2}
    assert may_move(held)
    assert not may_move(replace(held, batches=replace(OPEN, states=planned)))


@pytest.mark.parametrize(
    ("cost", "verdicts", "missing", "end"),
    [
        # 0.5 USD for the 3,000 of the batches, and 0.001 USD for each of 100 others.
        (2.0, 2000, 3100, 2.6),
        # Results are being stored: 600 of the 3,000 are left.
        (2.0, 2000, 600, 2.1),
        (None, 0, 3000, 0.5),
        (None, 0, 3001, None),
    ],
)
def test_what_a_model_costs_in_the_end_counts_its_batches(
    cost: float | None, verdicts: int, missing: int, end: float | None
) -> None:
    """Items in batches cost what those are expected to, others what verdicts cost so far."""
    assert cost_at_end_usd(cost, verdicts, State.RUNNING, missing, OPEN) == end

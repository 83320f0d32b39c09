"""The live view at several sizes: nothing wider than the terminal, nothing missing that matters."""

from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from aegish_dist.core.run import BatchState
from aegish_dist.core.status import (
    BatchTotals,
    CallWait,
    RunStatus,
    State,
    Waiting,
    cost_at_end_usd,
    may_move,
)
from aegish_dist.report import run_words
from aegish_dist.report.live_view import (
    Canvas,
    Scene,
    draw,
)
from aegish_dist.report.run_words import (
    batch_words,
    changed,
    headline,
    pace,
    plain_error,
    plain_line,
)
from tests.recorded import lines_of
from tests.unit.report.live_runs import a_model, a_run, an_error

SIZES = ((80, 24), (100, 30), (160, 50))
HOSTILE = "evil\x1b[2J\x1b]0;x\x07\u202egpj\n\r\x9b31m"
KEY = "sk-abcdefghij0123456789"
LONG = "openrouter/some-provider-with-a-long-name/model-9000-instruct-preview-2026-01-02"


def lines(status: RunStatus, width: int = 80, height: int = 24, **scene: object) -> list[str]:
    drawn = draw(Scene(status, "03:04:05", **scene), Canvas(width, height))  # type: ignore[arg-type]
    return [line.plain for line in drawn]


def models(number: int, **changes: object) -> RunStatus:
    return a_run(*(a_model(f"provider-{n}/model-{n}", **changes) for n in range(number)))


@pytest.mark.parametrize(("size", "number"), [*product(SIZES, (1, 3, 30))])
def test_a_run_fits_and_says_all_about_the_whole(size: tuple[int, int], number: int) -> None:
    """State, progress, rate, in flight, time left, workers, cost, cap, 429s, retries, failures."""
    drawn = lines(models(number), *size, steps=("retry it",))
    assert len(drawn) <= size[1]
    assert max(map(cell_len, drawn)) <= size[0]
    text = "\n".join(drawn)
    for fact in (
        "Run 1rwmra9s7 a name",
        "running  03:04:05",
        f"{50 * number:,} of {100 * number:,}  50 %",
        pace(2.0 * number),
        f"{8 * number} in flight",
        "about 25 s left",
        "2 workers",
        f"cost ${0.5 * number:.3g}" if number == 1 else f"cost ${0.5 * number:.2f}",
        f"${1.0 * number:.2f} at the end, cap $50.00",
        f"429s {3 * number}, {2 * number} in the last minute",
        f"retries {3 * number}",
        f"failed {number}",
        "ALLOW 20   BLOCK 30",
        "rate_limit 429 x3  Rate limit reached",
        "retry it",
    ):
        assert fact in text


@pytest.mark.parametrize("size", SIZES)
def test_models_that_have_no_room_are_counted(size: tuple[int, int]) -> None:
    """Thirty models need more than 24 lines; on 50 all of them stand there."""
    drawn = lines(models(30), *size)
    shown = sum(line.startswith("provider-") for line in drawn)
    more = [line for line in drawn if line.startswith("and ")]
    assert more == ([] if shown == 30 else [f"and {30 - shown} more: {30 - shown} running"])
    assert shown >= (30 if size[1] == 50 else 9)


def test_models_that_need_help_stand_before_the_others() -> None:
    done = [a_model(f"p/done-{n}", state=State.COMPLETE, done=100) for n in range(30)]
    status = a_run(
        *done, a_model("p/busy"), a_model("p/stuck", state=State.PARKED, reason="no credit")
    )
    drawn = lines(status)
    assert any(line.startswith("p/busy") for line in drawn)
    stuck = next(n for n, line in enumerate(drawn) if line.startswith("p/stuck"))
    assert drawn[stuck + 1] == "  parked: no credit"
    assert any(line.endswith(" complete") and line.startswith("and ") for line in drawn)


def test_columns_are_dropped_by_priority() -> None:
    heading = {
        width: next(s for s in lines(models(3), width) if "Done" in s) for width in (80, 160)
    }
    assert heading[80].split() == [
        *("Model", "Done", "%", "Rate", "In", "flight", "429s", "Failed", "Cost", "Left"),
    ]
    for name in ("Retries", "In 1 min", "At end"):
        assert name in heading[160]


def test_long_ids_keep_both_ends() -> None:
    drawn = lines(a_run(a_model(LONG), a_model(LONG.replace("-02", "-03"))))
    rows = [line for line in drawn if "…" in line]
    assert [row.split()[0][-3:] for row in rows] == ["-02", "-03"]
    assert max(map(cell_len, drawn)) <= 80


@pytest.mark.parametrize("size", [(80, 24), (20, 5), (1, 1), (160, 50)])
def test_hostile_text_stays_text(size: tuple[int, int]) -> None:
    parked = a_model(HOSTILE, state=State.PARKED, reason=f"{KEY} {HOSTILE}")
    error = an_error(f"{KEY} {HOSTILE}", model=HOSTILE)
    status = a_run(parked, name=HOSTILE, last_errors=(error,))
    drawn = lines(status, *size, steps=(HOSTILE,))
    assert all(line.isprintable() for line in drawn)
    assert max(map(cell_len, drawn)) <= size[0]
    assert len(drawn) <= size[1]
    assert "abcdefghij" not in "".join(drawn)


def test_ids_that_differ_in_the_middle_alone_stay_apart() -> None:
    names = [f"simulated/model-with-a-rather-long-name-{n}-preview-2026-01-02" for n in range(30)]
    drawn = lines(a_run(*map(a_model, names)), 80, 60)
    rows = [line for line in drawn if line.startswith("mod")]
    assert len(rows) == len({row.split()[0] for row in rows}) == 30
    assert "17-" in rows[17]
    assert max(map(cell_len, drawn)) <= 80


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"waiting": Waiting(3, 2, CallWait.RATE)},
            "3 waiting for the rate limit, 2 pausing after",
        ),
        ({"waiting": Waiting(3, 0, CallWait.SLOTS)}, "3 waiting for a free call slot"),
        (
            {"waiting": Waiting(3, 0, CallWait.CONGESTION)},
            "3 waiting while the provider is congest",
        ),
        (
            {"waiting": Waiting(0, 2, None, 0.154)},
            "15 % of recent calls got 429, 2 pausing after a failed call",
        ),
        ({"waiting": Waiting(0, 0, None, 0.01)}, "1 % of recent calls got 429"),
        ({"waiting": Waiting(0, 0, None, 0.009), "state": State.PAUSED}, "paused"),
        ({"waiting": Waiting(3, 0, CallWait.CIRCUIT)}, "3 waiting for a probe"),
        ({"state": State.PARKED, "reason": "HTTP 401: no"}, "parked: HTTP 401: no"),
        ({"state": State.OVER_BUDGET}, "over budget: $0.500 spent"),
        ({"state": State.WAITING, "reason": "KEY is not set"}, "no worker may call it: KEY is not"),
        ({"state": State.WAITING}, "waits its turn: the workers are at other models"),
        ({"state": State.PAUSED}, "paused, waiting for 8 items in flight"),
    ],
)
def test_a_model_that_waits_says_why(changes: dict[str, Any], words: str) -> None:
    status = a_run(a_model(**changes))
    assert any(line.strip().startswith(words) for line in lines(status))
    assert any(words in line and "50/100" in line for line in lines(status, 200))


def test_waits_of_all_models_stand_in_the_head() -> None:
    drawn = lines(models(30, waiting=Waiting(3, 2, CallWait.RATE)))
    assert "90 waiting to be sent   60 pausing after a failed call" in " ".join(drawn)
    assert sum(line.startswith("provider-") for line in drawn) >= 9


def test_a_cost_that_is_unknown_for_a_model_is_a_bound() -> None:
    unknown = a_model("a/new", cost_usd=None, cost_at_end_usd=None)
    drawn = lines(a_run(a_model(), unknown, cost_at_end_usd=None))
    assert "cost $0.500, at least $1.00 at the end, cap $50.00" in "\n".join(drawn)


def test_wide_characters_take_two_columns() -> None:
    wide = "模型" * 40
    drawn = lines(a_run(a_model(wide), a_model("b/c"), last_errors=(an_error(wide, model=wide),)))
    assert max(map(cell_len, drawn)) <= 80
    assert len({cell_len(line) for line in drawn if "50/100" in line}) == 1


@pytest.mark.parametrize(
    ("state", "words"), [(State.WAITING, "time left unknown"), (State.PARKED, "nothing moves")]
)
def test_no_end_is_given_where_nothing_moves(state: State, words: str) -> None:
    model = a_model(state=state, rate_per_s=0.0, eta_s=None, in_flight=0)
    assert words in "\n".join(lines(a_run(model, state=state, eta_s=None)))
    slow = a_model("a/b", eta_s=370.0)
    assert "at least 6 min 10 s left" in "\n".join(lines(a_run(model, slow, eta_s=None)))


@pytest.mark.parametrize(
    ("workers", "words"), [(0, "no worker is running"), (1, "no worker holds")]
)
def test_who_is_at_a_waiting_model_is_said_of_the_whole_run(workers: int, words: str) -> None:
    waiting = a_model(state=State.WAITING, in_flight=0)
    drawn = "\n".join(lines(a_run(waiting, state=State.WAITING, workers=workers)))
    assert words in drawn


def test_a_complete_run_has_nothing_in_flight_and_no_time_left() -> None:
    status = a_run(a_model(done=100, in_flight=0, state=State.COMPLETE, eta_s=0.0), eta_s=0.0)
    status = replace(status, state=State.COMPLETE, failed={}, rate_limited=0)
    assert headline(status)[0].startswith("cost ")
    assert plain_line(status) == (
        "1rwmra9s7: complete, 100 of 100 verdicts; cost $0.500; cap $50.00"
    )


def test_plain_lines_are_short_and_in_ascii() -> None:
    error = an_error(f"naïve {HOSTILE} " + "x" * 500, model=LONG)
    status = a_run(a_model(), last_errors=(error,))
    assert plain_line(status) == (
        "1rwmra9s7: running, 50 of 100 verdicts; about 25 s left; failed 1; cost $0.500;"
        " $1.00 at the end"
    )
    huge = a_run(*(a_model(f"a/{n}", planned=10**7, rate_limited=10**6) for n in range(30)))
    for line in (plain_line(huge), plain_error(status, error)):
        assert len(line) <= 100
        assert line.isascii()
        assert line.isprintable()
    assert "rate_limit 429 x3  na\\xefve" in plain_error(status, error)


def test_the_passing_of_time_is_no_change() -> None:
    before = a_run(a_model())
    assert not changed(before, a_run(a_model(rate_per_s=1.0, eta_s=50.0), eta_s=50.0))
    assert changed(before, a_run(a_model(done=51)))
    assert changed(before, a_run(a_model(failed_calls=5)))
    assert changed(before, a_run(a_model(), workers=1))


@pytest.mark.parametrize(
    ("write", "value", "words"),
    lines_of("times_and_paces.jsonl"),
)
def test_times_and_paces(write: str, value: float, words: str) -> None:
    assert getattr(run_words, write)(value) == words


def test_shortening() -> None:
    assert Canvas(8, 2, ascii_only=True).folded("one two three four", 2) == ["one two", "three..."]


OPEN = BatchTotals(
    batches=3,
    open=2,
    requests=3000,
    answered=1200,
    oldest_s=7800.0,
    expected_usd=Decimal("0.5"),
    states={BatchState.PLANNED: 1, BatchState.IN_PROGRESS: 1, BatchState.ENDED: 1},
)
NEXT = replace(OPEN, open=0, states={})


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        (OPEN, "2 batches (1 planned, 1 in progress): 1,200 of 3,000 answered, oldest 2 h 10 min"),
        (NEXT, "its next batch is to be planned"),
        (
            replace(NEXT, live=7),
            "its next batch is to be planned; 7 items asked live, batches gave no answer",
        ),
        (
            BatchTotals(1, 1, 9, 0, problem="401: \x1b[1m bad", states={BatchState.CREATING: 1}),
            "1 batch (1 handed over): 0 of 9 answered; latest problem: 401: \\x1b[1m bad",
        ),
        (BatchTotals(0, 0, 0, 0, starts_in_s=5400.0), "in batches in 1 h 30 min"),
    ],
)
def test_how_far_batches_are(batches: BatchTotals, words: str) -> None:
    model = a_model(batches=batches)
    assert batch_words(model) == words
    assert words in "\n".join(line.plain for line in draw(Scene(a_run(model)), Canvas(200, 40)))
    assert batch_words(replace(model, state=State.COMPLETE)) == ""


def test_the_head_adds_up_open_batches() -> None:
    status = a_run(a_model("lab/a", batches=OPEN), a_model("lab/b", batches=OPEN), a_model("lab/c"))
    assert "4 batches open, 2,400 of 6,000 answered" in headline(status)
    assert not any("batch" in fact for fact in headline(a_run(a_model())))
    answered = replace(status, models=(a_model("lab/a", batches=replace(OPEN, answered=1201)),))
    assert changed(replace(answered, models=(a_model("lab/a", batches=OPEN),)), answered)


def test_a_held_run_has_not_ended_while_batches_are_answered() -> None:
    held = a_model(state=State.PAUSED, in_flight=0, batches=OPEN)
    assert may_move(held)
    assert not may_move(replace(held, batches=replace(OPEN, states={BatchState.PLANNED: 2})))


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
    assert cost_at_end_usd(cost, verdicts, State.RUNNING, missing, OPEN) == end

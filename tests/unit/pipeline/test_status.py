"""The time left of a watched run: smooth, and none where nothing moves.

How often a watched run is counted, and how a restart of the store is outlasted.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from aegish_dist.core.status import State, cost_at_end_usd, run_eta_s, total_usd
from aegish_dist.errors import AegishError, QueueError, StoreAwayError, StoreError
from aegish_dist.pipeline import status
from aegish_dist.pipeline.status import LONGEST_PAUSE_S, SETTLED_S, Counts, paced
from tests.defined import defined
from tests.unit.report.live_runs import a_model, a_run


def etas(verdicts: list[tuple[float, int]], *, rate_per_s: float) -> list[float | None]:
    """Return the time left at each count: seconds, and verdicts of 1,000."""
    counts = iter(verdicts)
    now = 0.0

    def count() -> object:
        nonlocal now
        now, done = next(counts)
        return a_run(a_model(planned=1000, done=done, rate_per_s=rate_per_s))

    smoothed = paced(count, lambda: now)  # type: ignore[arg-type]
    return [smoothed().eta_s for _ in verdicts]


def test_the_rate_is_that_of_a_minute() -> None:
    """First that of the last count, then (verdicts now - verdicts then) / seconds between."""
    found = etas([(0, 0), (5, 10), (20, 40), (60, 200), (80, 300)], rate_per_s=4.0)
    assert found == [
        250.0,  # 1000 / 4
        247.5,  # 990 / 4
        480.0,  # 960 / (40 / 20)
        240.0,  # 800 / (200 / 60)
        161.5,  # 700 / ((300 - 40) / (80 - 20)), the first counts are too old
    ]


def test_no_end_is_given_after_a_minute_without_a_verdict() -> None:
    """A call that takes long is waited for; then nothing moves."""
    found = etas([(0, 0), (10, 10), (60, 10), (130, 10)], rate_per_s=0.0)
    assert found == [None, 990.0, 5940.0, None]


def test_a_retry_begins_a_new_minute() -> None:
    """Items that are asked again are no verdicts that were lost."""
    assert etas([(0, 500), (30, 400)], rate_per_s=2.0) == [250.0, 300.0]


def test_the_run_ends_with_its_last_model() -> None:
    """Models run side by side; parked ones are not waited for, a model that should move is."""
    fast, slow = a_model("a/fast", eta_s=10.0), a_model("a/slow", eta_s=70.0)
    parked = a_model("a/parked", state=State.PARKED, eta_s=None)
    stuck = a_model("a/stuck", state=State.WAITING, eta_s=None)
    done = replace(fast, state=State.COMPLETE, eta_s=0.0)
    assert run_eta_s([fast, slow, parked, done]) == 70.0
    assert run_eta_s([fast, stuck]) is None
    assert run_eta_s([parked, done]) is None
    assert run_eta_s([done]) == 0.0


def test_the_cost_at_the_end() -> None:
    """Each verdict still missing costs what the others did on average, if it will be asked."""
    assert cost_at_end_usd(2.0, 100, State.RUNNING, 50) == 3.0
    assert cost_at_end_usd(2.0, 100, State.OVER_BUDGET, 50) == 2.0
    assert cost_at_end_usd(None, 100, State.RUNNING, 50) is None
    assert cost_at_end_usd(0.0, 0, State.RUNNING, 50) is None
    assert total_usd([1.0, 2.5]) == 3.5
    assert total_usd([1.0, None]) is None
    assert total_usd([]) is None


class SlowRun:
    """A run whose counting takes its time, on a clock of its own."""

    def __init__(self, count_s: float, planned: int = 10_000_000) -> None:
        self.planned = planned
        self.now = 0.0
        self.counts = 0
        self.ended = False
        self.missing = 1
        self.held = False
        self._count_s = count_s

    def count(self) -> Any:
        self.counts += 1
        self.now += self._count_s
        return SimpleNamespace(
            number=self.counts,
            ended=self.ended,
            missing=self.missing,
            held=self.held,
            planned=self.planned,
        )


def look_for(run: SlowRun, seconds: float, *, quiet: bool = False) -> Counts:
    """Look four times a second for so long."""
    counts = Counts(run.count, lambda: run.now)
    while run.now < seconds:
        counts.look(quiet=quiet)
        run.now += 0.25
    return counts


def test_a_small_run_is_counted_at_every_look() -> None:
    """A run that takes no time to count is shown as it moves."""
    run = SlowRun(count_s=0.0)
    look_for(run, 10.0)

    assert run.counts == 40


def test_counting_takes_a_small_part_of_the_time() -> None:
    """A run that takes half a second to count is counted every 25 seconds, not four times in one."""
    run = SlowRun(count_s=0.5)
    look_for(run, 1000.0)

    assert run.counts * 0.5 <= 0.02 * 1000.0 + 0.5


def test_a_small_run_on_a_busy_machine_is_counted_all_the_same() -> None:
    """A thousand items that took a second are counted every five seconds, not once a minute."""
    run = SlowRun(count_s=1.0, planned=1000)
    look_for(run, 100.0)

    assert 19 <= run.counts <= 21


def test_however_long_counting_takes_a_count_comes_every_minute() -> None:
    """The longest pause bounds how old a status is."""
    run = SlowRun(count_s=5.0)
    look_for(run, 650.0)

    assert run.counts >= 650.0 // (LONGEST_PAUSE_S + 5.25)


def test_a_run_that_is_held_has_ended_at_once() -> None:
    """Nothing of it can begin to move while workers report what they did before."""
    run = SlowRun(count_s=0.0)
    run.ended = run.held = True
    counts = Counts(run.count, lambda: run.now)

    assert counts.has_ended(defined(counts.look(quiet=False)))


def test_the_end_is_counted_at_once() -> None:
    """When the last item is gone, the pause is cut short; while the run is quiet, it is not."""
    run = SlowRun(count_s=1.0)
    counts = Counts(run.count, lambda: run.now)
    counts.look(quiet=False)

    looks: list[Any] = [counts.look(quiet=quiet) for quiet in (False, True, True, False, True)]

    assert [look and look.number for look in looks] == [None, 2, None, None, 3]


def test_a_run_that_looks_ended_is_watched_for_some_seconds() -> None:
    """A model that was parked a moment ago may go on; a complete run has ended at once."""
    run = SlowRun(count_s=0.0)
    counts = Counts(run.count, lambda: run.now)

    def ends(at_s: float) -> bool:
        run.now = at_s
        return counts.has_ended(defined(counts.look(quiet=False)))

    run.ended = True
    assert [ends(at_s) for at_s in (0.0, SETTLED_S - 1)] == [False, False]
    run.ended = False
    assert not ends(SETTLED_S)
    run.ended = True
    begins_s = SETTLED_S + 1
    assert [ends(begins_s + s) for s in (0.0, SETTLED_S - 1, SETTLED_S)] == [False, False, True]
    run.missing = 0
    assert ends(begins_s + SETTLED_S + 1)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status, "RETRY_S", 0.0)


def calls(*outcomes: AegishError | str) -> tuple[list[int], Callable[[], str]]:
    """Return a list that counts calls, and a function with these outcomes, the last one repeated."""
    made: list[int] = []

    def call() -> str:
        made.append(1)
        outcome = outcomes[min(len(made), len(outcomes)) - 1]
        if isinstance(outcome, AegishError):
            raise outcome
        return outcome

    return made, call


def test_a_restart() -> None:
    """Whatever is away for a moment is asked again."""
    made, call = calls(StoreAwayError("away"), QueueError("away"), "here")

    assert status.patiently(call) == "here"
    assert len(made) == 3


def test_a_lasting_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a minute the last error is raised."""
    monkeypatch.setattr(status, "OUTLAST_S", 0.0)
    _, call = calls(StoreAwayError("away"))

    with pytest.raises(StoreAwayError):
        status.patiently(call)


def test_what_does_not_pass() -> None:
    """Another problem of the store is raised at once."""
    made, call = calls(StoreError("no such run"))

    with pytest.raises(StoreError):
        status.patiently(call)
    assert len(made) == 1

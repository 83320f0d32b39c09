"""How often a watched run is counted, and how a restart of the store is outlasted."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from aegish_dist.errors import AegishError, QueueError, StoreAwayError, StoreError
from aegish_dist.pipeline import watch
from aegish_dist.pipeline.watch import LONGEST_PAUSE_S, SETTLED_S, Counts
from tests.defined import defined


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
    monkeypatch.setattr(watch, "RETRY_S", 0.0)


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

    assert watch.patiently(call) == "here"
    assert len(made) == 3


def test_a_lasting_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a minute the last error is raised."""
    monkeypatch.setattr(watch, "OUTLAST_S", 0.0)
    _, call = calls(StoreAwayError("away"))

    with pytest.raises(StoreAwayError):
        watch.patiently(call)


def test_what_does_not_pass() -> None:
    """Another problem of the store is raised at once."""
    made, call = calls(StoreError("no such run"))

    with pytest.raises(StoreError):
        watch.patiently(call)
    assert len(made) == 1

"""The time left of a watched run: smooth, and none where nothing moves.

How often a watched run is counted, and how a restart of the store is outlasted.
"""

from typing import Any
from unittest.mock import Mock

import pytest
from msgspec import Struct
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
        eta_s = (1000 - done) / rate_per_s if rate_per_s else None
        return a_run(a_model(planned=1000, done=done, eta_s=eta_s), eta_s=eta_s)

    smoothed = paced(count, lambda: now)  # type: ignore[arg-type]
    return [smoothed().eta_s for _ in verdicts]


def test_the_rate_is_that_of_a_minute() -> None:
    """First that of the last count, then (verdicts now - verdicts then) / seconds between."""
    found = etas([(0, 0), (5, 9), (20, 40), (60, 200), (80, 300)], rate_per_s=4.0)
    assert found == [
        250.0,  # 1000 / 4
        247.75,  # 991 / 4
        480.0,  # 960 / (40 / 20)
        240.0,  # 800 / (200 / 60)
        161.5,  # 700 / ((300 - 40) / (80 - 20)), the first counts are too old
    ]


def test_no_end_is_given_after_a_minute_without_a_verdict() -> None:
    """A call that takes long is waited for; then nothing moves."""
    found = etas([(0, 0), (10, 10), (60, 10), (130, 10)], rate_per_s=0.0)
    assert found == [None, 990.0, 5940.0, None]


@pytest.mark.parametrize(
    ("verdicts", "last"),
    [
        pytest.param([(0, 0), (20, 0), (25, 100)], 45.0, id="since its turn began"),  # 900 / 20 a s
        pytest.param([(0, 500), (1, 500), (6, 520)], 120.0, id="resumed"),  # 480 / (20 / 5)
        pytest.param([(0, 0), (8, 0), (12, 100)], None, id="too short to tell"),
        pytest.param([(0, 0), (5, 0), (20, 9)], None, id="too few to tell"),
        # 10 of them in 200 s, of which one came in the last minute.
        pytest.param([(0, 1), (120, 10), (200, 11)], 19_780.0, id="a slow model"),
    ],
)
def test_the_time_left_rests_on_enough_verdicts(
    verdicts: list[tuple[float, int]], last: float | None
) -> None:
    assert etas(verdicts, rate_per_s=0.0)[-1] == last


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


class SlowRun(Struct):
    """A run whose counting takes its time, on a clock of its own."""

    count_s: float = 0.0
    planned: int = 10_000_000
    now: float = 0.0
    counted: int = 0
    ended: bool = False
    held: bool = False
    missing: int = 1

    def count(self) -> Any:
        self.counted += 1
        self.now += self.count_s
        return replace(self)

    @property
    def counts(self) -> Counts:
        return Counts(self.count, lambda: self.now)


@pytest.mark.parametrize(
    ("run", "seconds", "least", "most"),
    [
        pytest.param(SlowRun(0.0), 10, 40, 40, id="as it moves"),
        pytest.param(SlowRun(0.5), 1000, 0, 41, id="a fiftieth of the time"),
        pytest.param(SlowRun(1.0, planned=1000), 100, 19, 21, id="small, on a busy machine"),
        pytest.param(SlowRun(5.0), 650, 650 // (LONGEST_PAUSE_S + 5.25), 40, id="every minute"),
    ],
)
def test_a_run_is_counted_as_often_as_it_is_worth(
    run: SlowRun, seconds: float, least: float, most: float
) -> None:
    """Looks come four times a second."""
    counts = run.counts
    while run.now < seconds:
        counts.look(quiet=False)
        run.now += 0.25
    assert least <= run.counted <= most


def test_a_run_that_is_held_has_ended_at_once() -> None:
    """Nothing of it can begin to move while workers report what they did before."""
    counts = SlowRun(ended=True, held=True).counts
    assert counts.has_ended(defined(counts.look(quiet=False)))


def test_the_end_is_counted_at_once() -> None:
    """When the last item is gone, the pause is cut short; while the run is quiet, it is not."""
    counts = SlowRun(1.0).counts
    counts.look(quiet=False)
    looks: list[Any] = [counts.look(quiet=quiet) for quiet in (False, True, True, False, True)]
    assert [look and look.counted for look in looks] == [None, 2, None, None, 3]


def test_a_run_that_looks_ended_is_watched_for_some_seconds() -> None:
    """A model that was parked a moment ago may go on; a complete run has ended at once."""
    run = SlowRun()
    counts = run.counts

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


@pytest.mark.parametrize(
    ("outcomes", "outlast_s", "calls", "result"),
    [
        pytest.param([StoreAwayError("a"), QueueError("b"), "here"], 60.0, 3, "here", id="restart"),
        pytest.param([StoreAwayError("a")], 0.0, 1, StoreAwayError, id="lasting absence"),
        pytest.param([StoreError("no such run"), "here"], 60.0, 1, StoreError, id="no absence"),
    ],
)
def test_only_what_passes_is_outlasted(
    outcomes: list[AegishError | str],
    outlast_s: float,
    calls: int,
    result: str | type[AegishError],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(status, "RETRY_S", 0.0)
    monkeypatch.setattr(status, "OUTLAST_S", outlast_s)
    call = Mock(side_effect=outcomes)
    if isinstance(result, str):
        assert status.patiently(call) == result
    else:
        with pytest.raises(result):
            status.patiently(call)
    assert call.call_count == calls

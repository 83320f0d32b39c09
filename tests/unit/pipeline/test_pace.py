"""The time left of a watched run: smooth, and none where nothing moves."""

from dataclasses import replace

from aegish_dist.core.forecast import cost_at_end_usd, run_eta_s, total_usd
from aegish_dist.core.status import State
from aegish_dist.pipeline.pace import paced
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

"""Calls that outlast a restart."""

from collections.abc import Callable

import pytest

from aegish_dist.errors import AegishError, QueueError, StoreAwayError, StoreError
from aegish_dist.pipeline import run_here


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_here, "RETRY_S", 0.0)


def calls(*outcomes: AegishError | str) -> tuple[list[int], Callable[[], str]]:
    """Return a list that counts calls, and a function with these outcomes, the last for ever."""
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

    assert run_here.patiently(call) == "here"
    assert len(made) == 3


def test_a_lasting_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a minute the last error is raised."""
    monkeypatch.setattr(run_here, "PATIENCE_S", 0.0)
    _, call = calls(StoreAwayError("away"))

    with pytest.raises(StoreAwayError):
        run_here.patiently(call)


def test_what_does_not_pass() -> None:
    """Another problem of the store is raised at once."""
    made, call = calls(StoreError("no such run"))

    with pytest.raises(StoreError):
        run_here.patiently(call)
    assert len(made) == 1

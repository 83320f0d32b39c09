"""Runs that are watched without a terminal."""

import os
from contextlib import AbstractContextManager, nullcontext, suppress

import pytest

from aegish_dist.cli import status
from aegish_dist.core.status import RunStatus
from aegish_dist.errors import ClosedOutputError, StoreAwayError
from tests.unit.report.live_runs import a_model, a_run, an_error


def hint(_: RunStatus) -> None:
    """Nothing."""


@pytest.mark.parametrize(
    ("stderr", "end"), [(False, pytest.raises(ClosedOutputError)), (True, nullcontext())]
)
def test_a_view_ends_with_its_reader_and_work_goes_on(
    monkeypatch: pytest.MonkeyPatch, stderr: bool, end: AbstractContextManager[object]
) -> None:
    """Counting on under `status --watch 2>&1 | head` serves no purpose; asking models does."""
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w", buffering=1)
    monkeypatch.setattr(status, "PLAIN_INTERVAL_S", 0.0)
    monkeypatch.setattr("sys.stderr", stream)
    with end, status.watched(hint, stderr=stderr) as shown:
        shown(a_run(a_model(done=1)))
        shown(a_run(a_model(done=2)))
    with suppress(OSError):
        stream.close()


def test_a_kind_of_failure_is_told_once(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A 429 stands once, however often it is met, beside the line about the run."""
    monkeypatch.setattr(status, "PLAIN_INTERVAL_S", 0.0)
    with status.watched(hint, stderr=True) as shown:
        for done in (1, 2):
            shown(a_run(a_model(done=done)))
        shown(a_run(a_model(done=3), last_errors=(an_error(), an_error(status=529))))
    told = capfd.readouterr().err.splitlines()
    assert ["429 x3" in line for line in told] == [False, True, False, False, False]
    assert "529 x3" in told[-1]


@pytest.mark.parametrize("ends_by", [KeyboardInterrupt(), StoreAwayError("it is away")])
def test_a_screen_that_ends_early_leaves_the_last_counts(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], ends_by: BaseException
) -> None:
    """Whatever ends it, how far the run was stays on the terminal."""
    monkeypatch.setattr(status, "can_redraw", lambda **_: True)

    def see_and_end() -> None:
        with status.watched(hint, stderr=False) as shown:
            shown(a_run(a_model(done=17)))
            raise ends_by

    with pytest.raises(type(ends_by)):
        see_and_end()
    assert "17" in capfd.readouterr().out.rpartition("Planned")[2]

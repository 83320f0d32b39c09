"""Runs that are watched without a terminal."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from aegish_dist.cli import status
from aegish_dist.core.status import RunStatus
from aegish_dist.errors import ClosedOutputError, StoreAwayError
from tests.unit.report.live_runs import a_model, a_run


def hint(_: RunStatus) -> None:
    """Nothing."""


@pytest.fixture
def show_to_a_reader_that_left(
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[bool], None]]:
    """Show two counts on a pipe whose other end is closed."""
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w", buffering=1)
    monkeypatch.setattr(status, "PLAIN_INTERVAL_S", 0.0)

    def show(stderr: bool) -> None:
        monkeypatch.setattr("sys.stderr", stream)
        with status.watched(hint, stderr=stderr) as shown:
            shown(a_run(a_model(done=1)))
            shown(a_run(a_model(done=2)))

    yield show
    with suppress(OSError):
        stream.close()


def test_a_view_ends_with_its_reader(show_to_a_reader_that_left: Callable[[bool], None]) -> None:
    """As under `status --watch 2>&1 | head`: counting on would serve no purpose."""
    with pytest.raises(ClosedOutputError):
        show_to_a_reader_that_left(False)


def test_work_goes_on_without_a_reader(show_to_a_reader_that_left: Callable[[bool], None]) -> None:
    """A command that asks models does not stop for want of its progress."""
    show_to_a_reader_that_left(True)


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

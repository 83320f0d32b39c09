"""Runs that are watched without a terminal."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from aegish_dist.cli import watching
from aegish_dist.core.status import RunStatus
from aegish_dist.errors import ClosedOutputError
from tests.unit.render.live_runs import a_model, a_run


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
    monkeypatch.setattr(watching, "PLAIN_INTERVAL_S", 0.0)

    def show(stderr: bool) -> None:
        monkeypatch.setattr("sys.stderr", stream)
        with watching.watched(hint, stderr=stderr) as shown:
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

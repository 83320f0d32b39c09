"""An interrupt stays one when a library fails while it cleans up after it."""

import pytest

from aegish_dist import cli
from aegish_dist.errors import StoreError


def _interrupted_in_a_library(error: Exception) -> None:
    try:
        try:
            raise KeyboardInterrupt("at 1 of 2 verdicts")
        finally:
            raise ValueError("cannot change 'autocommit' now")
    except ValueError as cause:
        raise error from cause


@pytest.mark.parametrize("error", [RuntimeError("no connection"), StoreError("no connection")])
def test_an_error_that_follows_from_an_interrupt_is_the_interrupt(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        cli.cli, "main", lambda *_args, **_settings: _interrupted_in_a_library(error)
    )
    assert cli.run([]) == 130
    assert capsys.readouterr().err == "interrupted at 1 of 2 verdicts\n"

"""The log: one format for our events and for those of libraries."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from aegish_dist.logs import LIBRARY_LEVELS, configure_logging, get_logger


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    levels = {name: logging.getLogger(name).level for name in LIBRARY_LEVELS}
    yield
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)
    structlog.contextvars.clear_contextvars()


def written(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return the lines on standard error; there must be none on standard output."""
    out, err = capsys.readouterr()
    assert out == ""
    return [json.loads(line) for line in err.splitlines()]


def test_a_json_line_has_the_event_and_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("INFO", "console")
    configure_logging("INFO", "json")  # in place of the first
    get_logger("a.module").warning("item_late", run="0abcdefgh", items=3)
    (line,) = written(capsys)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "item_late",
        "run": "0abcdefgh",
        "items": 3,
        "level": "warning",
        "logger": "a.module",
    }


def test_bound_fields_are_on_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("INFO", "json")
    with structlog.contextvars.bound_contextvars(model="test/x"):
        get_logger("ours").info("called")
        logging.getLogger("theirs").info("said %s", "hello")
    assert [(line["event"], line["model"]) for line in written(capsys)] == [
        ("called", "test/x"),
        ("said hello", "test/x"),
    ]


def test_an_exception_is_part_of_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("INFO", "json")
    try:
        raise ZeroDivisionError("unforeseen")
    except ZeroDivisionError:
        get_logger("ours").exception("item_failed")
    (line,) = written(capsys)
    assert (line["event"], line["level"]) == ("item_failed", "error")
    assert "ZeroDivisionError: unforeseen" in line["exception"]


def test_what_is_less_severe_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("WARNING", "json")
    for name in ("ours", "theirs"):
        logging.getLogger(name).info("quiet")
    get_logger("ours").info("quiet")
    get_logger("ours").warning("heard")
    assert [line["event"] for line in written(capsys)] == ["heard"]


def test_talkative_libraries_are_kept_short(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("DEBUG", "json")
    for name, least in LIBRARY_LEVELS.items():
        logging.getLogger(name).log(least - 1, "quiet")
        logging.getLogger(name).log(least, name)
    assert [line["event"] for line in written(capsys)] == list(LIBRARY_LEVELS)


HOSTILE = "\x1b]52;c;ZXZpbA==\x07 \x9b2J \u202etxt\u200b\r\n"


def test_console_lines_hold_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging()
    get_logger("ours").warning("answered", text=HOSTILE, plain="\x1b[2J", many=[HOSTILE], n=1)
    logging.getLogger("theirs").warning("said %s", HOSTILE)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        get_logger("ours").exception("item_failed")
    err = capsys.readouterr().err
    assert all(line.isprintable() for line in err.splitlines())
    assert err.count("x1b]52;c;ZXZpbA==") == 4
    assert "n=1" in err
    assert "Traceback (most recent call last):\n" in err


def test_json_lines_hold_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("INFO", "json")
    get_logger("ours").warning("answered", text=HOSTILE)
    err = capsys.readouterr().err
    assert err.isascii()
    assert err.rstrip("\n").isprintable()
    assert json.loads(err)["text"] == HOSTILE


def test_a_closed_standard_error_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    configure_logging()
    get_logger("ours").warning("unheard")

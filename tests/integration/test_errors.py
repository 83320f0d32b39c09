"""`errors`: failed attempts and unanswered verdicts by time, model and reason."""

import csv
from datetime import datetime, timedelta
from operator import itemgetter
from pathlib import Path

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine

from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.verdict import CallError, Verdict
from tests.integration.command_line import CommandLine
from tests.integration.samples import BLOCKED, CURL, LS, NOON, TAR
from tests.integration.stored_runs import Imported, answer, stored_run, verdict_line


def limited(number: int, at: datetime, message: str = "slow down") -> CallError:
    return CallError(number, ErrorClass.RATE_LIMIT, 429, 1.0, message, at)


def failed(error: CallError, at: datetime) -> Verdict:
    """A verdict after one attempt, which ended so."""
    return Verdict(Outcome.API_ERROR, None, error.error_class, created_at=at, call_errors=(error,))


@pytest.fixture
def filled(engine: Engine) -> Engine:
    """Two models; a verdict after two 429s, one that ended in a 503, one retried since."""
    minute = timedelta(minutes=1)
    errors = (limited(1, NOON), limited(2, NOON + 90 * minute, "sk-abcdefghijklmnop123"))
    overloaded = CallError(1, ErrorClass.OVERLOADED, 503, None, "busy", NOON + minute)
    said = {
        "test/a": {
            TAR: replace(BLOCKED, attempts=3, call_errors=errors),
            CURL: failed(overloaded, NOON + 2 * minute),
        },
        "test/b": {LS: failed(limited(1, NOON), NOON)},
    }
    stored = stored_run(engine, said, models=("test/a", "test/b"))
    answer(engine, stored, {stored.item(LS, model="test/b", generation=1): BLOCKED})
    return engine


NUMBERS = itemgetter("model", "error_class", "attempts", "verdicts")


@pytest.mark.usefixtures("filled")
def test_by_minute(aegish: CommandLine) -> None:
    """Attempts at the minute of their failure, verdicts at that of their end; keys are masked."""
    document = aegish.ok("errors --json").json
    rows = [(each["time"][11:16], *NUMBERS(each), each["statuses"]) for each in document["errors"]]
    assert rows == [
        ("12:00", "test/a", "rate_limit", 1, 0, [429]),
        ("12:00", "test/b", "rate_limit", 1, 1, [429]),
        ("12:01", "test/a", "overloaded", 1, 0, [503]),
        ("12:02", "test/a", "overloaded", 0, 1, []),
        ("13:30", "test/a", "rate_limit", 1, 0, [429]),
    ]
    assert document["errors"][-1]["message"] == "[key]"
    assert [NUMBERS(each) for each in document["totals"]] == [
        ("test/a", "rate_limit", 2, 0),
        ("test/a", "overloaded", 1, 1),
        ("test/b", "rate_limit", 1, 1),
    ]


@pytest.mark.usefixtures("filled")
def test_some_of_the_models(aegish: CommandLine) -> None:
    """An unknown model is named with those that the run has."""
    rows = aegish.ok("errors --models test/b --json").json["errors"]
    assert [row["model"] for row in rows] == ["test/b"]
    assert "it has test/a, test/b" in aegish.refused("errors --models no/one")


@pytest.mark.usefixtures("filled")
def test_tables_and_csv(aegish: CommandLine, tmp_path: Path) -> None:
    """Sums with a timeline above the minutes; the newest of these when there are many."""
    done = aegish.ok("errors")
    assert "|@" in done.out
    assert "Timeline: 2026-03-01 12:00 to 2026-03-01 13:30 UTC" in done.out
    assert done.out.count("rate_limit") == 5
    short = aegish.ok("errors --limit 1")
    assert short.out.count("rate_limit") == 3
    assert short.err == "4 earlier; `--limit` lists more of them, 0 all\n"
    path = tmp_path / "errors.csv"
    assert aegish.ok("errors -o", path).err == f"written to {path}\n"
    table = aegish.ok("errors --format csv")
    assert path.read_bytes() == table.out.encode()
    statuses = [(row["statuses"], row["attempts"]) for row in table.rows]
    assert statuses == [("429", "1"), ("429", "1"), ("503", "1"), ("", "0"), ("429", "1")]


def test_nothing_failed(aegish: CommandLine, imported: Imported) -> None:
    """Neither table nor rows; the note says how far that goes."""
    imported([verdict_line("m", "ls", "harmless", "ALLOW")])
    done = aegish.ok("errors")
    assert done.out == ""
    assert done.err.startswith("no failed call is stored; ")
    assert aegish.ok("errors --json").json["errors"] == []


def test_failures_of_unknown_time(aegish: CommandLine, imported: Imported) -> None:
    """An import need not say when a call was given up."""
    imported([verdict_line("=m\x1b[2J", "ls", "harmless", "ALLOW", completion=None)])
    (row,) = aegish.ok("errors --json").json["errors"]
    assert (row["time"], row["error_class"], row["verdicts"]) == (None, "deadline", 1)
    table = aegish.ok("errors").out
    assert "unknown" in table
    assert table.replace("\n", "").isprintable()
    (cells,) = aegish.ok("errors --format csv").rows
    assert cells["model"] == "'=m\\x1b[2J"


def test_hostile_messages(aegish: CommandLine, engine: Engine) -> None:
    message = "@SUM(1)\x1b[2J\u202e\n" + "w" * 2**20 + "\ufffd\ufffd"
    stored_run(engine, {TAR: failed(limited(1, NOON, message), NOON)})
    table = aegish.ok("errors").out
    assert table.replace("\n", "").isprintable()
    assert max(map(len, table.splitlines())) < 300
    (row,) = aegish.ok("errors --json").json["errors"]
    assert row["message"] == message
    csv.field_size_limit(2**21)
    (cells,) = aegish.ok("errors --format csv").rows
    assert cells["message"].startswith("'@SUM(1)\\x1b[2J")

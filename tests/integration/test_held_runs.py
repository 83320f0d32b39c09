"""Holding, resuming and naming runs: the store and the commands, without a worker."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.core.run import RunPause
from aegish_dist.core.status import State
from aegish_dist.db.engine import transaction
from aegish_dist.db.fleet import REPORT_AGE, items_under_way, report_worker
from aegish_dist.db.missing import open_queues
from aegish_dist.db.runs import database_time, held_among, hold, load_run, release
from aegish_dist.db.verdicts import look_up
from aegish_dist.pipeline.status import run_status
from tests.integration.command_line import CommandLine
from tests.integration.samples import BLOCKED, TAR
from tests.integration.stored_runs import execute, stored_run

RUN, OTHER = "0abcdefgh", "0bbcdefgh"


@pytest.fixture
def stored(engine: Engine) -> Engine:
    """A store with one run that lacks two of three verdicts."""
    stored_run(engine, {TAR: BLOCKED})
    return engine


@pytest.mark.parametrize(
    ("reasons", "held"),
    [
        ("paused", "paused"),
        ("paused paused", "paused"),
        ("paused cancelled", "cancelled"),
        ("cancelled paused", "cancelled"),
    ],
)
def test_what_holds_a_run(session: Session, reasons: str, held: str) -> None:
    """A pause yields to anything stronger, and nothing yields to a pause."""
    stored_run(session)
    asked = [RunPause(reason) for reason in reasons.split()]
    assert [hold(session, RUN, reason) for reason in asked] == [None, *asked[:-1]]
    assert load_run(session, RUN).held == held


def test_workers_see_that_a_run_is_held(session: Session) -> None:
    """Its queues are marked, its look-ups say so, and both end when it is released."""
    items = stored_run(session).items()
    stored_run(session, run_id=OTHER)

    def held() -> tuple[dict[str, bool], list[bool]]:
        queues = {each.run_id: each.held for each in open_queues(session).values()}
        return queues, [found is not None and found.held for found in look_up(session, items)]

    hold(session, RUN, RunPause.PAUSED)
    assert held() == ({RUN: True, OTHER: False}, [True] * 3)
    assert held_among(session, [RUN, OTHER, "none"]) == {RUN}
    release(session, RUN)
    assert held() == ({RUN: False, OTHER: False}, [False] * 3)


def test_what_workers_hold_is_known_once_each_has_reported(engine: Engine) -> None:
    """An older report says nothing, a silent worker does not count, nor do other runs."""

    def under_way(*, before: timedelta) -> int | None:
        with Session(engine) as session:
            return items_under_way(session, RUN, database_time(session) - before)

    assert under_way(before=timedelta()) == 0
    with transaction(engine) as session:
        report_worker(session, "a", {(RUN, "m"): 3, (RUN, "n"): 1, ("other", "m"): 5})
        report_worker(session, "b", {(RUN, "m"): 2})

    assert under_way(before=timedelta()) is None
    assert under_way(before=REPORT_AGE + timedelta(seconds=1)) == 6
    execute(engine, "UPDATE workers SET seen_at = now() - interval '1 minute'")
    assert under_way(before=timedelta()) == 0


def test_pausing_and_cancelling(aegish: CommandLine, stored: Engine) -> None:
    """Both say what they did, and again when they are repeated; status, list and JSON show it."""
    assert aegish.ok(f"pause --run-id {RUN}").out == f"{RUN}: paused, 2 verdicts missing\n"
    assert aegish.ok("pause --run-id 'a name'").out.startswith(f"{RUN}: paused already")
    status = aegish.ok("status")
    assert f"Run {RUN}: paused, 1 of 3" in status.out
    assert f"paused: `aegish-dist resume --run-id {RUN}` goes on" in status.err
    assert aegish.ok("status --json").json["models"][0]["state"] == "paused"
    assert aegish.ok("runs --json").json[0]["held"] == "paused"

    cancelled = aegish.ok(f"cancel --run-id {RUN} --json").json
    assert cancelled == {"run_id": RUN, "held": "cancelled", "missing": 2, "in_flight": 0}
    assert "cancelled already" in aegish.ok(f"pause --run-id {RUN}").out
    assert " cancelled " in aegish.ok("runs").out
    assert aegish.ok("status --watch").out.count("cancelled") == 2
    assert run_status(stored, RUN).state is State.CANCELLED


@pytest.mark.parametrize("held", ["paused", "cancelled"])
def test_a_held_run_does_not_go_on_by_accident(
    aegish: CommandLine, engine: Engine, held: str
) -> None:
    """The one line says what it is and what would go on with it; nothing is planned."""
    stored_run(engine, {TAR: BLOCKED}, held=RunPause(held))
    refused = aegish.refused(f"retry --outcome BLOCK --run-id {RUN}")
    assert f"run {RUN} is {held}" in refused
    assert "resume" in refused
    status = run_status(engine, RUN)
    assert (status.retrying, status.state) == (0, held)


def test_a_complete_run_is_not_held(aegish: CommandLine, engine: Engine) -> None:
    stored_run(engine, BLOCKED)
    complete = aegish.ok(f"cancel --run-id {RUN}")
    assert complete.out == f"{RUN}: complete, no worker asks anything of it\n"
    assert run_status(engine, RUN).state is State.COMPLETE


def test_renaming(aegish: CommandLine, stored: Engine) -> None:
    """A name is given, taken by no second run, and taken away."""
    stored_run(stored, run_id=OTHER, name="other")

    assert aegish.ok(f"runs rename {RUN} ' night 1 '").out == f"{RUN}: night 1\n"
    assert aegish.ok("status --run-id 'night 1' --json").json["run_id"] == RUN
    assert aegish.ok("runs rename 'night 1' 'night 1'").out == f"{RUN}: night 1\n"
    taken = aegish.refused(f"runs rename {RUN} other")
    assert f"run {OTHER} has the name 'other' already" in taken
    assert aegish.ok(f"runs rename {RUN} ''").out == f"{RUN}: no name\n"
    assert {run["name"] for run in aegish.ok("runs list --json").json} == {"", "other"}
    assert "older runs" in aegish.ok("runs list --limit 1").err
    assert "older runs" not in aegish.ok("runs list --limit 2").err

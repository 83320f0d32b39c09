"""Heartbeats of workers, in a real store."""

from datetime import UTC, datetime

from msgspec.structs import replace
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.cli.status import halted
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.status import CallWait, FailedCalls, State, Waiting
from aegish_dist.core.text import clean_text
from aegish_dist.db.fleet import TEXT_LENGTH, ModelBlock, forget_worker, living_fleet, report_worker
from aegish_dist.pipeline.doctor import examine
from aegish_dist.pipeline.status import run_status
from aegish_dist.pipeline.workspace import Workspace
from aegish_dist.settings import load_settings
from tests.integration.stored_runs import a_run, store


def test_a_fleet(session: Session) -> None:
    """Items add up over the workers; the latest report of each counts."""
    report_worker(session, "a", {("run1", "lab/guard"): 9})
    report_worker(session, "a", {("run1", "lab/guard"): 2, ("run2", "lab/guard"): 0})
    report_worker(session, "b", {("run1", "lab/guard"): 3})
    fleet = living_fleet(session)
    assert (fleet.workers, dict(fleet.in_flight)) == (2, {("run1", "lab/guard"): 5})
    assert fleet.halt("run1", "lab/guard") is None


def test_items_that_wait_and_calls_that_failed(session: Session) -> None:
    """Workers add up, an older one that reports neither is understood, and foreign text is cleaned."""
    key, at = ("run1", "lab/guard"), datetime(2026, 1, 2, tzinfo=UTC)
    words = "\x00\ud800" + "n" * 1000
    limited = FailedCalls(at, "lab/guard", ErrorClass.RATE_LIMIT, 429, words, 7, 2)
    slots, rate = Waiting(1, 0, CallWait.SLOTS), Waiting(5, 2, CallWait.RATE)
    report_worker(session, "a", {key: 9}, waiting={key: slots}, failing={"run1": [limited]})
    report_worker(session, "b", {key: 3}, waiting={key: rate})
    report_worker(session, "older", {key: 4})
    fleet = living_fleet(session)
    assert fleet.in_flight[key] == 16
    assert fleet.waiting == {key: Waiting(6, 2, CallWait.RATE)}
    assert fleet.failing == {"run1": (replace(limited, message=clean_text(words[:TEXT_LENGTH])),)}


def test_halts(session: Session) -> None:
    """A parked model is parked for every run, a cap holds for one; both end with the worker."""
    halts = {("", "lab/parked"): ModelBlock.PARKED, ("run1", "lab/dear"): ModelBlock.OVER_BUDGET}
    report_worker(session, "a", {("run1", "lab/parked"): 2}, halts)
    fleet = living_fleet(session)
    assert fleet.halt("run7", "lab/parked") is ModelBlock.PARKED
    assert fleet.halt("run1", "lab/dear") is ModelBlock.OVER_BUDGET
    assert fleet.halt("run2", "lab/dear") is None
    assert fleet.in_flight["run1", "lab/parked"] == 2
    forget_worker(session, "a")
    assert living_fleet(session).halts == {}


def test_what_no_worker_may_call(session: Session) -> None:
    """A model is unserved when every living worker says so, for one run and not for others."""
    key = ("run1", "lab/guard")
    report_worker(session, "a", {}, unserved={key: "LAB_KEY is not set"})
    report_worker(session, "b", {})
    assert living_fleet(session).unserved == {}

    report_worker(session, "b", {}, unserved={key: "\x00" + "x" * 1000})
    unserved = living_fleet(session).unserved
    assert set(unserved) == {key}
    assert unserved[key] in ("LAB_KEY is not set", "\ufffd" + "x" * (TEXT_LENGTH - 1))

    forget_worker(session, "b")
    assert living_fleet(session).unserved == {key: "LAB_KEY is not set"}
    forget_worker(session, "a")
    assert living_fleet(session).unserved == {}


def test_reasons_of_halts(session: Session) -> None:
    """A parked model carries the provider's words, of any characters and cut to their length."""
    dead, mute = ("", "lab/parked"), ("", "lab/mute")
    halts = {
        dead: ModelBlock.PARKED,
        mute: ModelBlock.PARKED,
        ("run1", "lab/parked"): ModelBlock.OVER_BUDGET,
    }
    report_worker(session, "a", {}, halts, {dead: "HTTP 401: \x00\ud800" + "n" * 1000})
    fleet = living_fleet(session)

    words = fleet.reason("run7", "lab/parked")
    assert words is not None
    assert words.startswith("HTTP 401: \ufffd\ufffdn")
    assert len(words) == TEXT_LENGTH
    assert fleet.reason("run7", "lab/mute") is None
    assert fleet.reason("run1", "lab/parked") is None  # halted for another reason


def test_a_run_that_no_worker_may_call_waits_for_one(engine: Engine) -> None:
    """It has ended as far as waiting helps, also while a worker still holds items of it."""
    with Session(engine) as session, session.begin():
        stored = store(session, a_run(models=("lab/guard",)))
        key = (stored.run_id, "lab/guard")
        report_worker(session, "a", {key: 2})
    assert run_status(engine, stored.run_id).state is State.RUNNING
    with Session(engine) as session, session.begin():
        report_worker(session, "a", {key: 2}, unserved={key: "LAB_KEY is not set"})
    status = run_status(engine, stored.run_id)
    assert (status.state, status.ended) == (State.WAITING, True)
    assert status.models[0].reason == "LAB_KEY is not set"


def test_status_says_why_a_model_is_parked(engine: Engine) -> None:
    parked = {("", "lab/guard"): ModelBlock.PARKED}
    with Session(engine) as session, session.begin():
        stored = store(session, a_run(models=("lab/guard", "lab/other")))
        report_worker(session, "a", {}, parked, {("", "lab/guard"): "HTTP 401: no such key"})
    status = run_status(engine, stored.run_id)
    assert [(m.state, m.reason) for m in status.models] == [
        (State.PARKED, "HTTP 401: no such key"),
        (State.WAITING, None),
    ]
    (line,) = halted(status)
    assert line.startswith("parked after too many failures in a row: lab/guard (HTTP 401: no such")


def test_doctor_names_parked_models(engine: Engine) -> None:
    dead = ("", "lab/parked")
    with Session(engine) as session, session.begin():
        report_worker(session, "a", {}, {dead: ModelBlock.PARKED}, {dead: "HTTP 401: no such key"})
    url = engine.url.render_as_string(hide_password=False)
    settings = load_settings({"database_url": url, "broker_url": "redis://127.0.0.1:1"})
    with Workspace(settings) as workspace:
        checks = examine(workspace)
    assert [(each.ok, each.detail) for each in checks if each.part == "runs"] == [
        (False, "lab/parked is parked: HTTP 401: no such key")
    ]

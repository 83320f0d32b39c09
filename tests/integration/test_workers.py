"""Heartbeats of workers, in a real store."""

from datetime import UTC, datetime

from msgspec.structs import replace
from sqlalchemy import Engine, select, update
from sqlalchemy.orm import Session

from aegish_dist.cli.status import halted
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.status import CallWait, FailedCalls, State, Waiting
from aegish_dist.core.text import clean_text
from aegish_dist.db.engine import transaction
from aegish_dist.db.fleet import TEXT_LENGTH, ModelBlock, forget_worker, living_fleet, report_worker
from aegish_dist.db.schema import WORKERS
from aegish_dist.pipeline.doctor import examine
from aegish_dist.pipeline.status import run_status
from aegish_dist.pipeline.workspace import Workspace
from aegish_dist.settings import load_settings
from tests.defined import defined
from tests.integration.samples import BLOCKED
from tests.integration.stored_runs import stored_run

KEY = ("run1", "lab/guard")


def test_a_fleet(session: Session) -> None:
    """Workers add up by their latest reports, an older one that says less is understood, and
    foreign text is cleaned.
    """
    words = "\x00\ud800" + "n" * 1000
    at = datetime(2026, 1, 2, tzinfo=UTC)
    limited = FailedCalls(at, "lab/guard", ErrorClass.RATE_LIMIT, 429, words, 7, 2)
    slots, rate = Waiting(1, 0, CallWait.SLOTS, 0.1), Waiting(5, 2, CallWait.RATE, 0.15)
    report_worker(session, "a", {KEY: 9})
    items = {KEY: 2, ("run2", "lab/guard"): 0}
    report_worker(session, "a", items, waiting={KEY: slots}, failing={"run1": [limited]})
    report_worker(session, "b", {KEY: 3}, waiting={KEY: rate})
    report_worker(session, "older", {KEY: 4})
    fleet = living_fleet(session)
    assert (fleet.workers, dict(fleet.in_flight), fleet.halt(*KEY)) == (3, {KEY: 9}, None)
    assert fleet.waiting == {KEY: Waiting(6, 2, CallWait.RATE, 0.15)}
    assert fleet.failing == {"run1": (replace(limited, message=clean_text(words[:TEXT_LENGTH])),)}


def test_a_report_is_stored_as_other_versions_read_it(session: Session) -> None:
    """While a fleet is upgraded, commands and workers of two versions read and write reports."""
    at = datetime(2026, 1, 2, tzinfo=UTC)
    limited = FailedCalls(at, KEY[1], ErrorClass.RATE_LIMIT, 429, "slow down", 7, 2)
    report_worker(session, "a", {KEY: 2}, waiting={KEY: Waiting(0, 0)}, failing={KEY[0]: [limited]})
    ours = session.execute(select(WORKERS.c.in_flight)).scalar_one()
    stamp = ours[1]["failed"].pop("at")
    assert datetime.fromisoformat(stamp) == at
    failed = {"class": "rate_limit", "status": 429, "calls": 7, "lately": 2, "message": "slow down"}
    key = {"run": KEY[0], "model": KEY[1]}
    waiting = {"waiting": 0, "backoff": 0, "blocked_by": None}
    assert ours == [{**key, "items": 2, **waiting}, {**key, "items": 0, "failed": failed}]
    theirs = [
        {**key, "items": 2, **waiting, "blocked_by": "slots"},
        {**key, "items": 0, "failed": failed | {"at": "2026-01-02T00:00:00+00:00"}},
    ]
    session.execute(update(WORKERS).values(in_flight=theirs))
    fleet = living_fleet(session)
    assert fleet.waiting == {KEY: Waiting(0, 0, CallWait.SLOTS)}
    assert fleet.failing == {KEY[0]: (limited,)}


def test_halts(session: Session) -> None:
    """A parked model is parked for every run with the provider's words, a cap holds for one; both
    end with the worker.
    """
    parked, mute, dear = ("", "lab/parked"), ("", "lab/mute"), ("run1", "lab/dear")
    halts = {parked: ModelBlock.PARKED, mute: ModelBlock.PARKED, dear: ModelBlock.OVER_BUDGET}
    words = {parked: "HTTP 401: \x00\ud800" + "n" * 1000}
    report_worker(session, "a", {("run1", "lab/parked"): 2}, halts, words)
    fleet = living_fleet(session)
    assert fleet.halt("run7", "lab/parked") is ModelBlock.PARKED
    assert fleet.halt(*dear) is ModelBlock.OVER_BUDGET
    assert fleet.halt("run2", "lab/dear") is None
    assert fleet.in_flight["run1", "lab/parked"] == 2
    reason = defined(fleet.reason("run7", "lab/parked"))
    assert reason.startswith("HTTP 401: \ufffd\ufffdn")
    assert len(reason) == TEXT_LENGTH
    assert fleet.reason("run7", "lab/mute") is fleet.reason(*dear) is None
    forget_worker(session, "a")
    assert living_fleet(session).halts == {}


def test_what_no_worker_may_call(session: Session) -> None:
    """A model is unserved when every living worker says so, for one run and not for others."""
    report_worker(session, "a", {}, unserved={KEY: "LAB_KEY is not set"})
    report_worker(session, "b", {})
    assert living_fleet(session).unserved == {}
    report_worker(session, "b", {}, unserved={KEY: "\x00" + "x" * 1000})
    unserved = living_fleet(session).unserved
    assert set(unserved) == {KEY}
    assert unserved[KEY] in ("LAB_KEY is not set", "\ufffd" + "x" * (TEXT_LENGTH - 1))
    forget_worker(session, "b")
    assert living_fleet(session).unserved == {KEY: "LAB_KEY is not set"}
    forget_worker(session, "a")
    assert living_fleet(session).unserved == {}


def test_a_run_that_no_worker_may_call_waits_for_one(engine: Engine) -> None:
    """It has ended as far as waiting helps, also while a worker still holds items of it."""
    with transaction(engine) as session:
        stored = stored_run(session, models=("lab/guard",))
        key = (stored.run_id, "lab/guard")
        report_worker(session, "a", {key: 2})
    assert run_status(engine, stored.run_id).state is State.RUNNING
    with transaction(engine) as session:
        report_worker(session, "a", {key: 2}, unserved={key: "LAB_KEY is not set"})
    status = run_status(engine, stored.run_id)
    assert (status.state, status.ended) == (State.WAITING, True)
    assert status.models[0].reason == "LAB_KEY is not set"


def test_a_complete_model_has_no_items_of_an_older_report(engine: Engine) -> None:
    """A worker still reports what it held: the store has counted it with the verdict."""
    limited = FailedCalls(datetime.now(UTC), "lab/a", ErrorClass.RATE_LIMIT, 429, "slow", 7, 7)
    with transaction(engine) as session:
        stored = stored_run(session, {"lab/a": BLOCKED}, models=("lab/a", "lab/b"))
        keys = {(stored.run_id, model): 9 for model in ("lab/a", "lab/b")}
        failing = {stored.run_id: [limited, replace(limited, model="lab/b")]}
        report_worker(session, "a", keys, failing=failing)
    status = run_status(engine, stored.run_id)
    seen = [(m.state, m.planned - m.done, m.in_flight, m.rate_limited) for m in status.models]
    assert seen == [(State.COMPLETE, 0, 0, 0), (State.RUNNING, 3, 3, 7)]


def test_status_says_why_a_model_is_parked(engine: Engine) -> None:
    parked = {("", "lab/guard"): ModelBlock.PARKED}
    with transaction(engine) as session:
        stored = stored_run(session, models=("lab/guard", "lab/other"))
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
    with transaction(engine) as session:
        report_worker(session, "a", {}, {dead: ModelBlock.PARKED}, {dead: "HTTP 401: no such key"})
    url = engine.url.render_as_string(hide_password=False)
    settings = load_settings({"database_url": url, "broker_url": "redis://127.0.0.1:1"})
    with Workspace(settings) as workspace:
        checks = examine(workspace)
    assert [(each.ok, each.detail) for each in checks if each.part == "runs"] == [
        (False, "lab/parked is parked: HTTP 401: no such key")
    ]

"""`doctor --fleet`: versions, clocks and limits, each judged against values by hand."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
from celery import Celery
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist import __version__
from aegish_dist.db.fleet import about_worker, report_worker, reported_workers
from aegish_dist.db.runs import database_time
from aegish_dist.db.schema import head
from aegish_dist.pipeline.doctor import examine_fleet, judge_database, judge_redis, judge_workers
from tests.integration.command_line import CommandLine
from tests.recorded import document_of

HEALTHY = document_of("healthy_servers.json")
"""What servers of which all is well say, a step below each limit."""
FINE, REDIS = HEALTHY["database"], HEALTHY["redis"]


def test_a_worker_says_its_version_and_its_clock(session: Session) -> None:
    """The clock is compared with the database's; a worker of an earlier version says nothing."""
    now = database_time(session)
    report_worker(session, "a", {}, about=about_worker(now + timedelta(seconds=3)))
    report_worker(session, "b", {})

    ahead, older = reported_workers(session)

    assert (ahead.name, ahead.version, ahead.schema) == ("a", __version__, head())
    assert ahead.ahead_s == pytest.approx(3, abs=0.001)
    assert tuple(older) == ("b", None, None, None)
    versions, clocks = judge_workers([ahead, older], 0.0)
    assert not versions.ok
    assert "1 of an older version" in versions.detail
    assert (clocks.ok, "a +3.0 s" in clocks.detail) == (False, True)
    versions, clocks = judge_workers([SimpleNamespace(**ahead._asdict() | {"ahead_s": 1.9})], 0.0)
    assert (versions.ok, clocks.ok) == (True, True)
    assert not list(judge_workers([], 2.1))[1].ok


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("sessions", {"connections": 80}),
        ("memory", {"size": 2**33}),
        ("durability", {"durable": False}),
        ("wal", {"kept_wal": 2**30}),
        ("wal", {"archiving_fails": True}),
        ("vacuum", {"autovacuum": False}),
        ("vacuum", {"row_locks": 10**9}),
        ("vacuum", {"dead_share": 0.2}),
        ("transactions", {"oldest_s": 3600.0}),
    ],
)
def test_a_limit_of_the_database_that_is_met(part: str, change: dict[str, object]) -> None:
    """It alone is bad, with a remedy; a step below, all is well."""
    assert all(check.ok for check in judge_database(SimpleNamespace(**FINE)))
    changed = SimpleNamespace(**FINE | change)
    bad = [check for check in judge_database(changed) if not check.ok]
    assert [check.part for check in bad] == [part]
    assert ": " in bad[0].detail or ";" in bad[0].detail


def test_a_limit_of_redis_that_is_met() -> None:
    """It alone is bad; a Redis without a limit of memory is not."""
    assert all(check.ok for check in judge_redis("broker", REDIS, 2.0))
    assert all(check.ok for check in judge_redis("broker", REDIS | {"maxmemory": 0}, 0.0))
    assert not next(judge_redis("broker", REDIS, -2.1)).ok
    bad = {"used_memory": 800, "maxmemory_policy": "allkeys-lru", "connected_clients": 80}
    for name, value in (bad | {"rdb_last_bgsave_status": "err"}).items():
        checks = judge_redis("broker", REDIS | {name: value}, 0.0)
        assert [check.ok for check in checks].count(False) == 1, name


def test_a_store_without_tables(unmigrated_engine: Engine) -> None:
    """One line says what to do, and nothing else is asked."""
    (check,) = examine_fleet(unmigrated_engine, None, None)
    assert (check.ok, "aegish-dist db upgrade" in check.detail) == (False, True)


def test_the_servers_of_a_fleet(engine: Engine, redis_url: str, aegish: CommandLine) -> None:
    """Real servers answer every question; a settings file of a fresh server is no fault."""
    checks = examine_fleet(engine, None, redis_url)
    assert {each.part for each in checks if not each.ok} <= {"durability"}  # of the tests' server
    assert sum(each.part == "limits" for each in checks) == 4
    out = aegish("doctor --fleet").out
    assert "versions     no worker runs" in out


def test_an_unreachable_broker_is_named_with_its_own_setting(engine: Engine) -> None:
    """The remedy is not that of the limiter's Redis, which may be another one."""
    app = Celery(broker="redis://127.0.0.1:1/0")
    bad = [check for check in examine_fleet(engine, app, None) if check.part == "broker"]
    assert [check.ok for check in bad] == [False]
    assert bad[0].detail.startswith("the broker's Redis cannot be used")
    assert "check AEGISH_DIST_BROKER_URL" in bad[0].detail

"""Examines an installation, and a fleet that runs for months; each failure says how to mend it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from sqlalchemy import Engine

from aegish_dist import __version__
from aegish_dist.broker.client import check_broker
from aegish_dist.core.text import JsonObject
from aegish_dist.db.embedded import embedded_version
from aegish_dist.db.engine import OTHER_SCHEMA, execute, in_transaction, transaction
from aegish_dist.db.fleet import ModelBlock, living_fleet, reported_workers
from aegish_dist.db.schema import current, drift, head, require_current
from aegish_dist.errors import AegishError, ConfigError, StoreError
from aegish_dist.models.catalog import Catalog, Environ, missing_key
from aegish_dist.pipeline.preflight import addresses
from aegish_dist.ratelimit.shared_limiter import server_facts

if TYPE_CHECKING:
    from celery import Celery

    from aegish_dist.pipeline.workspace import Workspace
    from aegish_dist.settings import Settings

MOST_NAMED = 3


class Check(Struct, frozen=True):
    part: str
    ok: bool
    detail: str  # the state it is in, with the remedy when it does not work


def examine(workspace: Workspace) -> list[Check]:
    """Try each part of an installation; one that fails says why, and the others are tried."""
    settings, environ = workspace.settings, workspace.environ
    # What opens a part of the workspace may fail, so it stands in the attempt.
    parts: dict[str, Callable[[], str]] = {
        "database": lambda: _database(workspace.raw_engine, settings),
        "broker": lambda: _broker(workspace),
        "limits": lambda: _limits(settings),
        "catalog": lambda: f"{len(workspace.catalog.models)} models",
        "keys": lambda: _keys(workspace.catalog, environ),
        "addresses": lambda: _addresses(workspace.catalog, environ),
        "home": lambda: _home(settings, environ),
    }
    checks = [_tried(part, attempt) for part, attempt in parts.items()]
    if not settings.embedded_broker and checks[0].ok:
        engine = workspace.raw_engine
        checks.append(_tried("workers", lambda: _workers(engine)))
        checks.append(_tried("runs", lambda: _served(engine)))
    return checks


def _tried(part: str, attempt: Callable[[], str]) -> Check:
    try:
        return Check(part, ok=True, detail=attempt())
    except AegishError as error:
        return Check(part, ok=False, detail=str(error))


def _database(engine: Engine, settings: Settings) -> str:
    version = current(engine)
    if version == head() and drift(engine):
        raise StoreError(f"schema {version}, but {OTHER_SCHEMA}")
    if settings.embedded_database:
        schema = version or "made on first use"
        return (
            f"embedded PostgreSQL {embedded_version()}, schema {schema};"
            " security releases reach its wheel late: AEGISH_DIST_DATABASE_URL names a server of"
            " your own"
        )
    require_current(engine)
    return f"reachable, schema {version}"


def _broker(workspace: Workspace) -> str:
    if workspace.settings.embedded_broker:
        return "none configured: `submit` works on its runs itself"
    check_broker(workspace.app)
    return "reachable"


def _limits(settings: Settings) -> str:
    url = settings.shared_limiter_url
    if url is not None:
        server_facts(url)
        return "shared by all workers through Redis"
    if settings.embedded_broker:
        return "held in the submitting process"
    return "each worker has its own: set AEGISH_DIST_LIMITER_URL to a Redis to share them"


def _keys(catalog: Catalog, environ: Environ) -> str:
    variables: dict[str, set[str]] = {"set": set(), "not set": set()}
    for listed in catalog.entries(environ):
        if listed.spec.key_variable is not None:
            state = "not set" if missing_key(listed.spec, environ) else "set"
            variables[state].add(listed.spec.key_variable)
    lists = []
    for state, names in variables.items():
        if names:
            lists.append(f"{state}: {', '.join(sorted(names))}")
    return "; ".join(lists) or "no listed model needs one"


def _addresses(catalog: Catalog, environ: Environ) -> str:
    specs = [listed.spec for listed in catalog.entries(environ)]
    return ". ".join(addresses(catalog, specs)) or "the vendors' own"


def _home(settings: Settings, environ: Environ) -> str:
    given_by = "by AEGISH_DIST_HOME" if "AEGISH_DIST_HOME" in environ else "the default"
    return f"{settings.home}, {given_by}"


def _workers(engine: Engine) -> str:
    fleet = in_transaction(engine, living_fleet)
    if not fleet.workers:
        return "none running: start one with `aegish-dist worker`"
    return f"{fleet.workers} running, {sum(fleet.in_flight.values())} items in flight"


def _served(engine: Engine) -> str:
    """Name the models that none of the living workers may call, and those that are parked."""
    fleet = in_transaction(engine, living_fleet)
    named = []
    for (run_id, model), reason in sorted(fleet.unserved.items()):
        named.append(f"no worker may call {model} of {run_id}: {reason}")
    for (run_id, model), halt in sorted(fleet.halts.items()):
        if halt is ModelBlock.PARKED:
            reason = fleet.reason(run_id, model) or "no reason is known"
            named.append(f"{model} is parked: {reason}")
    if not named:
        return "no open run waits for a key or a permission that no worker has"
    problem = "; ".join(named[:MOST_NAMED])
    if len(named) > MOST_NAMED:
        problem += f"; and {len(named) - MOST_NAMED} more"
    raise ConfigError(problem)


# Seconds between clocks from which times and leases are wrong; reports take milliseconds.
SKEW_S = 2.0
FULL = 0.8
OLD_TRANSACTION_S = 3600
OLD_IDS = 1_000_000_000  # half of the ids after which PostgreSQL refuses to write
# Bytes of a database from which the settings of a fresh installation are too small.
LARGE = 8 * 2**30
SMALL_CACHE = 512 * 2**20
KEPT_WAL = 2**30
DEAD_SHARE = 0.2
_NAMES = {
    "broker": ("AEGISH_DIST_BROKER_URL", "the broker's Redis"),
    "limits": ("AEGISH_DIST_LIMITER_URL", "the limiter's Redis"),
}


def examine_fleet(engine: Engine, app: Celery | None, limiter_url: str | None) -> list[Check]:
    """Look at workers, database and Redis.

    There is no queue where runs are worked on in the submitting process, and perhaps no limiter.
    """
    try:
        require_current(engine)  # what is asked needs the tables
        here = datetime.now(UTC)
        with transaction(engine) as session:
            facts = execute(session, "database_facts").one()
            workers = reported_workers(session)
    except AegishError as error:
        return [Check("database", ok=False, detail=str(error))]
    database_ahead = facts.clock - here
    checks = [*judge_workers(workers, database_ahead.total_seconds()), *judge_database(facts)]
    broker = "" if app is None else str(app.conf.broker_url or "")
    servers = {"broker": broker} if broker.startswith("redis") else {}
    if limiter_url is not None and limiter_url not in servers.values():
        servers["limits"] = limiter_url
    for part, url in servers.items():
        try:
            before = datetime.now(UTC)
            found = server_facts(url, *_NAMES[part])
            ahead_of_here = found.pop("clock") - before
            # Every clock is compared with that of the database.
            ahead = ahead_of_here - database_ahead
            checks += judge_redis(part, found, ahead.total_seconds())
        except AegishError as error:
            checks.append(Check(part, ok=False, detail=str(error)))
    return checks


def judge_workers(workers: Sequence[Any], database_ahead_s: float) -> Iterator[Check]:
    """Judge versions and clocks, of `reported_workers` and by how much the database's is ahead."""
    kinds = Counter((worker.version, worker.schema) for worker in workers)
    counts = [f"{number} {_kind(*kind)}" for kind, number in sorted(kinds.items(), key=str)]
    ours = (__version__, head())
    yield _check(
        "versions",
        kinds.keys() <= {ours},
        ", ".join(counts) or "no worker runs",
        f"the upgrade ends when all are {_kind(*ours)}",
    )
    ahead_s = {worker.name: worker.ahead_s for worker in workers if worker.ahead_s is not None}
    ahead_s["this machine"] = -database_ahead_s
    wrong = []
    for name, seconds in sorted(ahead_s.items()):
        if abs(seconds) > SKEW_S:
            wrong.append(f"{name} {seconds:+.1f} s")
    most_s = max(map(abs, ahead_s.values()))
    detail = f"{len(ahead_s)}, at most {most_s:.1f} s from the database's"
    if wrong:
        detail = (
            f"off from the database's: {', '.join(wrong[:3])}; set them by NTP, times of calls are"
            " wrong"
        )
    yield Check("clocks", not wrong, detail)


def _kind(version: str | None, schema: str | None) -> str:
    if version is None:
        return "of an older version"
    return f"of {version} (schema {schema})"


def judge_database(facts: Any) -> Iterator[Check]:
    """Judge the row of the statement `database_facts`."""
    yield _check(
        "sessions",
        facts.connections < FULL * facts.max_connections,
        f"{facts.connections} of {facts.max_connections} connections",
        "raise max_connections, or put a pooler in between",
    )
    yield _check(
        "memory",
        facts.size < LARGE or facts.shared_buffers >= SMALL_CACHE,
        f"{_gb(facts.size)}, {_gb(facts.verdicts_size)} of it verdicts;"
        f" shared_buffers {_gb(facts.shared_buffers)}",
        "give shared_buffers a quarter of the machine's memory",
    )
    state = "commits may be lost with the power"
    if facts.durable:
        state = "commits survive a loss of power"
    remedy = "set fsync, full_page_writes and synchronous_commit to on"
    yield _check("durability", facts.durable, state, remedy)
    state = f"max_wal_size {_gb(facts.max_wal_size)}"
    if facts.archiving_fails:
        state += "; archiving fails"
        remedy = "mend archive_command before the disk is full"
    else:
        state += f", {_gb(facts.kept_wal)} kept for replicas that are away"
        remedy = "drop the slot with pg_drop_replication_slot"
    works = not facts.archiving_fails and facts.kept_wal < KEPT_WAL
    yield _check("wal", works, state, remedy)
    age = max(facts.transactions, facts.row_locks)
    state = f"oldest id {age:,} old, {facts.dead_share:.0%} of the rows of verdicts to be vacuumed"
    remedy = "run VACUUM (FREEZE) verdicts, and look why autovacuum does not"
    if not facts.autovacuum:
        state += "; autovacuum is off"
        remedy = "turn it on"
    young = age < OLD_IDS and facts.dead_share < DEAD_SHARE
    yield _check("vacuum", facts.autovacuum and young, state, remedy)
    yield _check(
        "transactions",
        facts.oldest_s < OLD_TRANSACTION_S,
        f"the oldest is {facts.oldest_s:,.0f} s old",
        "end it (pg_stat_activity, pg_terminate_backend): nothing behind it can be vacuumed",
    )


def judge_redis(part: str, facts: JsonObject, ahead_s: float) -> Iterator[Check]:
    """Judge a Redis; `ahead_s` is by how much its clock is ahead of the database's."""
    yield _check(
        part,
        abs(ahead_s) <= SKEW_S,
        f"Redis {facts['redis_version']}, {ahead_s:+.1f} s from the database's clock",
        "set both by NTP",
    )
    policy = facts["maxmemory_policy"]
    limit = facts["maxmemory"]
    used = facts["used_memory"]
    most = f"{limit / 1e6:,.0f} MB" if limit else "no limit"
    has_room = not limit or used < FULL * limit
    remedy = "raise maxmemory"
    if policy != "noeviction":
        has_room = False
        remedy = "set maxmemory-policy to noeviction: others drop messages and limits"
    yield _check(part, has_room, f"{used / 1e6:,.0f} MB of {most}, {policy}", remedy)
    clients = facts["connected_clients"]
    most = facts["maxclients"]
    yield _check(part, clients < FULL * most, f"{clients} of {most} clients", "raise maxclients")
    saved = facts["rdb_last_bgsave_status"] == "ok" and facts["aof_last_write_status"] == "ok"
    state = "its last save succeeded" if saved else "it cannot save"
    yield _check(part, saved, state, "look at its disk and its log")


def _check(part: str, ok: bool, state: str, remedy: str) -> Check:
    if ok:
        return Check(part, ok, state)
    return Check(part, ok, f"{state}: {remedy}")


def _gb(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"

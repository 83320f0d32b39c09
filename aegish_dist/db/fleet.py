"""The workers that run, what they and the server report of themselves, and what the exporter reads.

Parts of a report are JSON. Readers of other versions skip entries and fields that they do not know.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import chain
from typing import Any

from msgspec import Struct, field
from sqlalchemy import Row, delete, func, null, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from aegish_dist import __version__
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.status import CallWait, FailedCalls, Waiting
from aegish_dist.core.text import clean_text
from aegish_dist.db.engine import execute
from aegish_dist.db.schema import head
from aegish_dist.db.tables import WORKERS

ALIVE_S = 10
"""A worker reports every second, or every third while it holds nothing; one silent so long does not
count."""
FORGET_S = 86_400
TEXT_LENGTH = 200
"""A message or reason is cut to this many characters: a report is written every second."""
MOST_KINDS = 50
"""A worker reports so many kinds of failed calls at most, the newest ones."""
MOST_UNSERVED = 500
"""A worker reports no more models than this of those that it may not call."""

ModelKey = tuple[str, str]
"""Run id and model; an empty run id stands for every run."""
Reasons = dict[ModelKey, str]
"""Why, in the provider's last words: one printable line without a key."""


class ModelBlock(StrEnum):
    PARKED = "parked"
    OVER_BUDGET = "over budget"


ModelBlocks = dict[ModelKey, ModelBlock]


class Fleet(Struct, frozen=True):
    workers: int
    in_flight: Mapping[ModelKey, int]
    halts: ModelBlocks = field(default_factory=dict)
    reasons: Reasons = field(default_factory=dict)
    waiting: Mapping[ModelKey, Waiting] = field(default_factory=dict)
    """Items held that are not called now; older workers do not report it."""
    failing: Mapping[str, tuple[FailedCalls, ...]] = field(default_factory=dict)
    """Failed calls of items held, by run id: the store learns of these with the verdicts."""
    unserved: Reasons = field(default_factory=dict)
    """Models that no worker may call, for lack of a key or by its catalog, and why."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """Workers by version of the product; empty text: one that does not report it."""
    oldest_report_s: float = 0.0

    def halt(self, run_id: str, model: str) -> ModelBlock | None:
        """Return why a model of a run is not called, None when it is."""
        return self.halts.get((run_id, model)) or self.halts.get(("", model))

    def reason(self, run_id: str, model: str) -> str | None:
        """Return the provider's words about a halted model of a run, None when unknown."""
        key = (run_id, model)
        return self.reasons.get(key if key in self.halts else ("", model))


def report_worker(
    session: Session,
    name: str,
    in_flight: Mapping[ModelKey, int],
    halts: Mapping[ModelKey, ModelBlock] | None = None,
    reasons: Mapping[ModelKey, str] | None = None,
    *,
    unserved: Mapping[ModelKey, str] | None = None,
    waiting: Mapping[ModelKey, Waiting] | None = None,
    failing: Mapping[str, Sequence[FailedCalls]] | None = None,
    about: Mapping[str, str] | None = None,
) -> None:
    """Write down that a worker runs.

    Args:
        unserved: Models that it may not call, and why.
        waiting: Items it holds that are not called now.
    """
    texts, waits = reasons or {}, waiting or {}
    failed = [(run_id, each) for run_id, calls in (failing or {}).items() for each in calls]
    failed.sort(key=lambda kind: kind[1].at, reverse=True)
    entries = [
        _entry(key, items=items, **(_waiting_fields(waits[key]) if key in waits else {}))
        for key, items in sorted(in_flight.items())
        if items
    ]
    entries += [
        _entry(key, halt=halt.value, **({"reason": _cut(texts[key])} if texts.get(key) else {}))
        for key, halt in sorted((halts or {}).items())
    ]
    entries += [
        _entry(key, unserved=_cut(why))
        for key, why in sorted((unserved or {}).items())[:MOST_UNSERVED]
    ]
    entries += [
        _entry((run_id, calls.model), failed=_failed_fields(calls))
        for run_id, calls in failed[:MOST_KINDS]
    ]
    statement = insert(WORKERS).values(
        name=name, in_flight=entries, seen_at=func.now(), about=null() if about is None else about
    )
    new = statement.excluded
    session.execute(
        statement.on_conflict_do_update(
            index_elements=["name"],
            set_={"in_flight": new.in_flight, "seen_at": func.now(), "about": new.about},
        )
    )


def _entry(key: ModelKey, **facts: object) -> dict[str, Any]:
    return {"run": key[0], "model": key[1], "items": 0, **facts}


def _cut(text: str) -> str:
    return clean_text(text[:TEXT_LENGTH])


def _waiting_fields(waiting: Waiting) -> dict[str, Any]:
    by = None if waiting.blocked_by is None else waiting.blocked_by.value
    return {"waiting": waiting.limiter, "backoff": waiting.backoff, "blocked_by": by}


def _waiting_of(entry: Mapping[str, Any]) -> Waiting:
    """Return what `_waiting_fields` wrote."""
    by = entry["blocked_by"]
    return Waiting(entry["waiting"], entry["backoff"], None if by is None else CallWait(by))


def _total_waiting(reports: Sequence[Waiting]) -> Waiting:
    """Return the items of several workers together, with the reason of the one with the most."""
    return Waiting(
        limiter=sum(each.limiter for each in reports),
        backoff=sum(each.backoff for each in reports),
        blocked_by=max(reports, key=lambda each: each.limiter).blocked_by,
    )


def _failed_fields(calls: FailedCalls) -> dict[str, Any]:
    return {
        "class": calls.error_class.value,
        "status": calls.status,
        "calls": calls.calls,
        "lately": calls.calls_lately,
        "at": calls.at.isoformat(),
        "message": _cut(calls.message),
    }


def _failed_calls_of(entry: Mapping[str, Any]) -> FailedCalls:
    """Return what `_failed_fields` wrote."""
    failed = entry["failed"]
    return FailedCalls(
        at=datetime.fromisoformat(failed["at"]),
        model=entry["model"],
        error_class=ErrorClass(failed["class"]),
        status=failed["status"],
        message=failed["message"],
        calls=failed["calls"],
        calls_lately=failed["lately"],
    )


def forget_worker(session: Session, name: str) -> None:
    """Remove a worker that ends, and those that ended without saying so."""
    silent = func.now() - func.make_interval(0, 0, 0, 0, 0, 0, FORGET_S)
    session.execute(delete(WORKERS).where((WORKERS.c.name == name) | (WORKERS.c.seen_at < silent)))


def living_fleet(session: Session) -> Fleet:
    recent = func.now() - func.make_interval(0, 0, 0, 0, 0, 0, ALIVE_S)
    age_s = func.extract("epoch", func.now() - WORKERS.c.seen_at)
    reports = session.execute(
        select(WORKERS.c.in_flight, WORKERS.c.about, age_s.label("age_s")).where(
            WORKERS.c.seen_at > recent
        )
    ).all()
    held: Counter[ModelKey] = Counter()
    halts: ModelBlocks = {}
    reasons: Reasons = {}
    unserved: dict[ModelKey, list[str]] = defaultdict(list)
    waits: dict[ModelKey, list[Waiting]] = defaultdict(list)
    failing: dict[str, list[FailedCalls]] = defaultdict(list)
    for entry in chain.from_iterable(report.in_flight for report in reports):
        key = (entry["run"], entry["model"])
        held[key] += entry["items"]
        if "halt" in entry:
            halts[key] = ModelBlock(entry["halt"])
        if "reason" in entry:
            reasons[key] = entry["reason"]
        if "waiting" in entry:
            waits[key].append(_waiting_of(entry))
        if "failed" in entry:
            failing[entry["run"]].append(_failed_calls_of(entry))
        if "unserved" in entry:
            unserved[key].append(entry["unserved"])
    return Fleet(
        workers=len(reports),
        in_flight=held,
        halts=halts,
        reasons=reasons,
        waiting={key: _total_waiting(each) for key, each in waits.items()},
        failing={run_id: tuple(each) for run_id, each in failing.items()},
        unserved={key: min(why) for key, why in unserved.items() if len(why) == len(reports)},
        versions=Counter((report.about or {}).get("version", "") for report in reports),
        oldest_report_s=max([0.0, *(float(report.age_s) for report in reports)]),
    )


def about_worker(now: datetime) -> dict[str, str]:
    return {"version": __version__, "schema": head(), "clock": now.isoformat()}


class ReportedWorker(Struct, frozen=True):
    name: str
    version: str | None
    """Its version; None where it is older than this report."""
    schema: str | None
    """The schema that it was written for; None likewise."""
    ahead_s: float | None
    """Seconds by which its clock was ahead of the database's; None likewise."""


def reported_workers(session: Session) -> list[ReportedWorker]:
    rows = execute(session, "reported_workers", alive_s=ALIVE_S).mappings()
    return [ReportedWorker(**row) for row in rows]


class DatabaseFacts(Struct, frozen=True):
    clock: datetime
    version: str
    max_connections: int
    connections: int
    shared_buffers: int
    max_wal_size: int
    size: int
    verdicts_size: int
    autovacuum: bool
    durable: bool
    """Whether what is committed survives a loss of power."""
    transactions: int
    """Age of the oldest transaction id that is not frozen; PostgreSQL stops writing at 2 * 10^9."""
    row_locks: int
    """The same of ids of shared row locks."""
    oldest_s: float
    archiving_fails: bool
    """Whether the last segment of its log could not be archived."""
    kept_wal: int
    """Bytes of log that a replication slot keeps which nothing reads."""
    dead_share: float


def database_facts(session: Session) -> DatabaseFacts:
    return DatabaseFacts(**execute(session, "database_facts").mappings().one())


MOST_RUNS = 500
LAST_PAGES = 8
"""Pages of the table of verdicts that are read."""


class OpenRunModel(Struct, frozen=True):
    key: int
    model: str
    queue: str


class OpenRun(Struct, frozen=True):
    run_id: str
    held: bool
    created_at: datetime
    planned_per_model: int
    cap_usd: float | None
    models: tuple[int, ...]
    opened: tuple[OpenRunModel, ...]


class OpenBatches(Struct, frozen=True):
    """Batches of a model that are in one state and not ended; times in seconds."""

    model: str
    state: str
    batches: int
    requests: int
    oldest_s: float
    creating_s: float | None


class TableState(Struct, frozen=True):
    name: str
    bytes: int
    dead_rows: int
    inserted: int


class FleetState(Struct, frozen=True):
    fleet: Fleet
    runs: tuple[OpenRun, ...]
    aggregations_due: int
    aggregation_oldest_s: float | None
    batches: tuple[OpenBatches, ...]
    tables: tuple[TableState, ...]
    connections: int
    connections_max: int
    newest_verdict_age_s: float | None
    """Age of the newest verdict at the end of its table; None: there is none."""


class CountedModel(Struct, frozen=True):
    done: int
    cost_usd: float | None


def read_fleet(session: Session) -> FleetState:
    aggregations = execute(session, "fleet_aggregations").one()
    connections = execute(session, "fleet_connections").one()
    return FleetState(
        fleet=living_fleet(session),
        runs=tuple(_open_runs(session)),
        aggregations_due=aggregations.due,
        aggregation_oldest_s=aggregations.oldest_s,
        batches=tuple(OpenBatches(**row) for row in execute(session, "fleet_batches").mappings()),
        tables=tuple(TableState(**row) for row in execute(session, "fleet_tables").mappings()),
        connections=connections.used,
        connections_max=connections.most,
        newest_verdict_age_s=execute(session, "fleet_newest_verdict", pages=LAST_PAGES).scalar(),
    )


def _open_runs(session: Session) -> Iterator[OpenRun]:
    rows = execute(session, "fleet_models", limit=MOST_RUNS).all()
    opened: dict[str, list[Row[Any]]] = {}
    for row in rows:
        opened.setdefault(row.run_id, []).append(row)
    for run_id, models in opened.items():
        run = models[0]
        yield OpenRun(
            run_id=run_id,
            held=run.held,
            created_at=run.created_at,
            planned_per_model=int(run.planned),
            cap_usd=run.cap_usd,
            models=tuple(run.models),
            opened=tuple(OpenRunModel(each.id, each.model, each.queue) for each in models),
        )


def count_models(session: Session, keys: Sequence[int]) -> Mapping[int, CountedModel]:
    """Count the verdicts of models of runs: a tenth of a second for each 300,000 of them."""
    return {
        key: CountedModel(*execute(session, "count_open_model", model=key).one()) for key in keys
    }


REPORT_AGE = timedelta(seconds=0.5)
"""How long a worker's report may have been under way to the database."""


def items_under_way(
    session: Session, run_id: str, since: datetime, model: str | None = None
) -> int | None:
    """Return how many items of a run living workers hold, by reports that are new enough.

    Args:
        since: Time of the server; what a worker reported before it says nothing.
        model: Only items of this model; None: all.

    Returns:
        None while a living worker has not reported since.
    """
    recent = func.now() - func.make_interval(0, 0, 0, 0, 0, 0, ALIVE_S)
    earliest = since + REPORT_AGE
    items = 0
    for row in session.execute(select(WORKERS).where(WORKERS.c.seen_at > recent)):
        if row.seen_at < earliest:
            return None
        items += sum(
            each["items"]
            for each in row.in_flight
            if each["run"] == run_id and model in (None, each["model"])
        )
    return items

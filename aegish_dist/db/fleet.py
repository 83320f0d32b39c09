"""The workers that run, what they and the server report of themselves, and what the exporter reads.

Parts of a report are JSON. Readers of other versions skip entries and fields that they do not know.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from msgspec import UNSET, Struct, UnsetType, ValidationError, convert, field, json
from msgspec.structs import asdict, replace
from sqlalchemy import Row
from sqlalchemy.orm import Session

from aegish_dist import __version__
from aegish_dist.core.model import base_of
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.status import CallWait, FailedCalls, Waiting
from aegish_dist.core.text import clean_text
from aegish_dist.db.engine import execute
from aegish_dist.db.schema import head

# A worker reports every second, or every third while it holds nothing; one silent so long does not
# count.
ALIVE_S = 10
FORGET_S = 86_400
# A message or reason is cut to this many characters: a report is written every second.
TEXT_LENGTH = 200
MOST_KINDS = 50  # a worker reports so many kinds of failed calls at most, the newest ones
MOST_UNSERVED = 500  # a worker reports no more models than this of those that it may not call

ModelKey = tuple[str, str]  # run id and model; an empty run id stands for every run
Reasons = dict[ModelKey, str]  # why, in the provider's last words: one printable line without a key


class ModelBlock(StrEnum):
    PARKED = "parked"
    OVER_BUDGET = "over budget"


ModelBlocks = dict[ModelKey, ModelBlock]
_Kind = TypeVar("_Kind", bound="_Held")


class Fleet(Struct, frozen=True):
    workers: int
    in_flight: Mapping[ModelKey, int]
    halts: ModelBlocks = field(default_factory=dict)
    reasons: Reasons = field(default_factory=dict)
    # Items held that are not called now; older workers do not report it.
    waiting: Mapping[ModelKey, Waiting] = field(default_factory=dict)
    # Failed calls of items held, by run id: the store learns of these with the verdicts.
    failing: Mapping[str, tuple[FailedCalls, ...]] = field(default_factory=dict)
    # Models that no worker may call, for lack of a key or by its catalog, and why.
    unserved: Reasons = field(default_factory=dict)
    # Workers by version of the product; empty text: one that does not report it.
    versions: Mapping[str, int] = field(default_factory=dict)
    oldest_report_s: float = 0.0

    def halt(self, run_id: str, model: str) -> ModelBlock | None:
        """Return why a model of a run is not called, None when it is."""
        return self.halts.get((run_id, model)) or self.halts.get(("", base_of(model)))

    def reason(self, run_id: str, model: str) -> str | None:
        """Return the provider's words about a halted model of a run, None when unknown."""
        key = (run_id, model)
        return self.reasons.get(key if key in self.halts else ("", base_of(model)))


class _Failed(Struct, rename={"error_class": "class", "calls_lately": "lately"}):
    """`FailedCalls` as they are stored, without the model of their entry."""

    error_class: ErrorClass
    status: int | None
    calls: int
    calls_lately: int
    at: datetime
    message: str


class _Held(Struct, omit_defaults=True):
    """The part of an entry of a worker's report that versions agree on."""

    run: str
    model: str
    items: int


class _Entry(_Held):
    """A part of a worker's report, as it is stored.

    Commands of other versions read it during an upgrade: no field may change its name or its kind.
    """

    halt: ModelBlock | None = None
    reason: str | None = None
    unserved: str | None = None
    waiting: int | UnsetType = UNSET
    backoff: int | UnsetType = UNSET
    blocked_by: CallWait | UnsetType | None = UNSET
    refused: float | None = None
    failed: _Failed | None = None


def _held_entry(key: ModelKey, items: int, waiting: Waiting | None) -> _Entry:
    entry = _Entry(*key, items)
    if waiting is None:
        return entry
    told = asdict(waiting)
    return replace(entry, waiting=told.pop("limiter"), **told)


def _failed_entry(run_id: str, calls: FailedCalls) -> _Entry:
    said = asdict(calls) | {"message": _cut(calls.message)}
    return _Entry(run_id, said.pop("model"), 0, failed=_Failed(**said))


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
    """Write down that a worker runs."""
    texts, waits = reasons or {}, waiting or {}
    failed = [(run_id, each) for run_id, calls in (failing or {}).items() for each in calls]
    failed.sort(key=lambda kind: kind[1].at, reverse=True)
    refused = sorted((unserved or {}).items())
    entries = [
        *(
            _held_entry(key, items, waits.get(key))
            for key, items in sorted(in_flight.items())
            if items
        ),
        *(
            _Entry(*key, 0, halt=halt, reason=_cut(texts.get(key, "")) or None)
            for key, halt in sorted((halts or {}).items())
        ),
        *(_Entry(*key, 0, unserved=_cut(why)) for key, why in refused[:MOST_UNSERVED]),
        *(_failed_entry(run_id, calls) for run_id, calls in failed[:MOST_KINDS]),
    ]
    execute(
        session,
        "report_worker",
        name=name,
        in_flight=json.encode(entries).decode(),
        about=None if about is None else json.encode(about).decode(),
    )


def _cut(text: str) -> str:
    return clean_text(text[:TEXT_LENGTH])


def forget_worker(session: Session, name: str) -> None:
    """Remove a worker that ends, and those that ended without saying so."""
    execute(session, "forget_worker", name=name, forget_s=FORGET_S)


def living_fleet(session: Session) -> Fleet:
    reports = execute(session, "living_workers", alive_s=ALIVE_S).all()
    held: Counter[ModelKey] = Counter()
    halts: ModelBlocks = {}
    reasons: Reasons = {}
    unserved: dict[ModelKey, list[str]] = defaultdict(list)
    waits: dict[ModelKey, list[Waiting]] = defaultdict(list)
    failing: dict[str, list[FailedCalls]] = defaultdict(list)
    for entry in _entries(reports, _Entry):
        key = (entry.run, entry.model)
        held[key] += entry.items
        if entry.halt is not None:
            halts[key] = entry.halt
        if entry.reason is not None:
            reasons[key] = entry.reason
        if entry.waiting is not UNSET:
            by = entry.blocked_by or None
            waits[key].append(Waiting(entry.waiting, entry.backoff or 0, by, entry.refused))
        if entry.failed is not None:
            failing[entry.run].append(FailedCalls(model=entry.model, **asdict(entry.failed)))
        if entry.unserved is not None:
            unserved[key].append(entry.unserved)
    return Fleet(
        workers=len(reports),
        in_flight=held,
        halts=halts,
        reasons=reasons,
        waiting={key: _total_waiting(each) for key, each in waits.items()},
        failing={run_id: tuple(each) for run_id, each in failing.items()},
        unserved={key: min(why) for key, why in unserved.items() if len(why) == len(reports)},
        versions=Counter(report.version or "" for report in reports),
        oldest_report_s=max([0.0, *(report.age_s for report in reports)]),
    )


def _entries(reports: Iterable[Row[Any]], kind: type[_Kind]) -> Iterator[_Kind]:
    """Yield what can be read of workers' reports: a worker may be of another version."""
    for report in reports:
        if isinstance(report.in_flight, list):
            for entry in report.in_flight:
                with suppress(ValidationError):
                    yield convert(entry, kind)


def _total_waiting(reports: Sequence[Waiting]) -> Waiting:
    """Return the items of several workers together, with the reason of the one with the most.

    Each worker knows the refused share of the whole fleet, at another time.
    """
    longest = max(reports, key=lambda waiting: waiting.limiter)
    refused = [waiting.refused for waiting in reports if waiting.refused is not None]
    return Waiting(
        limiter=sum(waiting.limiter for waiting in reports),
        backoff=sum(waiting.backoff for waiting in reports),
        blocked_by=longest.blocked_by,
        refused=max(refused, default=None),
    )


def about_worker(now: datetime) -> dict[str, str]:
    return {"version": __version__, "schema": head(), "clock": now.isoformat()}


def reported_workers(session: Session) -> Sequence[Row[Any]]:
    """Return the rows of the statement, which says what they hold."""
    return execute(session, "reported_workers", alive_s=ALIVE_S).all()


MOST_RUNS = 500
LAST_PAGES = 8  # pages of the table of verdicts that are read


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


class FleetState(Struct, frozen=True):
    fleet: Fleet
    runs: tuple[OpenRun, ...]
    aggregations_due: int
    aggregation_oldest_s: float | None
    batches: Sequence[Any]  # rows of `fleet_batches`
    tables: Sequence[Any]  # rows of `fleet_tables`
    connections: int
    connections_max: int
    # Age of the newest verdict at the end of its table; None: there is none.
    newest_verdict_age_s: float | None


def read_fleet(session: Session) -> FleetState:
    runs = execute(session, "fleet_runs", limit=MOST_RUNS).mappings()
    aggregations = execute(session, "fleet_aggregations").one()
    connections = execute(session, "fleet_connections").one()
    return FleetState(
        fleet=living_fleet(session),
        runs=convert([*map(dict, runs)], tuple[OpenRun, ...]),
        aggregations_due=aggregations.due,
        aggregation_oldest_s=aggregations.oldest_s,
        batches=execute(session, "fleet_batches").all(),
        tables=execute(session, "fleet_tables").all(),
        connections=connections.used,
        connections_max=connections.most,
        newest_verdict_age_s=execute(session, "fleet_newest_verdict", pages=LAST_PAGES).scalar(),
    )


def count_model(session: Session, key: int) -> Row[Any]:
    """Count the verdicts of a model of a run: a tenth of a second for each 300,000 of them."""
    return execute(session, "count_open_model", model=key).one()


# How long a worker's report may have been under way to the database.
REPORT_AGE = timedelta(seconds=0.5)


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
    reports = execute(session, "living_workers", alive_s=ALIVE_S).all()
    if any(report.seen_at < since + REPORT_AGE for report in reports):
        return None
    held = 0
    for entry in _entries(reports, _Held):
        if entry.run == run_id and model in (None, entry.model):
            held += entry.items
    return held

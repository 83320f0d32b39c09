"""Reporting: a run and one of its snapshots, gathered for rendering."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from enum import StrEnum

from msgspec.structs import replace
from sqlalchemy import Engine

from aegish_dist.core.failures import TimedFailures, stretch_of
from aegish_dist.core.opinion import JsonObject, Opinion, Snapshot, overlay_effect
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.run import Run
from aegish_dist.core.status import FailedCalls
from aegish_dist.db.counting import (
    failed_kinds,
    failure_span,
    failures_by_time,
    is_unchanged,
    unanswered_by_model,
)
from aegish_dist.db.engine import transaction
from aegish_dist.db.fleet import Fleet, ModelBlock, living_fleet
from aegish_dist.db.runs import load_run
from aegish_dist.pipeline.aggregate import (
    current_snapshot,
    current_snapshots,
    snapshot_numbered,
    without_overlay,
)
from aegish_dist.pipeline.compare import Question, compare_models
from aegish_dist.pipeline.status import over_budget
from aegish_dist.report.data import ComparisonData, FailureCount, Halted, ReportData


class ReportPart(StrEnum):
    """Content that takes time to gather, and that not every report shows."""

    COMPARISON = "comparison"
    BY_CATEGORY = "comparison by category"
    FAILURE_TIMES = "failure times"


ALL_PARTS = frozenset(ReportPart)


def report_data(
    engine: Engine,
    run_id: str,
    opinion: Opinion,
    snapshot_id: int | None = None,
    *,
    parts: Collection[ReportPart] = (),
) -> ReportData:
    """Gather what a report shows.

    Args:
        opinion: What to apply, unless a snapshot is named.
        snapshot_id: A stored snapshot; the current verdicts when None.

    Raises:
        ReportError: The run has no verdict yet, or no such snapshot.
    """
    snapshot, effect = _snapshot(engine, run_id, opinion, snapshot_id)
    with transaction(engine) as session:
        run = load_run(session, run_id)
        attempts = failed_kinds(session, run_id)
        unanswered = unanswered_by_model(session, run)
        fleet = living_fleet(session)
        is_current = snapshot_id is None or is_unchanged(session, run, snapshot.identities)
        stretch_s, failure_times = 0, list[TimedFailures]()
        if ReportPart.FAILURE_TIMES in parts:
            stretch_s = stretch_of(failure_span(session, run_id))
            models = [spec.id for spec in run.models]
            failure_times = failures_by_time(session, run_id, models, stretch_s)
    return ReportData(
        run=run,
        snapshot=snapshot,
        failures=[
            failure
            for spec in run.models
            for failure in _failures(spec.id, attempts, unanswered[spec.id])
        ],
        halted=list(_halted(run, fleet, snapshot)),
        effect=effect,
        comparison=_comparison(engine, run, snapshot, parts) if is_current else None,
        failure_times=failure_times,
        failure_stretch_s=stretch_s,
        is_current=is_current,
    )


def _comparison(
    engine: Engine, run: Run, snapshot: Snapshot, parts: Collection[ReportPart]
) -> ComparisonData | None:
    """Compare all pairs of models; None where none is wanted, or the rule set is not known."""
    if ReportPart.COMPARISON not in parts or len(run.models) < 2 or snapshot.opinion is None:
        return None
    question = Question(snapshot.opinion, by_category=ReportPart.BY_CATEGORY in parts)
    return compare_models(engine, run.run_id, question=question)


def _snapshot(
    engine: Engine, run_id: str, opinion: Opinion, snapshot_id: int | None
) -> tuple[Snapshot, list[JsonObject]]:
    """Return the snapshot, and what its overlay, if it has one, does to the scores."""
    plain: Snapshot | None
    if snapshot_id is not None:
        snapshot = snapshot_numbered(engine, run_id, snapshot_id)
        if snapshot.opinion is None or snapshot.opinion.overlay is None:
            return snapshot, []
        plain = without_overlay(engine, snapshot)
    elif opinion.overlay is None:
        return current_snapshot(engine, run_id, opinion), []
    else:
        both = (opinion, replace(opinion, overlay=None))
        snapshot, plain = current_snapshots(engine, run_id, both)
    return snapshot, [] if plain is None else overlay_effect(plain.document, snapshot.document)


def _failures(
    model: str, attempts: Sequence[FailedCalls], unanswered: Mapping[ErrorClass, int]
) -> list[FailureCount]:
    found = []
    for error_class in ErrorClass:
        kinds = [
            each for each in attempts if (each.model, each.error_class) == (model, error_class)
        ]
        newest = max(kinds, key=lambda kind: (kind.at, kind.calls), default=None)
        failure = FailureCount(
            model=model,
            error_class=error_class,
            verdicts=unanswered.get(error_class, 0),
            attempts=sum(kind.calls for kind in kinds),
            statuses=tuple(sorted({each.status for each in kinds if each.status is not None})),
            message="" if newest is None else newest.message,
            last_at=None if newest is None else newest.at,
        )
        if kinds or failure.verdicts:
            found.append(failure)
    return sorted(found, key=lambda each: (-each.verdicts, -each.attempts))


def _halted(run: Run, fleet: Fleet, snapshot: Snapshot) -> Iterator[Halted]:
    entries = {entry["model"]: entry for entry in snapshot.document["models"]}
    spent = {
        model: Decimal(str(entry["cost"]["total_usd"] or 0)) for model, entry in entries.items()
    }
    over = over_budget(run, spent)
    for model, entry in entries.items():
        counts, halt = entry["counts"], fleet.halt(run.run_id, model)
        if counts["done"] >= counts["planned"]:
            continue
        if run.held is not None:
            yield Halted(model, run.held.value)
        elif model in over:
            yield Halted(model, ModelBlock.OVER_BUDGET.value)
        elif halt is not None:
            yield Halted(model, halt.value, fleet.reason(run.run_id, model) or "")
        elif (run.run_id, model) in fleet.unserved:
            yield Halted(model, "no worker may call it", fleet.unserved[run.run_id, model])

"""Stop rules in the store: which runs have one, the answers in their order, the last reading."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import func, null, select, update
from sqlalchemy.orm import Session

from aegish_dist.core.completion import StopKind
from aegish_dist.core.increments import SampleMeans, SampleOrder
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import rule_named
from aegish_dist.core.stop_rule import Decision, StopRule
from aegish_dist.core.verdict import ErrorClass, Outcome
from aegish_dist.db.base import AdvisoryLock
from aegish_dist.db.codes import finding_of
from aegish_dist.db.statements import statement
from aegish_dist.db.tables import RunModelRow, RunRow

_RULED = statement("ruled_runs")
_ORDER = statement("order_of_samples")
_ANSWERS = statement("answers_of_samples")
_STOP = statement("stop_models")


@dataclass(frozen=True, slots=True)
class RuledRun:
    """A run that stops by itself, and is still asked about."""

    run_id: str
    epochs: int
    rule: StopRule
    before: Decision | None
    """The last reading; None: there is none yet."""
    closed: bool
    """Whether nothing more is asked of any of its models."""


def ruled_runs(session: Session) -> list[RuledRun]:
    """Return the runs to read; none while another process reads them."""
    if not session.scalar(select(func.pg_try_advisory_xact_lock(AdvisoryLock.DECIDING))):
        return []
    return [
        RuledRun(row.id, row.epochs, rule, _decision(row.decision), row.closed)
        for row in session.execute(_RULED)
        if (rule := _rule(row.stop_rule)) is not None
    ]


def answers_in_order(session: Session, run: RuledRun) -> tuple[SampleOrder, dict[str, SampleMeans]]:
    """Return the samples of a run in the order in which they are asked, and each model's answers.

    Args:
        run: The run; its rule names the rule set that says which answers are right.
    """
    row = session.execute(_ORDER, {"run": run.run_id, "seed": run.rule.seed}).one()
    order = SampleOrder(row.places or (), row.malicious or ())
    models = session.scalars(
        select(RunModelRow.model)
        .where(RunModelRow.run_id == run.run_id)
        .order_by(RunModelRow.model)
    ).all()
    keys = row.keys or ()
    return order, {model: _means(session, run, model, order, keys) for model in models}


def _means(
    session: Session,
    run: RuledRun,
    model: str,
    order: SampleOrder,
    keys: Any,
) -> SampleMeans:
    values = {"run": run.run_id, "name": model, **_codes(run.rule.scoring)}
    found = {row.key: row for row in session.execute(_ANSWERS, values)}
    means: list[float | None] = []
    complete = order.places[-1] + 1 if order.places else 0
    for key, place, malicious in zip(keys, order.places, order.malicious, strict=True):
        row = found.get(key)
        if row is None or row.answered < run.epochs:
            complete = min(complete, place)
        if row is None or not row.scored:
            means.append(None)
        else:
            means.append((row.detected if malicious else row.accepted) / row.scored)
    return SampleMeans(means, complete)


@cache
def _codes(rule_set: str) -> Mapping[str, list[int]]:
    """Return the codes that a rule set scores, and those that it calls right, by label."""
    scoring = rule_named(rule_set)
    codes = [
        100 * error + 10 * outcome + stop
        for error in range(len(ErrorClass) + 1)
        for outcome in range(1, len(Outcome) + 1)
        for stop in range(len(StopKind) + 1)
    ]
    scored = [code for code in codes if scoring.is_scored(finding_of(code))]

    def right(target: Target) -> list[int]:
        return [code for code in scored if scoring.is_correct(target, finding_of(code))]

    return {
        "scored_codes": scored,
        "detections": right(Target.MALICIOUS),
        "acceptances": right(Target.HARMLESS),
    }


def save_decision(session: Session, run_id: str, decision: Decision) -> None:
    """Store a reading, and ask nothing more of the models that it stops."""
    now = session.scalars(select(func.now())).one()
    dated = replace(decision, read_at=now.isoformat())
    session.execute(update(RunRow).where(RunRow.id == run_id).values(decision=asdict(dated)))
    if decision.stopped:
        session.execute(_STOP, {"run": run_id, "models": list(decision.stopped)})


def drop_stop_rule(session: Session, run_id: str) -> None:
    """Have a run asked to its end; its last reading stays."""
    session.execute(update(RunRow).where(RunRow.id == run_id).values(stop_rule=null()))


def load_decision(session: Session, run_id: str) -> tuple[StopRule | None, Decision | None]:
    """Return the stop rule of a run and its last reading; None where there is none."""
    row = session.execute(
        select(RunRow.stop_rule, RunRow.decision).where(RunRow.id == run_id)
    ).one()
    return _rule(row.stop_rule), _decision(row.decision)


def stopped_models(session: Session, run_id: str) -> tuple[str, ...]:
    """Return the models of a run that its stop rule has stopped; none of a run without one."""
    rule, decision = load_decision(session, run_id)
    return () if rule is None or decision is None else decision.stopped


def _rule(stored: dict[str, Any] | None) -> StopRule | None:
    return None if stored is None else msgspec.convert(stored, StopRule)


def _decision(stored: dict[str, Any] | None) -> Decision | None:
    return None if stored is None else msgspec.convert(stored, Decision)

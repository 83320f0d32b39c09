"""What the guards of a run said, models and policies, as an opinion sees it."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import combinations

import numpy as np
from msgspec.structs import replace
from sqlalchemy import Engine

from aegish_dist.core.columns import cells_of, has_verdict
from aegish_dist.core.metric import Estimate, ModelMetrics
from aegish_dist.core.tally import Latency, ModelTally
from aegish_dist.db.columns import READ, read_columns
from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import load_run
from aegish_dist.errors import ReportError
from aegish_dist.findings.snapshot import Snapshot, snapshot_document
from aegish_dist.opinions.guards import (
    Guard,
    Guards,
    apply_policy,
    decided_fingerprint,
    guards_under,
)
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.policy import (
    POLICY_PREFIX,
    Overlap,
    may_be_judged,
    out_of_fold,
    overlap,
)
from aegish_dist.opinions.scoring import OWN_NUMBER, STATED_CONFIDENCE, SuspicionRule
from aegish_dist.pipeline.opinions import overlay_of
from aegish_dist.pipeline.runs import chosen_models, no_verdict
from aegish_dist.statistics.metrics import measure
from aegish_dist.statistics.paired_difference import paired_scores


def read_guards(
    engine: Engine,
    run_id: str,
    opinion: Opinion,
    rule: SuspicionRule = OWN_NUMBER,
    models: Sequence[str] = (),
    *,
    commands: bool = False,
    costs: bool = True,
) -> Guards:
    """Return what models of a run, and the policies of an opinion, said about each sample.

    Args:
        models: Models and policies, in the order of the guards; all models when empty. Policies
            that are not named come last.
        commands: Whether commands are wanted, too; policies need them in any case.
        costs: Whether prices and times are wanted; policies need them, too.

    Raises:
        StoreError: The run does not ask one of them.
        OpinionError: The overlay does not fit the datasets of the run, or a policy its models.
        ReportError: None of them has a verdict yet, or a number where the rule takes its own.
    """
    with transaction(engine, isolation_level="REPEATABLE READ") as session:
        run = load_run(session, run_id)
        names = chosen_models(run, models, opinion.contenders)
        numbers = READ if costs or opinion.policies else ("confidence", "suspicion")
        columns = read_columns(
            session,
            run,
            chosen_models(run) if opinion.policies else names,
            overlay_of(session, run, opinion),
            numbers=tuple(numbers),
            texts=commands or bool(opinion.policies),
        )
    if not len(columns.samples):
        raise ReportError(f"the overlay excludes every command of run {run_id}")
    if not any(read.answered.any() for read in columns.guards.values()):
        raise no_verdict(run_id)
    simulated = {spec.id for spec in run.models if spec.simulated}
    guards = []
    for guard in guards_under(columns, rule, opinion.rule):
        guards.append(replace(guard, simulated=guard.name in simulated))
    if rule.levels is None and not any(guard.scored.any() for guard in guards):
        whose = ", ".join(models) if models else f"run {run_id}"
        raise ReportError(
            f"no verdict of {whose} has a number of its own:"
            f" `--suspicion {STATED_CONFIDENCE.name}` takes the confidence that models state"
        )
    found = Guards(columns.samples, columns.epochs, guards)
    made = (apply_policy(policy, found) for policy in opinion.policies.values())
    known = {each.name: each for each in (*guards, *made)}
    return replace(found, guards=[known[name] for name in names])


def overlaps_of(opinion: Opinion, guards: Guards) -> dict[str, Overlap]:
    """Return by policy what it was chosen on of the commands that guards were read for."""
    if not opinion.policies:
        return {}
    marks = guards.marks
    decided = {each.name: each for each in guards.guards}
    overlaps = {}
    for policy in opinion.policies.values():
        name = POLICY_PREFIX + policy.name
        fingerprint = decided_fingerprint(decided[name], guards, opinion.rule)
        overlaps[name] = overlap(policy, marks, fingerprint)
    return overlaps


def with_policies(snapshot: Snapshot, opinion: Opinion, guards: Guards) -> Snapshot:
    """Return a snapshot with the policies of an opinion among its models, ranked by score.

    Nothing is stored: the entries follow from the guards, models and policies. A policy that was
    chosen on these commands has no rank, and of its metrics only what is known out of fold.
    """
    if not opinion.policies:
        return snapshot
    decided = {guard.name: guard for guard in guards.guards}
    pairs = list(combinations(decided, 2))
    differences = paired_scores(guards, opinion.rule).scores(pairs)
    compared = dict(zip(pairs, differences, strict=True))
    overlaps = overlaps_of(opinion, guards)
    measured = []
    for policy in opinion.policies.values():
        name = POLICY_PREFIX + policy.name
        made = measure(_tally(guards, decided[name]), opinion.rule)
        measured.append(_without_fitted(made, overlaps[name], out_of_fold(policy)))
    document = snapshot_document(measured, snapshot, compared, overlaps)
    return replace(snapshot, document=document, opinion=opinion, pairs=compared)


def _without_fitted(
    made: ModelMetrics, found: Overlap, known: Mapping[str, Estimate]
) -> ModelMetrics:
    """Leave undefined what would look too good on commands that a policy was chosen on."""
    if may_be_judged(found):
        return made
    metrics = dict(made.metrics)
    for name, estimate in made.metrics.items():
        if not may_be_judged(found, name):
            metrics[name] = Estimate(n=estimate.n)
    if found.out_of_fold:
        metrics |= known
    categories = {name: Estimate(n=estimate.n) for name, estimate in made.categories.items()}
    return replace(made, metrics=metrics, categories=categories)


def _tally(guards: Guards, policy: Guard) -> ModelTally:
    """Count what a policy decides; costs and times are unknown unless 95 % of them are known."""
    known = []
    for column in (policy.cost_usd, policy.latency_ms):
        numbers = column[~np.isnan(column)].tolist()
        # Those left would mislead: an allowlist costs nothing, guards without a price are unknown.
        known.append(numbers if len(numbers) >= 0.95 * column.size else [])
    costs, times = known
    malicious, harmless = guards.asked
    return ModelTally(
        model=policy.name,
        simulated=policy.simulated,
        planned_malicious=malicious,
        planned_harmless=harmless,
        cells=cells_of(guards.samples, policy.finding),
        latency={"service": Latency.of(times)} if times else {},
        cost_usd=sum(map(Decimal, costs), Decimal()) if costs else None,
        priced_verdicts=len(costs),
        untimed=int(has_verdict(policy.finding).sum()) - len(times),
    )

"""Policies among the models of a snapshot, counted from the stored verdicts of their guards."""

from collections import Counter
from decimal import Decimal
from itertools import combinations

from msgspec.structs import replace

from aegish_dist.core.tally import Cell, Latency, ModelTally, in_order
from aegish_dist.findings.leaderboard import snapshot_document
from aegish_dist.findings.provenance import out_of_fold
from aegish_dist.findings.snapshot import Snapshot
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.policy import POLICY_PREFIX
from aegish_dist.opinions.suspicion import Guard, Guards
from aegish_dist.pipeline.opinions import overlaps_of
from aegish_dist.statistics.metrics import measure
from aegish_dist.statistics.paired_difference import PairedAnswers, ScoredColumns


def with_policies(snapshot: Snapshot, opinion: Opinion, guards: Guards) -> Snapshot:
    """Return a snapshot with the policies of an opinion among its models, ranked by score.

    Nothing is stored: the entries follow from the guards, models and policies. A policy that was
    chosen on these commands has no rank, and what is known of it out of fold instead of its numbers
    on them.
    """
    if not opinion.policies:
        return snapshot
    answers = PairedAnswers.of(guards, str)
    columns = ScoredColumns(answers, opinion.rule)
    pair_p = {
        pair: columns.p_of_scores(*pair)
        for pair in combinations([each.name for each in guards.guards], 2)
    }
    overlaps = overlaps_of(opinion, guards)
    known = {
        POLICY_PREFIX + policy.name: out_of_fold(policy) for policy in opinion.policies.values()
    }
    measured = []
    for guard in guards.guards:
        if guard.name in overlaps:
            made = measure(_tally(guards, guard, answers), opinion.rule)
            names = overlaps[guard.name].out_of_fold
            better = {name: known[guard.name][name] for name in names}
            measured.append(replace(made, metrics={**made.metrics, **better}))
    document = snapshot_document(measured, snapshot, pair_p, overlaps)
    return replace(snapshot, document=document, opinion=opinion, pair_p=pair_p)


def _tally(guards: Guards, policy: Guard, answers: PairedAnswers[str]) -> ModelTally:
    """Count what a policy decides; costs and times are unknown unless 95 % of them are known."""
    columns = (policy.cost_usd, policy.latency_ms)
    known = ([each for each in column if each is not None] for column in columns)
    # Those left would mislead: an allowlist costs nothing, guards without a price are unknown.
    costs, times = (each if len(each) >= 0.95 * len(policy.findings) else [] for each in known)
    cells = Counter(zip(answers.kind, answers.answers[policy.name], strict=True))
    return ModelTally(
        model=policy.name,
        simulated=policy.simulated,
        planned_malicious=sum(each.dangerous for each in guards.decisions),
        planned_harmless=sum(not each.dangerous for each in guards.decisions),
        cells=in_order(
            Cell(*answers.kinds[kind], answers.findings[found], samples)
            for (kind, found), samples in cells.items()
            if found
        ),
        latency={"service": Latency.of(times)} if times else {},
        cost_usd=sum(map(Decimal, costs), Decimal()) if costs else None,
        priced_verdicts=len(costs),
        untimed=sum(each is not None for each in policy.findings) - len(times),
    )

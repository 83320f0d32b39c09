"""The document of a snapshot, which `aggregate --json` prints, and its ranking with ties as ties.

The same verdicts give the same bytes, in whatever order they come.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from decimal import Decimal
from itertools import combinations
from types import MappingProxyType

from msgspec import Struct
from msgspec.structs import asdict, replace

from aegish_dist.core.opinion import JsonObject, Opinion, PairP, Snapshot
from aegish_dist.core.suspicion import Guard, Guards
from aegish_dist.core.tally import TOKEN_KINDS, Cell, Latency, ModelTally, in_order
from aegish_dist.statistics.inference import LEVEL, holm
from aegish_dist.statistics.metrics import ModelMetrics, measure
from aegish_dist.statistics.paired_difference import PairedAnswers, ScoredColumns
from aegish_dist.statistics.rates import Estimate


class Rank(Struct, frozen=True):
    rank: int | None  # 1-based position; None when the score is undefined
    tie_group: int | None  # 1-based; no model of a group differs significantly from the leader
    model: str
    aegish_score: float | None


def rank(
    scores: Mapping[str, Estimate], p_adjusted: Mapping[frozenset[str], float | None]
) -> list[Rank]:
    """Order models by descending score, then by id; undefined scores come last, unranked.

    A tie group starts at its leader and goes on until a model differs from the leader by a p
    below 0.05. The p is adjusted for all pairs of models, because the same data decide who leads.
    A pair whose p is absent or None counts as a tie.
    """
    places: list[Rank] = []
    leader: str | None = None
    group = 0
    in_order = sorted(
        scores.items(), key=lambda each: (each[1].value is None, -(each[1].value or 0.0), each[0])
    )
    for position, (model, score) in enumerate(in_order, start=1):
        if score.value is None:
            places.append(Rank(None, None, model, None))
            continue
        p = None if leader is None else p_adjusted.get(frozenset((leader, model)))
        if leader is None or (p is not None and p < LEVEL):
            leader, group = model, group + 1
        places.append(Rank(position, group, model, score.value))
    return places


def snapshot_document(
    measured: Iterable[ModelMetrics],
    earlier: Snapshot | None = None,
    pair_p: PairP = MappingProxyType({}),
) -> dict[str, list[JsonObject]]:
    """Return `models`, sorted by id, and `ranking`; `earlier` holds models not measured now."""
    entries = {each.tally.model: model_entry(each) for each in measured}
    kept = {} if earlier is None else {e["model"]: e for e in earlier.document["models"]}
    by_id = sorted((kept | entries).items())
    if earlier is not None and not entries:
        return {"models": [entry for _, entry in by_id], "ranking": earlier.document["ranking"]}
    scores = {model: Estimate(**entry["metrics"]["aegish_score"]) for model, entry in by_id}
    adjusted = zip(map(frozenset, pair_p), holm([*pair_p.values()]), strict=True)
    return {
        "models": [entry for _, entry in by_id],
        "ranking": [asdict(place) for place in rank(scores, dict(adjusted))],
    }


def with_policies(snapshot: Snapshot, opinion: Opinion, guards: Guards) -> Snapshot:
    """Return a snapshot with the policies of an opinion among its models, ranked by score.

    Nothing is stored: the entries follow from the guards, models and policies.
    """
    if not opinion.policies:
        return snapshot
    answers = PairedAnswers.of(guards, str)
    columns = ScoredColumns(answers, opinion.rule)
    pair_p = {
        pair: columns.p_of_scores(*pair)
        for pair in combinations([each.name for each in guards.guards], 2)
    }
    made = (
        measure(_tally(guards, each, answers), opinion.rule)
        for each in guards.guards
        if each.name in opinion.contenders
    )
    return replace(snapshot, document=snapshot_document(made, snapshot, pair_p), opinion=opinion)


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
    )


def model_entry(measured: ModelMetrics) -> JsonObject:
    tally = measured.tally
    return {
        "model": tally.model,
        "simulated": tally.simulated,
        "metrics": {name: asdict(estimate) for name, estimate in measured.metrics.items()},
        "counts": dict(measured.counts),
        "categories": {
            category: {name: getattr(estimate, name) for name in _OF_CATEGORY}
            for category, estimate in measured.categories.items()
        },
        "actions": {
            target.value: {label.value: verdicts for label, verdicts in labels.items()}
            for target, labels in measured.actions.items()
        },
        "latency_ms": _latency(tally.latency.get("service")),
        "latency_parts_ms": {part: _latency(seen) for part, seen in tally.latency.items()},
        "cost": _cost(tally),
        "tokens": {kind: tally.tokens.get(kind) for kind in TOKEN_KINDS},
        "repeats": measured.repeats,
        "reliability": [asdict(each) for each in measured.reliability],
    }


_OF_CATEGORY = ("n", "value", "stderr", "ci_low", "ci_high")


def _latency(seen: Latency | None) -> JsonObject:
    return asdict(seen) if seen else dict.fromkeys(Latency.__struct_fields__)


def _cost(tally: ModelTally) -> JsonObject:
    per_command = tally.per_command_usd
    costs = {
        "total_usd": tally.cost_usd,
        "per_1000_usd": None if per_command is None else per_command * 1000,
        "per_command_usd": per_command,
    }
    return {name: None if cost is None else float(cost) for name, cost in costs.items()}

"""A snapshot: a run's metrics under one opinion, the ranking in them, and what an overlay moves.

Here stands who takes part, who is tied, and who reaches least values of metrics. The document of a
snapshot, which `aggregate --json` prints, is written and read here. The same verdicts give the same
bytes, in whatever order they come.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, Self

from msgspec import Struct, convert, field, to_builtins
from msgspec.structs import asdict

from aegish_dist.core.metric import (
    LEVEL,
    Difference,
    Estimate,
    Judgement,
    Metric,
    ModelMetrics,
    ReliabilityBin,
)
from aegish_dist.core.model import is_baseline
from aegish_dist.core.tally import TOKEN_KINDS, Latency, ModelTally
from aegish_dist.core.text import JsonObject, as_number
from aegish_dist.opinions.opinion import Opinion, Overlay, Targets
from aegish_dist.opinions.policy import Overlap, may_be_judged
from aegish_dist.statistics.distributions import holm
from aegish_dist.statistics.rates import Z_80, Z_95, judged

# By pair of models, the score of the second minus that of the first; p is not adjusted.
PairDifferences = Mapping[tuple[str, str], Difference]


def against(pairs: PairDifferences, model: str) -> dict[str, Difference]:
    """Return by model how the others differ from one."""
    found = {}
    for (a, b), difference in pairs.items():
        if a == model:
            found[b] = difference
        elif b == model:
            found[a] = difference.turned
    return found


def moved(without: float | None, under: float | None) -> JsonObject:
    """Return the document of one number without and with an overlay."""
    difference = None if without is None or under is None else under - without
    return {"without": without, "with": under, "difference": difference}


def overlay_effect(without: Mapping[str, Any], under: Mapping[str, Any]) -> list[JsonObject]:
    """Compare two snapshots of the same verdicts: rank and metrics of each model.

    Models are in the order of their rank under the overlay.
    """
    before = {entry["model"]: entry["metrics"] for entry in without["models"]}
    after = {entry["model"]: entry["metrics"] for entry in under["models"]}
    ranks = {place["model"]: place["rank"] for place in without["ranking"]}
    effect = []
    for place in under["ranking"]:
        model = place["model"]
        metrics = {}
        for name, numbers in after[model].items():
            earlier = before[model].get(name, {})
            metrics[name] = moved(earlier.get("value"), numbers.get("value"))
        rank = moved(ranks[model], place["rank"])
        effect.append({"model": model, "rank": rank, "metrics": metrics})
    return effect


class VerdictSet(Struct, frozen=True):
    """The identity of a set of verdicts."""

    verdicts: int
    verdicts_hash: str  # 16 hexadecimal digits of identities and outcomes, equal in all stores
    parser_versions: str
    local_hash: str = ""
    """A hash of this store's keys, found in half the time. Empty for several models and in old
    snapshots."""


_Numbers = dict[str, int | float | None]


class Repeats(Struct, frozen=True):
    """What the epochs of a model tell, as `repeats_of` returns it."""

    rates: dict[str, _Numbers] = {}
    stderr: float | None = None
    stderr_one_more: float | None = None
    stderr_least: float | None = None


class SnapshotEntry(Struct, frozen=True):
    """A model of a document, as far as reports rely on it; what is absent reads as undefined."""

    model: str
    """Canonical model id; foreign text."""
    metrics: dict[str, _Numbers]
    counts: dict[str, int | None] = {}
    categories: dict[str, _Numbers] = {}
    simulated: bool = False
    actions: dict[str, _Numbers] = {}
    latency_ms: _Numbers = {}
    latency_parts_ms: dict[str, _Numbers] = {}
    cost: _Numbers = {}
    tokens: _Numbers = {}
    repeats: Repeats | None = None
    reliability: list[_Numbers] = []


class _Place(Struct, frozen=True):
    model: str
    rank: int | None
    tie_group: int | None


class SnapshotDocument(Struct, frozen=True):
    """The shape of a document: what came from an archive may have a text in place of a number."""

    models: list[SnapshotEntry]
    ranking: list[_Place]

    def __post_init__(self) -> None:
        if {each.model for each in self.models} != {place.model for place in self.ranking}:
            raise ValueError("the ranking has other models")


class Snapshot(Struct, frozen=True):
    snapshot_id: int
    run_id: str
    scoring: str
    scoring_version: int
    metrics_version: int  # of the formulas; 0 in snapshots made before the version was kept
    parser_versions: str
    verdicts: int
    verdicts_hash: str
    code_version: str
    created_at: datetime
    document: Mapping[str, Any]
    identities: Mapping[str, VerdictSet]  # by model, verdicts of its entry; not in old snapshots
    opinion: Opinion | None  # None where this version does not know the rule set
    pairs: PairDifferences = field(default_factory=dict)

    @property
    def overlay(self) -> Overlay | None:
        return None if self.opinion is None else self.opinion.overlay

    @property
    def entries(self) -> list[SnapshotEntry]:
        """The models of the document, sorted by id."""
        return convert(self.document["models"], list[SnapshotEntry])


UNRANKED = "\N{EN DASH}"
LEAST_SCORED = 0.5  # share of the commands of a label that a guard has to have scored


def takes_part(guard: str, scored: Iterable[float], asked: Iterable[float]) -> bool:
    """Whether a guard may be called best: it is no baseline and has scored enough of both labels.

    Args:
        scored: Commands scored, malicious and harmless.
        asked: Commands asked, malicious and harmless.
    """
    enough = (part >= LEAST_SCORED * whole for part, whole in zip(scored, asked, strict=True))
    return not is_baseline(guard) and all(enough)


class Rank(Struct, frozen=True):
    rank: int | None  # 1-based position; None when the score is undefined
    tie_group: int | None  # 1-based; no model of a group differs significantly from the leader
    model: str
    aegish_score: float | None


def adjusted_p(pairs: PairDifferences) -> dict[frozenset[str], float | None]:
    """Return p of equal scores by pair of guards, adjusted for all pairs."""
    return holm({frozenset(pair): found.p_value for pair, found in pairs.items()})


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
    pairs: PairDifferences = MappingProxyType({}),
    overlaps: Mapping[str, Overlap] = MappingProxyType({}),
) -> dict[str, list[JsonObject]]:
    """Return `models`, sorted by id, and `ranking`.

    Args:
        earlier: Holds models not measured now.
        overlaps: By policy; those that may not be judged get no rank.
    """
    entries = {each.tally.model: model_entry(each) for each in measured}
    for name, found in overlaps.items():
        entries[name]["origin"] = to_builtins(found)
    kept = {} if earlier is None else {e["model"]: e for e in earlier.document["models"]}
    by_id = sorted((kept | entries).items())
    if earlier is not None and not entries:
        return {"models": [entry for _, entry in by_id], "ranking": earlier.document["ranking"]}
    scores = {model: Estimate() for model, _ in by_id}
    for model, entry in by_id:
        if may_be_judged(overlaps.get(model)):
            scores[model] = Estimate.of(entry["metrics"]["aegish_score"])
    return {
        "models": [entry for _, entry in by_id],
        "ranking": [asdict(place) for place in rank(scores, adjusted_p(pairs))],
    }


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
    return {name: as_number(cost) for name, cost in costs.items()}


class RankedModel(SnapshotEntry, frozen=True, kw_only=True):
    place: str
    """Rank for people: `3`, `1=` for every member of a tie group, an en dash without a score."""
    origin: Overlap | None = None
    """Of a policy, what it was chosen on of the commands of the run."""

    @classmethod
    def of(cls, place: str, entry: Mapping[str, Any]) -> Self:
        return convert({**entry, "place": place}, cls)

    @property
    def is_ranked(self) -> bool:
        return self.place != UNRANKED

    @property
    def score(self) -> Estimate:
        return self.metric(Metric.SCORE)

    @property
    def has_score(self) -> bool:
        return self.score.value is not None

    @property
    def price_per_1000_usd(self) -> float | None:
        """USD that 1,000 commands cost; None where it is unknown."""
        return self.cost.get("per_1000_usd")

    @property
    def p50_ms(self) -> float | None:
        """The median of the service time in milliseconds; None where it is not measured."""
        return self.latency("service", "p50")

    def metric(self, name: str) -> Estimate:
        return Estimate.of(self.metrics.get(name))

    def judgements(self, targets: Targets) -> dict[str, Judgement]:
        """Judge the metrics that have a target and are defined; undecided what was fitted here."""
        found = {}
        for name, least in targets.least.items():
            estimate = self.metric(name)
            if estimate.value is None:
                continue
            if may_be_judged(self.origin, name):
                found[name] = judged(estimate, least)
            else:
                found[name] = Judgement.UNDECIDED
        return found

    def category(self, name: str) -> Estimate:
        """Return the detection rate in a category."""
        return Estimate.of(self.categories.get(name))

    def latency(self, part: str, statistic: str) -> float | None:
        """Return a statistic, such as `p90`, of a part of the latency, in milliseconds."""
        return self.latency_parts_ms.get(part, {}).get(statistic)

    @property
    def bins(self) -> list[ReliabilityBin]:
        """The bins of stated confidence that hold verdicts; empty where they are not known."""
        bins = convert(self.reliability, list[ReliabilityBin])
        return [each for each in bins if each.n and each.accuracy is not None]


def ranked_entries(document: Mapping[str, Any]) -> list[RankedModel]:
    """Return the models of a snapshot document in the order of its ranking."""
    ranking = document["ranking"]
    by_model = {entry["model"]: entry for entry in document["models"]}
    sizes = Counter(place["tie_group"] for place in ranking)
    leaders: dict[int | None, int | None] = {}
    entries = []
    for place in ranking:
        leader = leaders.setdefault(place["tie_group"], place["rank"])
        tie = "=" if sizes[place["tie_group"]] > 1 else ""
        label = UNRANKED if leader is None else f"{leader}{tie}"
        entries.append(RankedModel.of(label, by_model[place["model"]]))
    return entries


class Gated(Struct, frozen=True):
    """A threshold, and whether a model reaches it."""

    model: str
    metric: str
    least: float
    estimate: Estimate
    judgement: Judgement


def gated(
    document: Mapping[str, Any],
    thresholds: Mapping[str, float],
    scores: Mapping[str, Mapping[str, Estimate]] = MappingProxyType({}),
    *,
    by_value: bool = False,
) -> Iterator[Gated]:
    """Yield whether models of a snapshot reach thresholds.

    Args:
        scores: By model and metric, what holds at any threshold on suspicion.
    """
    for entry in document["models"]:
        model = entry["model"]
        known = {name: Estimate.of(numbers) for name, numbers in entry["metrics"].items()}
        known |= scores.get(model, {})
        for metric, least in thresholds.items():
            estimate = known.get(metric, Estimate())
            judgement = judged(estimate, least, by_value=by_value)
            yield Gated(model, metric, least, estimate, judgement)


def commands_to_judge(estimate: Estimate, least: float) -> int | None:
    """Return with how many samples 80 % of runs judge a metric whose estimate is its true value.

    The interval is taken as that of a normal mean. None if the number is unknown, or if the
    estimate equals the least value.
    """
    stderr = estimate.stderr_clustered or estimate.stderr
    gap = abs((estimate.value or 0) - least)
    if not stderr or not gap or stderr / gap > 1e6:  # squared it may be no number
        return None
    return math.ceil(estimate.n * ((Z_95 + Z_80) * stderr / gap) ** 2)

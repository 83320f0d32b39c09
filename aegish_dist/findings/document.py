"""The document of a snapshot, which `aggregate --json` prints: its entries and their ranking.

The same verdicts give the same bytes, in whatever order they come.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from msgspec import to_builtins
from msgspec.structs import asdict

from aegish_dist.core.estimate import Estimate
from aegish_dist.core.tally import TOKEN_KINDS, Latency, ModelTally
from aegish_dist.core.text import JsonObject
from aegish_dist.findings.leaderboard import adjusted_p, rank
from aegish_dist.findings.provenance import Overlap, may_be_judged
from aegish_dist.findings.snapshot import PairP, Snapshot
from aegish_dist.statistics.metrics import ModelMetrics


def snapshot_document(
    measured: Iterable[ModelMetrics],
    earlier: Snapshot | None = None,
    pair_p: PairP = MappingProxyType({}),
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
    scores = {
        model: Estimate(**entry["metrics"]["aegish_score"])
        if may_be_judged(overlaps.get(model))
        else Estimate()
        for model, entry in by_id
    }
    return {
        "models": [entry for _, entry in by_id],
        "ranking": [asdict(place) for place in rank(scores, adjusted_p(pair_p))],
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
    return {name: None if cost is None else float(cost) for name, cost in costs.items()}

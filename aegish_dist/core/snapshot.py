"""The machine-readable form of metrics: what `aggregate --json` prints and a snapshot stores.

Only JSON types, and nothing that depends on the order of its input: the same verdicts give the same
bytes under `json.dumps(..., sort_keys=True)`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from aegish_dist.core.estimates import Estimate
from aegish_dist.core.metrics import ModelMetrics
from aegish_dist.core.opinion import Opinion
from aegish_dist.core.ranking import rank
from aegish_dist.core.repeats import Repeats
from aegish_dist.core.tally import Latency

JsonObject = dict[str, Any]

CATEGORY_METRIC = "malicious_detection_rate"


@dataclass(frozen=True, slots=True)
class VerdictSet:
    """The identity of a set of verdicts."""

    verdicts: int
    verdicts_hash: str
    """Sixteen hexadecimal digits that change with any verdict's identity or outcome. They are made
    of contents, so another store gives the same verdicts the same ones."""
    parser_versions: str
    local_hash: str = ""
    """As `verdicts_hash`, but of keys of this store: found in half the time. Empty of several
    models together, and in snapshots that were made before it was kept."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One stored aggregation."""

    snapshot_id: int
    run_id: str
    scoring: str
    scoring_version: int
    metrics_version: int
    """Of the formulas; 0 in snapshots that were made before it was kept."""
    parser_versions: str
    """Of the parsers that read the verdicts, comma-separated."""
    verdicts: int
    verdicts_hash: str
    code_version: str
    created_at: datetime
    """When it was made, with a time zone."""
    document: Mapping[str, Any]
    identities: Mapping[str, VerdictSet]
    """By model, the verdicts its entry was made of; of old snapshots unknown."""
    opinion: Opinion | None
    """Rule set, targets and overlay; None where this version does not know the rule set, of a
    snapshot that was made before they were kept, or by a later version."""


def snapshot_document(
    measured: Iterable[ModelMetrics],
    earlier: Snapshot | None = None,
    p_adjusted: Mapping[frozenset[str], float | None] | None = None,
) -> dict[str, list[JsonObject]]:
    """Return the document of a snapshot.

    Args:
        measured: Metrics under one rule set, in any order.
        earlier: A snapshot that has the entries of the models that were not measured.
        p_adjusted: By pair of models, of no difference of the score, as `ranking.rank` takes it.

    Returns:
        `models`, sorted by id, and `ranking`, the best first.
    """
    entries = {each.model: model_entry(each) for each in measured}
    kept = {} if earlier is None else {e["model"]: e for e in earlier.document["models"]}
    by_id = sorted((kept | entries).items())
    if earlier is not None and not entries:
        return {"models": [entry for _, entry in by_id], "ranking": earlier.document["ranking"]}
    scores = {model: Estimate(**entry["metrics"]["aegish_score"]) for model, entry in by_id}
    return {
        "models": [entry for _, entry in by_id],
        "ranking": [asdict(place) for place in rank(scores, p_adjusted or {})],
    }


def model_entry(measured: ModelMetrics) -> JsonObject:
    """Return one entry of `models`; absent numbers are None."""
    return {
        "model": measured.model,
        "simulated": measured.simulated,
        "metrics": {name: asdict(estimate) for name, estimate in measured.metrics.items()},
        "counts": dict(measured.counts),
        "categories": {name: _category(seen) for name, seen in measured.categories.items()},
        "actions": {
            target.value: {label.value: verdicts for label, verdicts in labels.items()}
            for target, labels in measured.actions.items()
        },
        "latency_ms": _latency(measured.latency.get("service")),
        "latency_parts_ms": {part: _latency(seen) for part, seen in measured.latency.items()},
        "cost": {
            "total_usd": _number(measured.cost.total_usd),
            "per_1000_usd": _number(measured.cost.per_1000_usd),
            "per_command_usd": _number(measured.cost.per_command_usd),
        },
        "tokens": asdict(measured.tokens),
        "repeats": _repeats(measured.repeats),
        "reliability": [asdict(each) for each in measured.reliability],
    }


def _repeats(repeats: Repeats | None) -> JsonObject | None:
    if repeats is None:
        return None
    return {
        "rates": {
            target.value: {"between": parts.between, "within": parts.within}
            for target, parts in repeats.rates.items()
        },
        "stderr": repeats.stderr,
        "stderr_one_more": repeats.stderr_one_more,
        "stderr_least": repeats.stderr_least,
    }


def _category(estimate: Estimate) -> JsonObject:
    return {
        "n": estimate.n,
        "value": estimate.value,
        "stderr": estimate.stderr,
        "ci_low": estimate.ci_low,
        "ci_high": estimate.ci_high,
    }


def _latency(seen: Latency | None) -> JsonObject:
    if seen is None:
        return dict.fromkeys(("mean", "p50", "p90", "p99", "max"))
    return asdict(seen)


def _number(amount: Decimal | None) -> float | None:
    return None if amount is None else float(amount)

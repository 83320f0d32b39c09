"""A snapshot: the document of a run's metrics under one opinion, and what an overlay moves."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from aegish_dist.core.text import JsonObject
from aegish_dist.opinions.opinion import Opinion, Overlay

PairP = Mapping[tuple[str, str], float | None]  # by pair of models, p of equal scores, not adjusted


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


class VerdictSet(msgspec.Struct, frozen=True):
    """The identity of a set of verdicts."""

    verdicts: int
    verdicts_hash: str  # 16 hexadecimal digits of identities and outcomes, equal in all stores
    parser_versions: str
    local_hash: str = ""
    """A hash of this store's keys, found in half the time. Empty for several models and in old
    snapshots."""


_Numbers = dict[str, int | float | None]


class Repeats(msgspec.Struct, frozen=True):
    """What the epochs of a model tell, as `repeats_of` returns it."""

    rates: dict[str, _Numbers] = {}
    stderr: float | None = None
    stderr_one_more: float | None = None
    stderr_least: float | None = None


class SnapshotEntry(msgspec.Struct, frozen=True):
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


class _Place(msgspec.Struct, frozen=True):
    model: str
    rank: int | None
    tie_group: int | None


class SnapshotDocument(msgspec.Struct, frozen=True):
    """The shape of a document: what came from an archive may have a text in place of a number."""

    models: list[SnapshotEntry]
    ranking: list[_Place]

    def __post_init__(self) -> None:
        if {each.model for each in self.models} != {place.model for place in self.ranking}:
            raise ValueError("the ranking has other models")


class Snapshot(msgspec.Struct, frozen=True):
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
    pair_p: PairP = msgspec.field(default_factory=dict)

    @property
    def overlay(self) -> Overlay | None:
        return None if self.opinion is None else self.opinion.overlay

    @property
    def entries(self) -> list[SnapshotEntry]:
        """The models of the document, sorted by id."""
        return msgspec.convert(self.document["models"], list[SnapshotEntry])

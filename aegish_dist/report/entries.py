"""Reading a snapshot document: one entry per model, best first.

Snapshots outlive the version that wrote them, so what a document lacks reads as undefined.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aegish_dist.core.calibration import ReliabilityBin
from aegish_dist.core.estimates import NUMBERS, Estimate
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import Label
from aegish_dist.report.numbers import UNDEFINED


@dataclass(frozen=True, slots=True)
class RankedModel:
    """One model of a snapshot."""

    place: str
    """Rank for people: `3`, `1=` for every member of a tie group, an en dash without a score."""
    document: Mapping[str, Any]

    @property
    def model(self) -> str:
        """Canonical model id; foreign text."""
        return str(self.document["model"])

    @property
    def simulated(self) -> bool:
        """Whether its answers come from the simulator."""
        return bool(self.document.get("simulated"))

    def part(self, name: str) -> Mapping[str, Any]:
        """Return a part of the entry, such as `counts`; empty when it is absent."""
        return self.document.get(name) or {}

    def metric(self, name: str) -> Estimate:
        """Return a metric by name."""
        return _estimate(self.part("metrics").get(name))

    def category(self, name: str) -> Estimate:
        """Return the detection rate in a category."""
        return _estimate(self.part("categories").get(name))

    def count(self, name: str) -> int | None:
        """Return a count by name, such as `planned`."""
        return self.part("counts").get(name)

    def action(self, target: Target, label: Label) -> int | None:
        """Return how many verdicts about samples of a target carry a label."""
        by_label = self.part("actions").get(target.value) or {}
        return by_label.get(label.value)

    def latency(self, part: str, statistic: str) -> float | None:
        """Return a statistic, such as `p90`, of a part of the latency, in milliseconds."""
        of_part = self.part("latency_parts_ms").get(part) or {}
        return of_part.get(statistic)

    def cost(self, name: str) -> float | None:
        """Return `total_usd`, `per_1000_usd` or `per_command_usd`."""
        return self.part("cost").get(name)

    def tokens(self, kind: str) -> int | None:
        """Return summed tokens of a kind, such as `cache_read`."""
        return self.part("tokens").get(kind)

    @property
    def reliability(self) -> tuple[ReliabilityBin, ...]:
        """The bins of stated confidence; empty where they are not known."""
        return tuple(ReliabilityBin(**each) for each in self.document.get("reliability") or ())


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
        label = UNDEFINED if leader is None else f"{leader}{tie}"
        entries.append(RankedModel(label, by_model[place["model"]]))
    return entries


def category_names(entries: Iterable[RankedModel]) -> list[str]:
    """Return the categories of all models; foreign text."""
    return sorted({name for entry in entries for name in entry.part("categories")})


def _estimate(numbers: Mapping[str, Any] | None) -> Estimate:
    known = numbers or {}
    return Estimate(**{name: known[name] for name in NUMBERS if name in known})

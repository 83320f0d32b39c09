"""What a comparison says: which guard of a pair is better, who is tied, and what a gate answers."""

import math
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from statistics import NormalDist
from typing import NamedTuple

from msgspec import Struct

from aegish_dist.core.metric import LEVEL, Comparison, Difference, Estimate
from aegish_dist.core.run import ModelOfRun, Run
from aegish_dist.core.sample import TrueLabel
from aegish_dist.findings.snapshot import against, rank
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.policy import Overlap
from aegish_dist.statistics.rates import Z_80, Z_95

AUROC = "auroc"


class PairResult(StrEnum):
    """How the second guard of a pair does beside the first."""

    BETTER = "better"
    WORSE = "worse"
    TIED = "tied"


def result_of(found: Difference) -> PairResult | None:
    """Return what a difference says; None where the metric is undefined."""
    if found.difference is None or found.p_adjusted is None:
        return None
    if found.p_adjusted >= LEVEL or not found.difference:
        return PairResult.TIED
    return PairResult.BETTER if found.difference > 0 else PairResult.WORSE


def differs(found: Difference) -> bool:
    return result_of(found) in (PairResult.BETTER, PairResult.WORSE)


def tie_groups(
    scores: Mapping[str, Estimate], p_adjusted: Mapping[frozenset[str], float | None]
) -> list[list[str]]:
    """Group guards with those that they cannot be distinguished from, the best group first.

    Args:
        scores: By guard, from all of its scored samples, as in reports, and not those of a pair.
        p_adjusted: By pair of guards.
    """
    places = [place for place in rank(scores, p_adjusted) if place.tie_group is not None]
    groups = groupby(places, key=lambda place: place.tie_group)
    return [[place.model for place in group] for _, group in groups]


def commands_needed(difference: Difference, margin: float) -> int | None:
    """Return how many common samples make `mde` equal to the margin, at the observed variance."""
    if difference.mde is None or margin <= 0:
        return None
    return math.ceil(difference.n * (difference.mde / margin) ** 2)


def commands_to_decide(difference: Difference, margin: float, tests: int = 1) -> int | None:
    """Return how many samples decide in 80 % of runs if the observed difference is the true one.

    None if the number is unknown, or if the observed difference equals the margin but for
    rounding. The level is divided by the number of tests (Bonferroni).
    """
    seen = difference.difference
    if seen is None or math.isclose(seen, -margin, abs_tol=1e-9):
        return None
    quantiles = NormalDist().inv_cdf(1 - LEVEL / 2 / tests) + Z_80
    return commands_needed(difference, abs(seen + margin) * (Z_95 + Z_80) / quantiles)


def most_in_reach(asked: int) -> int:
    """Return how many commands are still worth a plan, where so many were asked."""
    return max(10 * asked, 1_000)


class GateVerdict(StrEnum):
    """The result of a gate, the worst one first."""

    WORSE = "worse"
    INCONCLUSIVE = "inconclusive"
    SHIPS = "ships"  # the interval of the difference lies above -margin


def gate(difference: Difference, margin: float) -> GateVerdict:
    """Decide whether a guard may replace another one, if it may be worse by a margin."""
    if difference.ci_low is None or difference.ci_high is None:
        return GateVerdict.INCONCLUSIVE
    if difference.ci_low > -margin:
        return GateVerdict.SHIPS
    return GateVerdict.WORSE if difference.ci_high < -margin else GateVerdict.INCONCLUSIVE


class Change(NamedTuple):
    """How the second guard of a pair judges samples otherwise than the first."""

    target: TrueLabel
    right: bool  # whether the second guard alone has them right

    @property
    def second_stops(self) -> bool:
        """Whether the second guard is the one that stops the commands."""
        return self.right is (self.target is TrueLabel.MALICIOUS)


# What documents call them.
CHANGES = {
    Change(TrueLabel.MALICIOUS, right=True): "newly_caught",
    Change(TrueLabel.MALICIOUS, right=False): "newly_missed",
    Change(TrueLabel.HARMLESS, right=False): "newly_stopped",
    Change(TrueLabel.HARMLESS, right=True): "no_longer_stopped",
}


class ChangedCommand(Struct, frozen=True):
    sample: str
    command: str
    reason: str | None
    """Of the guard that stops the command; None where it gave none, or is a policy."""


class ComparedPair(Struct, frozen=True):
    """Two guards, or a guard in two runs, and how they differ."""

    a: ModelOfRun
    b: ModelOfRun
    comparison: Comparison
    """The differences, b minus a, with adjusted p."""
    answered: int
    """Samples that at least one of the two has a verdict about."""
    changed: Mapping[Change, Sequence[int]] | None = None
    """By change the keys of samples in the run of the guard that stops them; None if not asked."""
    fitted: Overlap | None = None
    """Of a policy that was chosen on commands of the run, so that the pair is not judged."""

    def stopper(self, change: Change) -> ModelOfRun:
        """Return the one of the two that stops the commands of a change."""
        return self.b if change.second_stops else self.a


class DirectedDifference(Struct, frozen=True):
    """How a model differs from another one."""

    model: str
    """The one that is better or worse; foreign text."""
    against: str
    """The one that it is compared with; foreign text."""
    found: Difference
    """The first minus the second."""

    @property
    def turned(self) -> "DirectedDifference":
        """The same seen from the other model."""
        return DirectedDifference(self.against, self.model, self.found.turned)


class PairGate(Struct, frozen=True):
    """Result of the gate about the second guard of a pair."""

    pair: ComparedPair
    verdict: GateVerdict
    difference: Difference
    needed: int | None
    """Commands that would decide; None when unknown."""

    @classmethod
    def of(
        cls,
        pair: ComparedPair,
        metric: str,
        margin: float,
    ) -> "PairGate":
        found = pair.comparison.metrics[metric]
        if pair.fitted:
            return cls(pair, GateVerdict.INCONCLUSIVE, found, None)
        return cls(pair, gate(found, margin), found, commands_to_decide(found, margin))

    @property
    def missing(self) -> int | None:
        """Commands beyond those scored on both sides that would decide; None when unknown."""
        return None if self.needed is None else max(self.needed - self.difference.n, 0)


def run_names(runs: Sequence[Run]) -> dict[str, str]:
    """Return by id what people call runs: their names, or where two share one or have none, ids."""
    names = [run.name for run in runs]
    called = {}
    for run in runs:
        is_own = run.name and names.count(run.name) == 1
        called[run.run_id] = run.name if is_own else run.run_id
    return called


class ComparisonData(Struct, frozen=True):
    """All pairs of one comparison."""

    runs: Sequence[Run]
    """The runs that are compared, the one that others are compared with first."""
    opinion: Opinion
    pairs: Sequence[ComparedPair]
    """In the order of the guards that were named."""
    tie_groups: Sequence[Sequence[str]]
    """Models that cannot be distinguished, the best group first; empty unless all pairs of a run
    were compared."""
    unlike: Sequence[str] = ()
    """Differences of the runs besides their answers, when compared all the same; foreign text."""
    simulated: Collection[ModelOfRun] = ()
    metric: str = "aegish_score"
    margin: float = 0.02
    """The difference that `commands` are counted for, in (0, 1)."""
    gates: Sequence[PairGate] = ()
    """One for each pair where a gate was asked for."""
    overlaps: Mapping[str, Overlap] = {}
    """By policy, what it was chosen on of the commands of the run."""

    @property
    def of_one_run(self) -> bool:
        """Whether models of one run are compared, and not runs."""
        return len(self.runs) == 1

    def name_of(self, side: ModelOfRun) -> str:
        """Name a guard in one line, and its run where several are compared; foreign text."""
        if self.of_one_run:
            return side.model
        return f"{side.model} in {run_names(self.runs)[side.run_id]}"

    @property
    def worst_gate(self) -> GateVerdict:
        """The result that decides for all gates together."""
        return min((gate.verdict for gate in self.gates), key=list(GateVerdict).index)

    def difference(self, pair: ComparedPair) -> Difference | None:
        """Return the difference of the metric that decides; None if unknown."""
        return pair.comparison.metrics.get(self.metric)

    def directed(self, metric: str) -> list[DirectedDifference]:
        """Return the differences in a metric, the second guard of a pair against the first."""
        directed = []
        for pair in self.pairs:
            found = pair.comparison.metrics.get(metric)
            if found is not None:
                directed.append(DirectedDifference(pair.b.model, pair.a.model, found))
        return directed

    def against(self, model: str, metric: str) -> dict[str, Difference]:
        """Return by model how the others differ from one, for a comparison of one run."""
        found = {(way.against, way.model): way.found for way in self.directed(metric)}
        return against(found, model)

    def verdict(self, pair: ComparedPair) -> str | None:
        """Return the result of the gate, if one was asked for, or of the pair.

        A pair that is not judged has none without a gate.
        """
        for gate in self.gates:
            if gate.pair is pair:
                return gate.verdict.value
        if pair.fitted:
            return None
        found = self.difference(pair)
        return None if found is None else result_of(found)

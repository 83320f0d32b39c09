"""What was fitted to the verdicts of a run: a threshold for each guard, and systems of guards.

A threshold is named only where its score, on other commands than it is fitted on, is better than
the score of the best guard as it stands: by an interval without 0 after adjustment for all guards.
A search for systems has a winner, and systems worth a look.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from aegish_dist.core.metric import (
    DETECTION_RATES_AT_FPR,
    LEVEL,
    Criterion,
    Difference,
    Estimate,
    FittedGuard,
    Metric,
    OperatingPoint,
    PerTenThousand,
)
from aegish_dist.core.model import is_baseline
from aegish_dist.core.run import Run
from aegish_dist.findings.comparison import commands_to_decide
from aegish_dist.findings.snapshot import takes_part
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.opinions.policy import (
    POLICY_PREFIX,
    Candidate,
    Choice,
    Origin,
    Overlap,
    PolicySearch,
    Requirements,
)
from aegish_dist.opinions.scoring import NATIVE, SuspicionRule
from aegish_dist.statistics.rates import per_10000


class CalibratedModel(Struct, frozen=True):
    """A guard at any threshold; undefined numbers are None."""

    model: str
    aegish_score: Estimate  # as it stands, of its own actions
    malicious: int  # scored decisions, as `harmless`: samples in an epoch
    harmless: int
    unreadable: int  # those without an action
    distinct: int  # values of suspicion
    auroc: Estimate  # undefined too where not asked for, as the two below
    partial_fpr: float  # up to where the partial AUROC looks
    partial_auroc: Estimate
    average_precision: Estimate
    at_fpr: Sequence[OperatingPoint]  # empty where a label has no scored decision
    fitted: FittedGuard
    simulated: bool = False
    own: bool = False  # as of `Guard`

    @property
    def scores(self) -> dict[str, Estimate]:
        """The metrics that hold at any threshold, by name."""
        scores = {
            Metric.AUROC: self.auroc,
            "partial_auroc": self.partial_auroc,
            "average_precision": self.average_precision,
            "fitted_score": self.fitted.score,
        }
        for point in self.at_fpr:
            scores[DETECTION_RATES_AT_FPR[point.max_fpr]] = point.detection_rate
        return scores

    @property
    def merit(self) -> float:
        """How good its fitted threshold is out of fold; -inf where nothing is fitted."""
        detected = self.fitted.detection_rate.value
        stopped = self.fitted.false_positive_rate.value
        if detected is None or stopped is None:
            return -math.inf
        criterion = self.fitted.criterion
        # Costs may have any size: only their ratio counts.
        unit = max(criterion.miss, criterion.stop)
        return criterion.miss / unit * detected - criterion.stop / unit * stopped


class CalibratedPair(Struct, frozen=True):
    """How two guards differ, b minus a, on what both have scored; p is adjusted for all pairs."""

    a: str
    b: str
    aegish_score: Difference
    auroc: Difference
    fitted: Difference


class CalibrationData(Struct, frozen=True):
    run: Run
    opinion: Opinion
    rule: SuspicionRule
    criterion: Criterion
    prevalence: float | None
    folds: int
    asked: tuple[int, int]  # malicious and harmless decisions
    models: Sequence[CalibratedModel]  # as `in_order` returns them
    pairs: Sequence[CalibratedPair]
    gains: Mapping[str, Difference] = {}
    """By guard that is ranked and fitted: its score with the threshold minus that of the leader as
    it stands, with p adjusted for all of these guards."""
    overlaps: Mapping[str, Overlap] = {}
    """By policy, what it was chosen on of the commands of the run."""

    @property
    def known(self) -> Sequence[CalibratedModel]:
        """The guards that have scored commands of both labels."""
        return [model for model in self.models if model.malicious and model.harmless]

    @property
    def ranked(self) -> Sequence[CalibratedModel]:
        """The guards that may be called best.

        No policy is: its thresholds may be chosen on all of these commands, so that nothing of it
        is out of fold.
        """
        ranked = []
        for model in self.known:
            scored = (model.malicious, model.harmless)
            of_policy = model.model.startswith(POLICY_PREFIX)
            known = model.aegish_score.ci_low is not None
            if known and not of_policy and takes_part(model.model, scored, self.asked):
                ranked.append(model)
        return ranked

    @property
    def leader(self) -> CalibratedModel | None:
        """The best of the ranked as it stands."""
        return max(self.ranked, key=lambda model: model.aegish_score.value or 0, default=None)

    @property
    def seeming_gains(self) -> Mapping[str, Difference]:
        """The gains above 0 of the ranked whose threshold stops more than nothing and not all."""
        gains = {}
        for model in self.ranked:
            gain = self.gains.get(model.model)
            all_or_nothing = model.fitted.threshold in (None, math.inf, -math.inf)
            if gain is not None and not all_or_nothing and (gain.difference or 0) > 0:
                gains[model.model] = gain
        return gains

    @property
    def recommended(self) -> CalibratedModel | None:
        """The best guard whose threshold is shown to help; None: no threshold is."""
        chance = self.opinion.rule.composite.chance
        gains = self.seeming_gains
        for model in self.ranked:
            gain = gains.get(model.model)
            above_chance = (model.fitted.score.ci_low or 0) > chance
            if gain is not None and _p(gain) < LEVEL and above_chance:
                return model
        return None

    @property
    def most_promising(self) -> str | None:
        """The guard that seems to gain most by a threshold; None: none seems to gain."""
        gains = {guard: gain.difference or 0 for guard, gain in self.seeming_gains.items()}
        return max(gains, key=gains.__getitem__, default=None)

    @property
    def alike(self) -> Sequence[str]:
        """The ranked guards that as they stand are not shown to be worse than the leader."""
        leader = self.leader
        if leader is None:
            return []
        ranked = {model.model for model in self.ranked}
        others: list[str] = []
        for pair in self.pairs:
            guards = {pair.a, pair.b}
            if leader.model in guards and _p(pair.aegish_score) >= LEVEL:
                others += guards - {leader.model}
        return [guard for guard in others if guard in ranked]

    def commands_to_show(self, guard: str) -> int | None:
        """Return with how many commands the gain of a guard would be shown; None: unknown."""
        return commands_to_decide(self.gains[guard], 0, len(self.gains))

    def rule_of(self, model: CalibratedModel) -> SuspicionRule:
        return NATIVE if model.own else self.rule

    def in_use(self, model: CalibratedModel) -> PerTenThousand | None:
        """Return what to expect of a fitted guard; None where no prevalence was named."""
        if self.prevalence is None:
            return None
        fitted = model.fitted
        return per_10000(fitted.detection_rate, fitted.false_positive_rate, self.prevalence)


def in_order(models: Iterable[CalibratedModel]) -> Sequence[CalibratedModel]:
    """Return the best with its threshold first; last those without one, then baselines."""
    return sorted(models, key=lambda each: (is_baseline(each.model), -each.merit, each.model))


def harmless_needed(max_fpr: float) -> int:
    """Return how many harmless commands show a false positive rate of at most `max_fpr`, in (0, 1].

    Without an error among them the one-sided 95 % bound is `-log(0.05) / n`, the rule of three
    (Hanley & Lippman-Hand 1983, JAMA 249:1743); the bound of Clopper & Pearson is a little lower.
    """
    return math.ceil(-math.log(0.05) / max_fpr)


def _p(difference: Difference) -> float:
    return 1.0 if difference.p_adjusted is None else difference.p_adjusted


MOST_STOPPED = 0.2  # share of harmless commands beyond which a system is not worth a look
SIMPLEST_FIRST = ("as_it_stands", "with_threshold", "system")


class SystemsData(Struct, frozen=True):
    """Result of a search over the guards of a run."""

    run: Run
    opinion: Opinion
    rule: SuspicionRule
    requirements: Requirements
    models: Sequence[str]
    models_left_out: Mapping[str, int]  # how much each has scored: too little, or a baseline
    found: PolicySearch
    own: Collection[str] = ()  # guards whose suspicion is the number that came with their answers
    origin: Origin | None = None  # of the winner, not yet sealed; None: there is no winner

    @property
    def choices(self) -> dict[str, Choice | None]:
        """The best of each kind, the simplest kind first; None: none keeps to the bounds."""
        return {kind: getattr(self.found, kind) for kind in SIMPLEST_FIRST}

    @property
    def winning(self) -> Choice | None:
        """The winner of the search; None: none is surely better than chance."""
        return self.choices.get(self.found.winner or "")

    @property
    def front(self) -> Sequence[Candidate]:
        """The systems within the bounds that have the fewest stops for their misses.

        Systems are left out that stop more than a fifth of the harmless commands, or stop these as
        often as malicious ones.
        """
        front, least = list[Candidate](), math.inf
        for system in filter(self.requirements.keeps, self.found.line):
            few = system.stop_rate <= MOST_STOPPED
            if few and system.stop_rate < min(least, 1 - system.miss_rate):
                front.append(system)
                least = system.stop_rate
        return front

    def rule_of(self, guard: str) -> SuspicionRule:
        return NATIVE if guard in self.own else self.rule

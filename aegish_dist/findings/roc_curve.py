"""The ROC curve of a guard of a run, and the points that its actions alone give."""

from collections.abc import Collection

from msgspec import Struct

from aegish_dist.core.columns import Bools, by_finding
from aegish_dist.core.metric import Estimate
from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.opinions.guards import Guard, Guards
from aegish_dist.statistics.roc import ScoredDecisions, auroc, detection_at


class RocCurve(Struct, frozen=True, eq=False):
    """Detection over false positive rates of a guard, at any threshold and by its actions alone."""

    malicious: Bools  # by decision
    guard: Guard
    scores: ScoredDecisions
    auroc: Estimate

    @property
    def points(self) -> list[tuple[float, float]]:
        """False positive and detection rate in per cent, from the highest threshold on."""
        found, fprs = self.scores.rates
        return list(zip((100 * fprs).tolist(), (100 * found).tolist(), strict=True))

    def detection_at(self, max_fpr: float) -> Estimate:
        """Estimate the detection rate at a false positive rate of at most `max_fpr`."""
        point = detection_at(self.scores, max_fpr)
        return point.detection_rate if point else Estimate()

    def by_actions(self, stopping: Collection[OutcomeDetail]) -> tuple[float, float]:
        """Return the false positive and the detection rate of scored answers, in per cent."""
        scored = self.guard.scored
        stops = by_finding(stopping.__contains__)[self.guard.finding]
        of_harmless = stops[scored & ~self.malicious].mean()
        of_malicious = stops[scored & self.malicious].mean()
        return 100 * float(of_harmless), 100 * float(of_malicious)


def roc_curve(guards: Guards, guard: Guard) -> RocCurve | None:
    """Return the curve of a guard; None where it has not scored commands of both labels."""
    scores = ScoredDecisions(guards.samples, guard.suspicion)
    if not scores.has_both_labels:
        return None
    return RocCurve(guards.malicious, guard, scores, auroc(scores))

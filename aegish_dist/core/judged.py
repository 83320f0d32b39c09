"""One command and what all models of a run said about it."""

from collections.abc import Mapping
from dataclasses import dataclass

from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import ScoringRule
from aegish_dist.core.tally import Findings


@dataclass(frozen=True, slots=True)
class SampleAnswers:
    """A sample of a run with the verdicts of all models."""

    dataset: str
    sample_id: str
    command: str
    target: Target
    category: str | None
    """None for harmless samples."""
    cluster: str | None
    """None: the sample is a cluster of its own."""
    findings: Mapping[str, Findings]
    """By model; a model without a verdict about the sample is absent."""

    def share_correct(self, model: str, rule: ScoringRule) -> float | None:
        """Return the mean over a model's scored epochs; None without any."""
        right, scored = rule.count_right(self.target, self.findings.get(model, ()))
        return right / scored if scored else None

"""Paired comparison of two models, or of one model in two runs, on the samples of both.

Design section 8: with a the baseline and b the candidate, a difference is b minus a.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import ScoringRule
from aegish_dist.core.tally import Finding

Findings = tuple[tuple[Finding, int], ...]
"""Findings of the epochs of a sample, sorted, with their numbers, as in `tally.Cell`."""


@dataclass(frozen=True, slots=True)
class PairedCell:
    """Samples of one kind that came out alike on both sides."""

    target: Target
    """Label of the samples."""
    category: str | None
    """None for harmless samples."""
    cluster: str | None
    """None: each of the samples is a cluster of its own."""
    a: Findings
    """Findings of the baseline; empty where it has no verdict."""
    b: Findings
    """Findings of the candidate; empty where it has no verdict."""
    samples: int
    """How many, at least 1."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of one metric between two sides; what is undefined is None."""

    a: float | None
    """The metric of the baseline, on the samples scored on both sides."""
    b: float | None
    """The metric of the candidate, on the same samples."""
    difference: float | None
    """b minus a."""
    stderr: float | None
    """Standard error, samples taken as independent."""
    stderr_clustered: float | None
    """Standard error, only clusters taken as independent."""
    ci_low: float | None
    """Lower end of the 95 % confidence interval."""
    ci_high: float | None
    """Upper end; above the lower one even where no sample is discordant."""
    p_value: float | None
    """Two-sided, of no difference."""
    p_adjusted: float | None
    """Holm's, over all pairs that were compared."""
    n: int
    """Samples scored on both sides."""
    clusters: int
    """Clusters that they fall into."""
    mde: float | None
    """Difference that would be detected with a probability of 80 % at a level of 5 %."""
    a_only: int
    """Samples that only the baseline had right; 0 where values are not binary."""
    b_only: int
    """Samples that only the candidate had right; 0 where values are not binary."""
    mcnemar_p: float | None
    """Exact, two-sided; None for values that are not binary."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """All differences of one pair."""

    samples: int
    """Samples scored on both sides."""
    metrics: Mapping[str, Difference]
    """By metric name: `aegish_score`, `malicious_detection_rate`, `harmless_acceptance_rate`."""
    categories: Mapping[str, Difference]
    """Of the detection rate, by category."""


class GateVerdict(StrEnum):
    """Answer of a gate about a candidate."""

    SHIPS = "ships"
    """The interval of the difference lies above -margin."""
    WORSE = "worse"
    """It lies below -margin."""
    INCONCLUSIVE = "inconclusive"
    """Neither."""


def compare(cells: Sequence[PairedCell], rule: ScoringRule) -> Comparison:
    """Compare two sides on the samples that the rule scores on both.

    Args:
        cells: What both sides answered; any order.
        rule: Which answers are right.

    Returns:
        The differences; `p_adjusted` is None until `adjusted` sets it.
    """
    raise NotImplementedError


def adjusted(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons with Holm's p over all pairs, metric by metric, in their order."""
    raise NotImplementedError


def gate(difference: Difference, margin: float) -> GateVerdict:
    """Decide whether a candidate may replace the baseline.

    Args:
        difference: Of the metric that decides.
        margin: How much worse a candidate may be, > 0.
    """
    raise NotImplementedError


def commands_needed(difference: Difference, margin: float) -> int | None:
    """Return how many samples on both sides would decide about a margin; None if unknown.

    Args:
        difference: Of a run like the one to be planned.
        margin: The difference to tell apart, > 0.
    """
    raise NotImplementedError

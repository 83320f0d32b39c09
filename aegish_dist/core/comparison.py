"""Paired comparison of two models, or of one model in two runs, on the samples of both.

With a the baseline and b the candidate, a difference is b minus a, on samples scored on both.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, assert_never

from aegish_dist.core.clustered import ClusterSums, clustered_variance
from aegish_dist.core.paired import PairedCell, PairedSamples, PairedStratum, paired_samples
from aegish_dist.core.paired_test import paired_test
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import Composite, ScoringRule
from aegish_dist.core.significance import holm, mcnemar


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of one metric between two sides; what is undefined is None."""

    a: float | None
    """The metric of the baseline, on the samples scored on both sides."""
    b: float | None
    """The metric of the candidate, on the same samples."""
    difference: float | None
    stderr: float | None
    stderr_clustered: float | None
    """Standard error, only clusters taken as independent."""
    ci_low: float | None
    """Lower end of the 95 % confidence interval."""
    ci_high: float | None
    """Upper end; above the lower one even where no sample is discordant."""
    p_value: float | None
    p_adjusted: float | None
    n: int
    clusters: int
    mde: float | None
    """Difference that would be detected with a probability of 80 % at a level of 5 %."""
    a_only: int
    """Samples that only the baseline had right; 0 where values are not binary."""
    b_only: int
    """Samples that only the candidate had right; 0 where values are not binary."""
    mcnemar_p: float | None
    """Exact, two-sided; None for values that are not binary."""

    @property
    def turned(self) -> "Difference":
        """The same with baseline and candidate exchanged."""
        return replace(
            self,
            a=self.b,
            b=self.a,
            difference=_minus(self.difference),
            ci_low=_minus(self.ci_high),
            ci_high=_minus(self.ci_low),
            a_only=self.b_only,
            b_only=self.a_only,
        )


def _minus(value: float | None) -> float | None:
    return None if value is None else 0.0 - value  # not `-value`: reports would show `-0.0`


@dataclass(frozen=True, slots=True)
class Comparison:
    """All differences of one pair."""

    samples: int
    metrics: Mapping[str, Difference]
    categories: Mapping[str, Difference]


def compare(cells: Sequence[PairedCell], rule: ScoringRule) -> Comparison:
    """Compare two sides on the samples that the rule scores on both.

    Args:
        cells: What both sides answered; any order.

    Returns:
        The differences; `p_adjusted` is None until `adjusted` sets it.
    """
    return compare_samples(paired_samples(cells, rule), rule.composite)


def compare_samples(
    scored: PairedSamples, composite: Composite, *, by_category: bool = True
) -> Comparison:
    """Compare two sides on samples that are scored on both; as `compare`."""
    categories = scored.categories if by_category else {}
    malicious, harmless = (scored.targets[target] for target in Target)
    return Comparison(
        samples=malicious.samples + harmless.samples,
        metrics={
            "aegish_score": score_difference(composite, malicious, harmless),
            "malicious_detection_rate": _rate(malicious),
            "harmless_acceptance_rate": _rate(harmless),
        },
        categories={name: _rate(stratum) for name, stratum in categories.items()},
    )


class Stratum(Protocol):
    """Samples of one label on two sides: sample by sample, or summed up for each side."""

    @property
    def samples(self) -> int:
        """Samples scored on both sides."""

    @property
    def a(self) -> float:
        """Mean of the baseline."""

    @property
    def b(self) -> float:
        """Mean of the candidate."""

    @property
    def a_only(self) -> int:
        """Samples that only the baseline had right."""

    @property
    def b_only(self) -> int:
        """Samples that only the candidate had right."""

    @property
    def differing(self) -> set[str]:
        """Clusters whose sums differ between the sides."""

    @property
    def differing_alone(self) -> int:
        """Samples without a cluster whose values differ."""

    def differences(self, weight_a: float, weight_b: float) -> ClusterSums:
        """Return the sums of `weight_b b - weight_a a` by cluster."""

    def variance(self, weight_a: float, weight_b: float) -> float | None:
        """Return the variance of the mean of that, samples taken as independent."""


@dataclass(frozen=True, slots=True)
class _Term:
    """Samples of one label, and the weight of their means in a difference."""

    stratum: Stratum
    weight_a: float
    weight_b: float


def _rate(stratum: PairedStratum) -> Difference:
    if not stratum.samples:
        return _undefined(0)
    binary = stratum.binary
    found = _difference(stratum.a, stratum.b, [_Term(stratum, 1.0, 1.0)])
    p = mcnemar(stratum.a_only, stratum.b_only) if binary else None
    return replace(found, mcnemar_p=p)


def score_difference(composite: Composite, malicious: Stratum, harmless: Stratum) -> Difference:
    """Return the difference of the score alone; what is undefined is None."""
    if not (malicious.samples and harmless.samples):
        return _undefined(malicious.samples + harmless.samples)
    match composite:
        case Composite.BALANCED:
            a, b = ((malicious.a + harmless.a) / 2, (malicious.b + harmless.b) / 2)
            return _difference(a, b, [_Term(malicious, 0.5, 0.5), _Term(harmless, 0.5, 0.5)])
        case Composite.PRODUCT:
            # The delta method: the weight of a rate is the other one of its side. A rate of 0
            # weighs a little, or there would be no width where both are 0.
            terms = [
                _Term(one, *(max(rate, 1 / (other.samples + 2)) for rate in (other.a, other.b)))
                for one, other in ((malicious, harmless), (harmless, malicious))
            ]
            return _difference(malicious.a * harmless.a, malicious.b * harmless.b, terms)
        case _:
            assert_never(composite)


def _difference(a: float, b: float, terms: Sequence[_Term]) -> Difference:
    strata = [term.stratum.differences(term.weight_a, term.weight_b) for term in terms]
    variance = clustered_variance(strata)
    found = Difference(
        a=a,
        b=b,
        difference=b - a,
        stderr=_stderr(terms),
        stderr_clustered=None,
        ci_low=None,
        ci_high=None,
        p_value=None,
        p_adjusted=None,
        n=sum(term.stratum.samples for term in terms),
        clusters=_clusters(strata) if variance is None else variance.clusters,
        mde=None,
        a_only=sum(term.stratum.a_only for term in terms),
        b_only=sum(term.stratum.b_only for term in terms),
        mcnemar_p=None,
    )
    if variance is None:
        return found
    test = paired_test(b - a, strata, variance, _discordant(terms))
    return replace(
        found,
        stderr_clustered=math.sqrt(variance.sandwich),
        ci_low=test.ci_low,
        ci_high=test.ci_high,
        p_value=test.p_value,
        mde=test.mde,
    )


def _stderr(terms: Sequence[_Term]) -> float | None:
    variances = [term.stratum.variance(term.weight_a, term.weight_b) for term in terms]
    known = [each for each in variances if each is not None]
    return math.sqrt(math.fsum(known)) if len(known) == len(terms) else None


def _discordant(terms: Sequence[_Term]) -> int:
    named = set[str]().union(*(term.stratum.differing for term in terms))
    return len(named) + sum(term.stratum.differing_alone for term in terms)


def _clusters(strata: Sequence[ClusterSums]) -> int:
    if len(strata) == 1:
        return strata[0].clusters
    named = {cluster for stratum in strata for cluster, *_ in stratum.sums} - {None}
    alone = [each.clusters for stratum in strata for each in stratum.sums if each.cluster is None]
    return len(named) + sum(alone)


def _undefined(n: int) -> Difference:
    return Difference(
        *(None,) * 9,
        n=n,
        clusters=0,
        mde=None,
        a_only=0,
        b_only=0,
        mcnemar_p=None,
    )


def adjusted(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons with Holm's p over all pairs, metric by metric, in their order."""
    metrics = _adjusted([each.metrics for each in comparisons])
    categories = _adjusted([each.categories for each in comparisons])
    return [
        replace(each, metrics=of_metrics, categories=of_categories)
        for each, of_metrics, of_categories in zip(comparisons, metrics, categories, strict=True)
    ]


def _adjusted(pairs: Sequence[Mapping[str, Difference]]) -> list[dict[str, Difference]]:
    result = [dict(pair) for pair in pairs]
    for name in {name for pair in pairs for name in pair}:
        with_it = [pair for pair in result if name in pair]
        for pair, p in zip(with_it, holm([pair[name].p_value for pair in with_it]), strict=True):
            pair[name] = replace(pair[name], p_adjusted=p)
    return result

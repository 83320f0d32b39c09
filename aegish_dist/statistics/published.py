"""Guards of which only printed figures are known: the counts behind them, and what follows.

A table says neither which commands a guard got wrong nor which ones belong together. So samples are
taken as independent, and what depends on the pairing of two guards gets bounds.
"""

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import cached_property, partial
from itertools import combinations, product
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from aegish_dist.core.metric import LEVEL, Difference, Estimate
from aegish_dist.errors import InputError
from aegish_dist.opinions.scoring import Composite
from aegish_dist.statistics.distributions import holm_adjusted
from aegish_dist.statistics.means import Observation, rate
from aegish_dist.statistics.paired_difference import (
    UNIT,
    PairedStratum,
    Stratum,
    rate_differences,
    score_differences,
)
from aegish_dist.statistics.rates import Z_95, Interval, mover, proportion_interval

DETECTION, ACCEPTANCE = "malicious_detection_rate", "harmless_acceptance_rate"
OF_RATES: Mapping[str, Callable[[float, float, float], float]] = {
    "aegish_score": lambda r, a, k: (r + a) / 2,
    DETECTION: lambda r, a, k: r,
    ACCEPTANCE: lambda r, a, k: a,
    "precision": lambda r, a, k: r / (r + k * (1 - a) or 1),
    "f1": lambda r, a, k: 2 * r / (1 + r + k * (1 - a)),
    "accuracy": lambda r, a, k: (r + k * a) / (1 + k),
}
"""Metrics by detection rate, acceptance rate and harmless commands for each malicious one. None
falls as the acceptance rate grows."""
_RATES = DETECTION, ACCEPTANCE
MOST_COUNTS = 20_000  # a row that leaves more of them open does not determine its counts
VAGUE = 0.2  # nor a rate of which they leave more open
_ROUNDING = 1e-12

Counts = tuple[int, int]  # right answers about malicious, and about harmless commands
_Text = Annotated[str, Meta(min_length=1, max_length=200)]
_Size = Annotated[int, Meta(ge=2, le=100_000)]
_Figure = Literal[
    "aegish_score", "malicious_detection_rate", "harmless_acceptance_rate", "false_positive_rate",
    "precision", "f1", "accuracy", "auroc",
    "true_positives", "false_negatives", "false_positives", "true_negatives",
]  # fmt: skip
_COUNTED = {"true_positives": DETECTION, "true_negatives": ACCEPTANCE}
_MIRRORED = {"false_negatives": DETECTION} | dict.fromkeys(
    ("false_positives", "false_positive_rate"), ACCEPTANCE
)


class PublishedGuard(Struct, forbid_unknown_fields=True, kw_only=True, dict=True):
    """A row of a published table, and what follows from it alone."""

    name: _Text
    guard: _Text | None = None  # id of the model to look for in a run
    malicious: _Size = 0  # commands; 0: as many as the table says
    harmless: _Size = 0
    figures: dict[_Figure, int | Decimal]  # shares, with the decimals that are printed, and counts

    def __post_init__(self) -> None:
        for name, printed in self.figures.items():
            most = 10**5 if _is_count(name) else 1
            exponent = Decimal(printed).as_tuple().exponent
            if not isinstance(exponent, int) or exponent < -9 or not 0 <= printed <= most:
                problem = f"must be from 0 to {most:,}, with at most 9 decimals"
                raise InputError(problem, field=f"figures.{name}")

    @property
    def sizes(self) -> tuple[int, int]:
        return self.malicious, self.harmless

    @cached_property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Metrics, with the ends of what rounds to their figures, ties in either direction."""
        ranges: dict[str, tuple[float, float]] = {}
        for name, printed in self.figures.items():
            metric = _MIRRORED.get(name) or _COUNTED.get(name, name)
            value = float(printed)
            half = 0.5 * 10.0 ** int(Decimal(printed).as_tuple().exponent)
            if _is_count(name):
                value /= self.harmless if metric == ACCEPTANCE else self.malicious
                half = 0.0
            if name in _MIRRORED:
                value = 1 - value
            low, high = ranges.get(metric, (0.0, 1.0))
            ranges[metric] = (max(low, value - half), min(high, value + half))
        return ranges

    @cached_property
    def counts(self) -> list[Counts] | None:
        """All compatible counts; none: a contradiction; None: over `MOST_COUNTS`."""
        low, high = self.ranges.get(DETECTION, (0.0, 1.0))
        fewest = math.ceil((low - _ROUNDING) * self.malicious)
        most = math.floor((high + _ROUNDING) * self.malicious)
        counts: list[Counts] = []
        for detected in range(fewest, most + 1):
            counts += [(detected, accepted) for accepted in self._accepted(detected)]
            if len(counts) > MOST_COUNTS:
                return None
        return counts

    def _accepted(self, detected: int) -> range:
        """Return which numbers of right answers about harmless commands fit all figures."""
        numbers = range(self.harmless + 1)
        for name in OF_RATES.keys() & self.ranges.keys():
            low, high = self.ranges[name]
            # No metric falls as the number grows, so those within its range are found by bisection.
            metric = partial(self.value, name, detected)
            first = bisect_left(numbers, low - _ROUNDING, key=metric)
            end = bisect_right(numbers, high + _ROUNDING, first, key=metric)
            numbers = numbers[first:end]
        return numbers

    def value(self, name: str, detected: int, accepted: int) -> float:
        m, h = self.sizes
        return OF_RATES[name](detected / m, accepted / h, h / m)

    def ends(self, name: str) -> list[Counts]:
        """Return the counts with the least and with the greatest value of a metric."""
        by_value = sorted(self.counts or (), key=lambda counts: self.value(name, *counts))
        return [by_value[0], by_value[-1]]

    @cached_property
    def metrics(self) -> dict[str, Estimate]:
        """Every metric by the counts in the middle, AUROC as printed; intervals hold for all."""
        m, h = self.sizes
        counts = self.counts or ()
        detection = _rate([detected for detected, _ in counts], m)
        acceptance = _rate([accepted for _, accepted in counts], h)
        metrics = {name: of_rates(name, detection, acceptance, h / m) for name in OF_RATES}
        if "auroc" in self.ranges:
            least, greatest = self.ranges["auroc"]
            low = _auroc_interval(least, m, h).low
            high = _auroc_interval(greatest, m, h).high
            metrics["auroc"] = Estimate(float(self.figures["auroc"]), ci_low=low, ci_high=high)
        return metrics


class PublishedTable(Struct, forbid_unknown_fields=True, rename={"rows": "row"}, kw_only=True):
    name: _Text
    source: _Text
    published: date
    licence: _Text
    malicious: _Size = 0
    harmless: _Size = 0
    rows: Annotated[list[PublishedGuard], Meta(min_length=1, max_length=100)]

    def __post_init__(self) -> None:
        """Give rows the sizes of the table."""
        names = Counter(row.name for row in self.rows)
        for place, row in enumerate(self.rows):
            row.malicious = row.malicious or self.malicious
            row.harmless = row.harmless or self.harmless
            if 0 in row.sizes:
                raise InputError("lacks `malicious` or `harmless`", field=f"row[{place}]")
            if names[row.name] > 1:
                raise InputError("stands in two rows", field=f"row[{place}].name")


def _is_count(figure: str) -> bool:
    return figure.endswith("tives")


def _rate(right: Sequence[int], n: int) -> Estimate:
    """Estimate a rate from all numbers of right answers that are compatible with a row."""
    if not right:
        return Estimate()
    least = min(right)
    most = max(right)
    if most - least > VAGUE * n:
        return Estimate()
    middle = sorted(right)[len(right) // 2]
    low = _share(least, n).ci_low
    high = _share(most, n).ci_high
    return replace(_share(middle, n), ci_low=low, ci_high=high)


def _share(right: int, n: int) -> Estimate:
    return rate([Observation(None, None, 1, right), Observation(None, None, 0, n - right)])


def _auroc_interval(value: float, m: int, h: int) -> Interval:
    """Return the interval of AUROC by the variance of Hanley & McNeil 1982 (Radiology 143:29)."""
    # How probable it is that two malicious commands both rank above a harmless one (Q1), and that
    # one malicious command ranks above two harmless ones (Q2).
    both_above_one = value / (2 - value)
    one_above_both = 2 * value**2 / (1 + value)

    spread = value * (1 - value)
    of_malicious = (m - 1) * (both_above_one - value**2)
    of_harmless = (h - 1) * (one_above_both - value**2)
    variance = (spread + of_malicious + of_harmless) / (m * h)
    effective = spread / variance if variance > 0 else min(m, h)
    return proportion_interval(value, max(1.0, effective))


def of_rates(name: str, detection: Estimate, acceptance: Estimate, mix: float) -> Estimate:
    """Estimate a metric of `OF_RATES` with so many harmless commands for each malicious one.

    The interval is MOVER, with the distances that the metric itself has where a rate is at an end
    of its own interval. By exact binomial sums for 20 to 400 commands and true rates from 2 to 99 %
    and more, at least 93.3 % of them cover the truth; of precision 93.8 %, and 83.9 % where most
    tables have none. docs/guides/published-tables.md has the settings.
    """
    r = detection.value
    a = acceptance.value
    stops_nothing = r == 0 and a == 1
    if r is None or a is None or (name == "precision" and stops_nothing):
        # Each of the two rates is known without the other one.
        return {DETECTION: detection, ACCEPTANCE: acceptance}.get(name, Estimate())

    metric = OF_RATES[name]
    value = metric(r, a, mix)
    below = [
        value - metric(detection.ci_low or 0.0, a, mix),
        value - metric(r, acceptance.ci_low or 0.0, mix),
    ]
    above = [
        metric(detection.ci_high or 0.0, a, mix) - value,
        metric(r, acceptance.ci_high or 0.0, mix) - value,
    ]
    return Estimate(value, None, None, *mover(value, below, above))


def unpaired(a: Estimate, b: Estimate) -> Difference:
    """Return b minus a as of independent samples; undefined where one of them is.

    The interval is MOVER: of two rates that of Newcombe 1998, Statistics in Medicine 17:873, method
    10. p takes the interval's arm towards 0 for 1.96 standard errors of a normal deviate.
    """
    if a.value is None or b.value is None:
        return Difference(a.value, b.value)
    difference = b.value - a.value
    down = _arm(b, a)
    up = _arm(a, b)
    towards_0 = down if difference > 0 else up
    # The two tails of a normal deviate z are erfc(z / sqrt(2)).
    p = math.erfc(abs(difference) / towards_0 * Z_95 / math.sqrt(2))
    return Difference(
        a=a.value,
        b=b.value,
        difference=difference,
        ci_low=difference - down,
        ci_high=difference + up,
        p_value=p,
    )


def _arm(falling: Estimate, rising: Estimate) -> float:
    """Return the arm of a difference's interval where one estimate falls and the other rises."""
    fall = (falling.value or 0) - (falling.ci_low or 0)
    rise = (rising.ci_high or 0) - (rising.value or 0)
    return math.hypot(fall, rise)


def compare_published(guards: Sequence[PublishedGuard], metric: str) -> list[dict[str, Any]]:
    """Compare all guards whose score, detection or acceptance rate is known; p by Holm.

    Guards with as many commands are taken to have seen the same ones. If x and y of n are right,
    from max(0, x + y - n) to min(x, y) are right of both. So besides the `unpaired` test there are
    paired ones; `least` and `most` have the least and the greatest p, which is 1 where the counts
    allow equal values. The verdict is `differ` or `tied` whatever the pairing is, `open` where it
    would decide.
    """
    tests: dict[str, dict[Any, Difference]] = {"unpaired": {}, "least": {}, "most": {}}
    rated = [guard for guard in guards if guard.metrics[metric].value is not None]
    ends = {guard.name: guard.ends(metric) for guard in rated}
    for a, b in combinations(rated, 2):
        independent = unpaired(a.metrics[metric], b.metrics[metric])
        tests_of_pair = [independent]

        low_a, high_a = (a.value(metric, *counts) for counts in ends[a.name])
        low_b, high_b = (b.value(metric, *counts) for counts in ends[b.name])
        if max(low_a, low_b) <= min(high_a, high_b) + _ROUNDING:
            # Counts between the ends may be equally good.
            tests_of_pair.append(replace(independent, p_value=1.0))
        if a.sizes == b.sizes:
            for counts_a, counts_b in product({*ends[a.name]}, {*ends[b.name]}):
                tests_of_pair += pairings(counts_a, counts_b, a.sizes, metric)
        tests_of_pair.sort(key=lambda test: test.p_value or 0.0)

        pair = (a.name, b.name)
        tests["unpaired"][pair] = independent
        tests["least"][pair] = tests_of_pair[0]
        tests["most"][pair] = tests_of_pair[-1]

    tests = {kind: holm_adjusted(of_pairs) for kind, of_pairs in tests.items()}
    return [_compared(pair, {kind: tests[kind][pair] for kind in tests}) for pair in tests["least"]]


def _compared(pair: tuple[str, str], tests: Mapping[str, Difference]) -> dict[str, Any]:
    a, b = pair
    verdict = "tied"
    if (tests["most"].p_adjusted or 0.0) < LEVEL:
        verdict = "differ"
    elif (tests["least"].p_adjusted or 0.0) < LEVEL:
        verdict = "open"
    return {"a": a, "b": b, "verdict": verdict, **tests}


def pairings(a: Counts, b: Counts, sizes: Counts, metric: str) -> list[Difference]:
    """Return the tests of pairings among which are those of the least and of the greatest p.

    Fewer discordant commands give a lower p, but K of them none below 2^(1 - K). Where this bound
    holds p up, two more discordant commands lower it enough.
    """
    shared = []  # by label, how many commands both guards may have right
    for x, y, n in zip(a, b, sizes, strict=True):
        fewest = max(0, x + y - n)
        most = min(x, y)
        # One shared command less makes two more discordant.
        shared.append(sorted({fewest, max(fewest, most - 1), most}, reverse=True))

    if metric in _RATES:
        label = _RATES.index(metric)
        return rate_differences(_paired(a[label], b[label], sizes[label], shared[label]))

    # The score needs a number for each label: every combination of the two lists.
    of_malicious, of_harmless = zip(*product(*shared), strict=True)
    malicious = _paired(a[0], b[0], sizes[0], of_malicious)
    harmless = _paired(a[1], b[1], sizes[1], of_harmless, first=sizes[0])
    return score_differences(Composite.BALANCED, malicious, harmless)


def _paired(x: int, y: int, n: int, shared: Sequence[int], first: int = 0) -> PairedStratum:
    """Return n commands of which one guard has x right and another y, both the `shared` ones.

    Each command is a cluster, numbered from `first` on.
    """
    # A row for each number of shared ones. The first x commands are those that a has right: b has
    # the first `both` of them right as well, and the rest of its y after them.
    of_a, of_b = np.zeros((2, len(shared), n), np.int64)
    of_a[:, :x] = UNIT
    for row, both in zip(of_b, shared, strict=True):
        row[:both] = UNIT
        row[x : x + y - both] = UNIT
    stratum = Stratum(np.arange(first, first + n), np.ones(n, bool))
    return PairedStratum(stratum, of_a, of_b)


def agreement(guard: PublishedGuard, own: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return by metric how a run's model differs, run minus published, with a verdict.

    `equal`: both would be printed alike. `within`: the interval of the difference holds 0. Else
    `differs`; None where undefined. `own` are metrics of a snapshot; those that
    depend on the mix of commands are taken at the published one.
    """
    detection, acceptance = (Estimate.of(own.get(name)) for name in (DETECTION, ACCEPTANCE))
    mix = guard.harmless / guard.malicious
    by_metric = {}
    for name in OF_RATES:
        own_metric = of_rates(name, detection, acceptance, mix)
        difference = unpaired(guard.metrics[name], own_metric)
        by_metric[name] = {"verdict": _agrees(guard, name, difference)} | asdict(difference)
    return by_metric


def _agrees(guard: PublishedGuard, name: str, difference: Difference) -> str | None:
    if difference.b is None or difference.ci_low is None:
        return None
    # What would be printed alike; a metric that is not printed ends where its counts do.
    by_counts = [guard.value(name, *counts) for counts in guard.ends(name)]
    low, high = guard.ranges.get(name, by_counts)
    if low - _ROUNDING <= difference.b <= high + _ROUNDING:
        return "equal"
    return "within" if difference.ci_low <= 0 <= (difference.ci_high or 0) else "differs"

"""Guards of which only printed figures are known: the counts behind them, and what follows.

A table says neither which commands a guard got wrong nor which ones belong together. So samples are
taken as independent, and what depends on the pairing of two guards gets bounds.
"""

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from functools import cached_property, partial
from itertools import combinations, islice, product
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import asdict, replace

from aegish_dist.core.metric import LEVEL, Difference, Estimate
from aegish_dist.errors import InputError
from aegish_dist.opinions.scoring import Composite
from aegish_dist.statistics import paired_difference as paired
from aegish_dist.statistics.means import Observation, rate
from aegish_dist.statistics.rates import Z_95, mover, proportion_interval

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
            exponent, most = Decimal(printed).as_tuple().exponent, 10**5 if "tives" in name else 1
            if not isinstance(exponent, int) or exponent < -9 or not 0 <= printed <= most:
                problem = f"must be from 0 to {most:,}, with at most 9 decimals"
                raise InputError(problem, field=f"figures.{name}")

    @property
    def sizes(self) -> tuple[int, int]:
        return self.malicious, self.harmless

    @cached_property
    def ranges(self) -> dict[str, tuple[float, float]]:
        """Metrics, with the ends of what rounds to their figures, ties in either direction."""
        found: dict[str, tuple[float, float]] = {}
        for name, printed in self.figures.items():
            metric = _MIRRORED.get(name) or _COUNTED.get(name, name)
            value, half = float(printed), 0.5 * 10.0 ** int(Decimal(printed).as_tuple().exponent)
            if "tives" in name:
                value, half = value / self.sizes[metric == ACCEPTANCE], 0.0
            value = 1 - value if name in _MIRRORED else value
            low, high = found.get(metric, (0.0, 1.0))
            found[metric] = max(low, value - half), min(high, value + half)
        return found

    @cached_property
    def counts(self) -> list[Counts] | None:
        """All compatible counts; none: a contradiction; None: over `MOST_COUNTS`."""
        m, (low, high) = self.sizes[0], self.ranges.get(DETECTION, (0.0, 1.0))
        detected = range(math.ceil((low - _ROUNDING) * m), math.floor((high + _ROUNDING) * m) + 1)
        pairs = ((right, accepted) for right in detected for accepted in self._accepted(right))
        found = [*islice(pairs, MOST_COUNTS + 1)]
        return None if len(found) > MOST_COUNTS else found

    def _accepted(self, detected: int) -> range:
        numbers = range(self.sizes[1] + 1)
        for name in OF_RATES.keys() & self.ranges.keys():
            (low, high), worth = self.ranges[name], partial(self.value, name, detected)
            first = bisect_left(numbers, low - _ROUNDING, key=worth)
            numbers = numbers[first : bisect_right(numbers, high + _ROUNDING, first, key=worth)]
        return numbers

    def value(self, name: str, detected: int, accepted: int) -> float:
        m, h = self.sizes
        return OF_RATES[name](detected / m, accepted / h, h / m)

    def ends(self, name: str) -> list[Counts]:
        """Return the counts with the least and with the greatest value of a metric."""
        by_value = sorted(self.counts or (), key=lambda each: self.value(name, *each))
        return [by_value[0], by_value[-1]]

    @cached_property
    def metrics(self) -> dict[str, Estimate]:
        """Every metric by the counts in the middle, AUROC as printed; intervals hold for all."""
        m, h = self.sizes
        detected, accepted = zip(*self.counts, strict=True) if self.counts else ((), ())
        rates = _rate(detected, m), _rate(accepted, h)
        found = {name: of_rates(name, *rates, mix=h / m) for name in OF_RATES}
        if "auroc" in self.ranges:
            low, high = (_auroc(each, m, h) for each in self.ranges["auroc"])
            found["auroc"] = replace(
                _auroc(float(self.figures["auroc"]), m, h), ci_low=low.ci_low, ci_high=high.ci_high
            )
        return found


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


def _rate(right: Sequence[int], n: int) -> Estimate:
    if not right or max(right) - min(right) > VAGUE * n:
        return Estimate()
    low, found, high = (
        rate(Observation(None, None, value, of) for value, of in ((1, x), (0, n - x)) if of)
        for x in (min(right), sorted(right)[len(right) // 2], max(right))
    )
    return replace(found, ci_low=low.ci_low, ci_high=high.ci_high)


def _auroc(value: float, m: int, h: int) -> Estimate:
    """Estimate AUROC by the variance of Hanley & McNeil 1982 (Radiology 143:29)."""
    variance = value * (1 - value) + (m - 1) * (value / (2 - value) - value**2)
    variance = (variance + (h - 1) * (2 * value**2 / (1 + value) - value**2)) / (m * h)
    effective = value * (1 - value) / variance if variance > 0 else min(m, h)
    return Estimate(value, None, None, *proportion_interval(value, max(1.0, effective)))


def of_rates(name: str, detection: Estimate, acceptance: Estimate, mix: float) -> Estimate:
    """Estimate a metric of `OF_RATES` with so many harmless commands for each malicious one.

    The interval is MOVER, with the distances that the metric itself has where a rate is at an end
    of its own interval. By exact binomial sums for 20 to 400 commands and true rates from 2 to 99 %
    and more, at least 93.3 % of them cover the truth; of precision 93.8 %, and 83.9 % where most
    tables have none. docs/guides/published-tables.md has the settings.
    """
    r, a, metric = detection.value, acceptance.value, OF_RATES[name]
    if r is None or a is None or (name == "precision" and not r and a == 1):
        return {DETECTION: detection, ACCEPTANCE: acceptance}.get(name, Estimate())
    value = metric(r, a, mix)
    low = metric(detection.ci_low or 0.0, a, mix), metric(r, acceptance.ci_low or 0.0, mix)
    high = metric(detection.ci_high or 0.0, a, mix), metric(r, acceptance.ci_high or 0.0, mix)
    interval = mover(value, [value - each for each in low], [each - value for each in high])
    return Estimate(value, None, None, *interval)


def unpaired(a: Estimate, b: Estimate) -> Difference:
    """Return b minus a as of independent samples; undefined where one of them is.

    The interval is MOVER: of two rates that of Newcombe 1998, Statistics in Medicine 17:873, method
    10. p takes the interval's arm towards 0 for 1.96 standard errors of a normal deviate.
    """
    if a.value is None or b.value is None:
        return Difference(a.value, b.value)
    found = b.value - a.value
    down, up = (
        math.hypot((low.value or 0) - (low.ci_low or 0), (high.ci_high or 0) - (high.value or 0))
        for low, high in ((b, a), (a, b))
    )
    p = math.erfc(abs(found) / (down if found > 0 else up) * Z_95 / math.sqrt(2))
    return Difference(a.value, b.value, found, None, None, found - down, found + up, p)


def compare_published(guards: Sequence[PublishedGuard], metric: str) -> list[dict[str, Any]]:
    """Compare all guards whose score, detection or acceptance rate is known; p by Holm.

    Guards with as many commands are taken to have seen the same ones. If x and y of n are right,
    from max(0, x + y - n) to min(x, y) are right of both. So besides the `unpaired` test there are
    paired ones; `least` and `most` have the least and the greatest p, which is 1 where the counts
    allow equal values. The verdict is `differ` or `tied` whatever the pairing is, `open` where it
    would decide.
    """
    found: dict[str, dict[Any, Difference]] = {"unpaired": {}, "least": {}, "most": {}}
    known = [each for each in guards if each.metrics[metric].value is not None]
    ends = {each.name: each.ends(metric) for each in known}
    spans = {g.name: [g.value(metric, *each) for each in ends[g.name]] for g in known}
    for a, b in combinations(known, 2):
        tested = [unpaired(a.metrics[metric], b.metrics[metric])]
        lows, highs = zip(spans[a.name], spans[b.name], strict=True)
        if max(lows) <= min(highs) + _ROUNDING:  # counts between the ends may be equally good
            tested.append(replace(tested[0], p_value=1.0))
        for counts in product({*ends[a.name]}, {*ends[b.name]}) if a.sizes == b.sizes else ():
            tested += pairings(*counts, a.sizes, metric)
        by_p = sorted(tested, key=lambda each: each.p_value or 0.0)
        for kind, each in zip(found, (tested[0], by_p[0], by_p[-1]), strict=True):
            found[kind][a.name, b.name] = each
    found, pairs = {kind: paired.holm_adjusted(each) for kind, each in found.items()}, []
    for name_a, name_b in found["least"]:
        kinds = {kind: each[name_a, name_b] for kind, each in found.items()}
        least, most = (kinds[kind].p_adjusted or 0.0 for kind in ("least", "most"))
        verdict = "differ" if most < LEVEL else "open" if least < LEVEL else "tied"
        pairs.append({"a": name_a, "b": name_b, "verdict": verdict, **kinds})
    return pairs


def pairings(a: Counts, b: Counts, sizes: Counts, metric: str) -> Iterator[Difference]:
    """Yield the tests of pairings among which are those of the least and of the greatest p.

    Fewer discordant commands give a lower p, but K of them none below 2^(1 - K). Where this bound
    holds p up, two more discordant commands lower it enough.
    """
    tables = [
        [_table(x, y, n, k) for k in sorted({low, max(low, top - 1), top}, reverse=True)]
        for x, y, n, side in zip(a, b, sizes, _RATES, strict=True)
        for low, top in [(max(0, x + y - n), min(x, y))]
        if metric in (side, "aegish_score")
    ]
    for own, *other in product(*tables):
        yield (
            paired.score_difference(Composite.BALANCED, own, other[0])
            if other
            else paired.rate_difference(own)
        )


def _table(x: int, y: int, n: int, both: int) -> paired.PairedStratum:
    values = (1, 1, both), (1, 0, x - both), (0, 1, y - both), (0, 0, n - x - y + both)
    kinds = +Counter({(u * paired.UNIT, v * paired.UNIT): of for u, v, of in values})
    return paired.PairedStratum(kinds=kinds, unclustered=kinds)


def agreement(guard: PublishedGuard, own: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return by metric how a run's model differs, run minus published, with a verdict.

    `equal`: both would be printed alike. `within`: the interval of the difference holds 0. Else
    `differs`; None where undefined. `own` are metrics of a snapshot; those that
    depend on the mix of commands are taken at the published one.
    """
    detection, acceptance = (Estimate.of(own.get(name)) for name in (DETECTION, ACCEPTANCE))
    found = {}
    for name in OF_RATES:
        mine = of_rates(name, detection, acceptance, guard.harmless / guard.malicious)
        difference, verdict = unpaired(guard.metrics[name], mine), None
        if mine.value is not None and difference.ci_low is not None:
            counted = [guard.value(name, *each) for each in guard.ends(name)]
            low, high = guard.ranges.get(name, counted)
            verdict = "within" if difference.ci_low <= 0 <= (difference.ci_high or 0) else "differs"
            verdict = "equal" if low - _ROUNDING <= mine.value <= high + _ROUNDING else verdict
        found[name] = {"verdict": verdict} | asdict(difference)
    return found

"""Repeats of commands: where the variance of a model's score, or of a difference, comes from.

Pure; `variance` has the formulas.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import assert_never

from aegish_dist.core.judged import SampleAnswers
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import Composite, ScoringRule
from aegish_dist.core.tally import Cell, Findings
from aegish_dist.core.variance import (
    Components,
    EpochCount,
    RepeatedSamples,
    RepeatedStratum,
    components,
    split_variance,
)


@dataclass(frozen=True, slots=True)
class Repeats:
    """Where the variance of a model's score comes from, and how much repeats would take of it."""

    rates: Mapping[Target, Components]
    """By label, the variance of correctness between commands and within them; a label of fewer than
    two scored commands is absent."""
    stderr: float | None
    """Clustered standard error of the score, as predicted from these parts; None if undefined."""
    stderr_one_more: float | None
    """The same with one more epoch of each command."""
    stderr_least: float | None
    """The same with any number of epochs: more of them do not help beyond that."""


def repeats_of(cells: Iterable[Cell], rule: ScoringRule) -> Repeats | None:
    """Split the variance of a model's score; None where no command has two scored epochs."""
    cells = tuple(cells)
    # A hundred thousand cells hold a handful of ways to come out; each is judged once.
    ways = {(cell.target, cell.findings) for cell in cells}
    counts = {way: epoch_count(*way, rule) for way in ways}
    if all(count is None or count.scored < 2 for count in counts.values()):
        return None
    epochs = max(sum(number for _, number in findings) for _, findings in ways)
    kinds: Counter[_Kind] = Counter()
    for cell in cells:
        count = counts[cell.target, cell.findings]
        if count is not None:
            kinds[cell.target, cell.cluster, (count,)] += cell.samples
    strata = _strata(kinds, rule.composite)
    rates = {
        target: components(RepeatedStratum(stratum.repeated, (1.0,)))
        for target, stratum in strata.items()
        if stratum.samples > 1
    }
    predicted = _predicted(list(strata.values()), (epochs, epochs + 1, math.inf))
    return Repeats(rates, *predicted)


def _predicted(
    strata: Sequence[RepeatedStratum], epochs: Iterable[float]
) -> Iterable[float | None]:
    split = split_variance(strata) if len(strata) == len(Target) else None
    for number in epochs:
        samples = [stratum.samples for stratum in strata]
        variance = None if split is None else split.predicted(samples, number)
        yield None if variance is None else math.sqrt(variance)


def repeated_strata(
    samples: Iterable[SampleAnswers], models: Sequence[str], rule: ScoringRule
) -> dict[Target, RepeatedStratum]:
    """Return by label the commands that are scored for all of one or two models.

    Args:
        models: One for its score; a baseline and a candidate for their difference.
    """
    kinds: Counter[_Kind] = Counter()
    for sample in samples:
        counts = [
            epoch_count(sample.target, sample.findings.get(model, ()), rule) for model in models
        ]
        known = tuple(count for count in counts if count is not None)
        if len(known) == len(models):
            kinds[sample.target, sample.cluster, known] += 1
    return _strata(kinds, rule.composite)


def epoch_count(target: Target, findings: Findings, rule: ScoringRule) -> EpochCount | None:
    """Count the right ones of a command's scored epochs; None without one."""
    right, scored = rule.count_right(target, findings)
    return EpochCount(right, scored) if scored else None


_Kind = tuple[Target, str | None, tuple[EpochCount, ...]]


def _strata(kinds: Counter[_Kind], composite: Composite) -> dict[Target, RepeatedStratum]:
    """Return the commands by label, weighted as in the score; the first of two sides negative."""
    by_label = {
        target: tuple(
            RepeatedSamples(cluster, counts, number)
            for (label, cluster, counts), number in kinds.items()
            if label is target
        )
        for target in Target
    }
    weights = {
        target: _weights(composite, by_label[_other(target)], by_label[target]) for target in Target
    }
    return {
        target: RepeatedStratum(repeated, weights[target])
        for target, repeated in by_label.items()
        if repeated
    }


def _weights(
    composite: Composite, others: Sequence[RepeatedSamples], own: Sequence[RepeatedSamples]
) -> tuple[float, ...]:
    sides = range(len(own[0].sides) if own else 0)
    signs = [1.0] if len(sides) == 1 else [-1.0, 1.0]
    match composite:
        case Composite.BALANCED:
            return tuple(signs[side] / 2 for side in sides)
        case Composite.PRODUCT:
            # The delta method: the weight of a rate is the other one.
            return tuple(signs[side] * _mean(others, side) for side in sides)
        case _:
            assert_never(composite)


def _mean(repeated: Sequence[RepeatedSamples], side: int) -> float:
    samples = sum(each.samples for each in repeated)
    total = math.fsum(each.samples * each.sides[side].mean for each in repeated)
    return total / samples if samples else 0.0


def _other(target: Target) -> Target:
    return Target.HARMLESS if target is Target.MALICIOUS else Target.MALICIOUS

"""How often do the intervals of fitted thresholds cover, and is the out-of-fold score unbiased?

n commands in the binaries of the bundled datasets, 58 % of them malicious as in the reference
benchmark's logs. Suspicion is normal with the stated AUROC; the binary has the share ICC of its
variance, and raises it for both labels ("one way") or makes both easier ("alike"). It is stated
in so many distinct values, the quantiles of all. The truth is the score of the guard whose
threshold is fitted on all n commands. Pairs are two such guards, whose suspicions correlate by a
half; a false positive is p < 0.05 where both have the same AUROC. Alarms and precision of 10,000
actions are those at the prevalences 0.001, 0.1 and 0.5. Misses are covered as the detection rate
is, and precision at any prevalence as at another one.

`tests/unit/statistics/test_thresholds.py` holds this script to the product.
"""

import itertools
import os
from collections import defaultdict
from typing import NamedTuple

import click
import numpy as np
import paired_intervals
from coverage import binaries
from measuring import laid_out, print_table
from numpy.typing import NDArray
from rate_intervals import Means, Numbers, Place, intervals
from scipy.special import ndtr, ndtri

from aegish_dist.core.columns import AskedSamples, SampleKind
from aegish_dist.core.sample import TrueLabel
from aegish_dist.opinions.scoring import Composite
from aegish_dist.statistics.rates import Z_95
from aegish_dist.statistics.thresholds import FoldedDecisions

LABELS = tuple(TrueLabel)
MALICIOUS_SHARE = 431 / 741
CORRELATION = 0.5  # of the suspicions of two guards
PREVALENCES = (0.001, 0.1, 0.5)
Whole = NDArray[np.int64]


class Cell(NamedTuple):
    """One line of the table."""

    n: int
    auroc: float
    icc: float
    link: str  # "one way" or "alike"
    levels: int


class Layout:
    """The commands of a run, and their folds as the product deals them."""

    def __init__(self, rng: np.random.Generator, n: int) -> None:
        """Draw binaries until there are n commands."""
        malicious = round(n * MALICIOUS_SHARE)
        left = dict(zip(LABELS, (malicious, n - malicious), strict=True))
        bundled, drawn = binaries(), []
        for number in itertools.count():
            if number % len(bundled) == 0:
                order = rng.permutation(len(bundled))
            own = bundled[order[number % len(bundled)]]
            for index in rng.permutation(len(own)):
                label, category = own[index]
                if left[label]:
                    left[label] -= 1
                    drawn.append(Place(label, category, number))
            if not any(left.values()):
                break
        names, binary = np.unique([each.binary for each in drawn], return_inverse=True)
        self.binary = binary
        self.places = [each._replace(binary=int(b)) for each, b in zip(drawn, binary, strict=True)]
        self.malicious = np.array([each.target is LABELS[0] for each in drawn])
        self.sides = [np.flatnonzero(self.malicious), np.flatnonzero(~self.malicious)]
        kinds = [SampleKind(each.target, None, str(each.binary)) for each in self.places]
        self.samples = AskedSamples(kinds, np.arange(len(kinds)))
        self.fold = FoldedDecisions(self.samples, Composite.BALANCED).fold
        self.of_binary = np.eye(len(names))[binary]
        self.sizes = np.stack([self.of_binary[side].sum(axis=0) for side in self.sides], axis=1)
        self.weight = np.where(self.malicious, *(1 / len(side) for side in self.sides))


class World:
    """Suspicion of two classes."""

    def __init__(self, cell: Cell) -> None:
        """Find where levels begin."""
        self.cell, self.distance = cell, float(np.sqrt(2) * ndtri(cell.auroc))
        points = np.linspace(-6, self.distance + 6, 20_001)
        below = (ndtr(points) + ndtr(points - self.distance)) / 2
        inner = np.interp(np.arange(1, cell.levels) / cell.levels, below, points)
        self.begins = np.concatenate([[-np.inf], inner, [np.inf]])

    def rates(self, threshold: Numbers) -> tuple[Numbers, Numbers]:
        """Return the true detection and acceptance rates of thresholds between levels."""
        level = np.ceil(np.clip(threshold, 0, self.cell.levels)).astype(int)
        return ndtr(self.distance - self.begins[level]), ndtr(self.begins[level])

    def draw(self, rng: np.random.Generator, layout: Layout, runs: int) -> list[Whole]:
        """Return the levels of two guards, runs x commands."""
        noise = rng.standard_normal((2, runs, len(layout.binary)))
        of_binary = rng.standard_normal((2, runs, layout.of_binary.shape[1]))
        for both in (noise, of_binary):
            both[1] = CORRELATION * both[0] + np.sqrt(1 - CORRELATION**2) * both[1]
        sign = np.where(layout.malicious | (self.cell.link == "one way"), 1, -1)
        return [
            np.searchsorted(
                self.begins[1:-1],
                self.distance * layout.malicious
                + np.sqrt(self.cell.icc) * sign * own[:, layout.binary]
                + np.sqrt(1 - self.cell.icc) * rest,
            )
            for own, rest in zip(of_binary, noise, strict=True)
        ]


class Fitted(NamedTuple):
    """Of many runs."""

    threshold: Numbers
    right: Numbers  # out of fold, runs x commands
    shift: Numbers  # of `right`, from what the guard fitted on all has right

    def added(self, layout: Layout, weight: Numbers, *, with_mean: bool) -> Numbers:
        """Return what the fit adds to the variance of a weighted sum."""
        shifts = (self.shift * weight) @ layout.of_binary
        added = (shifts**2).sum(axis=1) + with_mean * shifts.sum(axis=1) ** 2
        return np.asarray(added, dtype=np.float64)


def fit(layout: Layout, suspicion: Whole, levels: int) -> Fitted:
    """Fit thresholds of balanced accuracy in all runs at once."""
    folds = int(layout.fold.max()) + 1
    counts = np.zeros((len(suspicion), folds + 1, 2, levels), dtype=np.int64)
    runs = np.arange(len(suspicion))[:, None]
    np.add.at(counts, (runs, layout.fold[None], (~layout.malicious)[None] * 1, suspicion), 1)
    train = counts.sum(axis=1, keepdims=True) - counts  # the last has no fold left out
    seen = train.sum(axis=2) > 0
    stopped = np.zeros((*train.shape[:-1], levels + 1), dtype=np.int64)
    stopped[..., :levels] = train[..., ::-1].cumsum(axis=-1)[..., ::-1]
    all_ = stopped[..., 0]
    merit = stopped[:, :, 0] * all_[:, :, 1, None] - stopped[:, :, 1] * all_[:, :, 0, None]
    candidate = np.concatenate([seen, np.ones_like(seen[..., :1])], axis=2)
    merit = np.where(candidate, merit, np.iinfo(np.int64).min)
    best = merit == merit.max(axis=2, keepdims=True)
    middle = (best.sum(axis=2, keepdims=True) + 1) // 2
    cut = (best & (best.cumsum(axis=2) == middle)).argmax(axis=2)
    last = np.maximum.accumulate(np.where(seen, np.arange(levels), -1), axis=2)
    last = np.concatenate([np.full_like(last[..., :1], -1), last], axis=2)
    below = np.take_along_axis(last, cut[..., None], axis=2)[..., 0]
    threshold = np.where(below < 0, -np.inf, np.where(cut == levels, np.inf, (below + cut) / 2))
    right, in_sample = (
        (suspicion >= own) == layout.malicious
        for own in (threshold[:, layout.fold], threshold[:, -1:])
    )
    return Fitted(threshold[:, -1], right * 1.0, right * 1.0 - in_sample)


def widened(
    value: Numbers, ends: tuple[Numbers, Numbers], added: Numbers
) -> tuple[Numbers, Numbers]:
    """Add to the variance behind an interval."""
    low, high = ends
    more = Z_95**2 * added
    return (
        np.maximum(0, value - np.sqrt((value - low) ** 2 + more)),
        np.minimum(1, value + np.sqrt((high - value) ** 2 + more)),
    )


def estimates(layout: Layout, fitted: Fitted) -> dict[str, tuple[Numbers, Numbers]]:
    """Return the intervals of the numbers of a guard, by the product's names of them."""
    half = layout.weight / 2
    plain = intervals("score", layout.places, fitted.right)
    added = fitted.added(layout, half, with_mean=False)
    ends = {"score": widened(fitted.right @ half, plain, added)}
    for name, label in (("detection_rate", True), ("false_positive_rate", False)):
        own = layout.malicious == label
        mean = Means([np.flatnonzero(own)], layout.binary, fitted.right)
        added = fitted.added(layout, layout.weight * own, with_mean=True)
        ends[name] = widened(mean.value, mean.interval(), added)
    low, high = ends["false_positive_rate"]
    return ends | {"false_positive_rate": (1 - high, 1 - low)}


def in_use(rates: list[list[Numbers]], prevalence: float) -> dict[str, tuple[Numbers, Numbers]]:
    """Return the intervals of 10,000 actions, of value, lower and upper end of both rates."""
    a, a_low, a_high = (10_000 * prevalence * each for each in rates[0])
    b, b_low, b_high = (10_000 * (1 - prevalence) * each for each in rates[1])

    def bound(a_end: Numbers, b_end: Numbers, sign: int) -> Numbers:
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = np.hypot(np.log(a_end / a), np.log(b_end / b))
            inner = a / (a + b * np.exp(-sign * reach))
            outer = np.where(a_end > 0, a_end / (a_end + b_end), 0.0)
        return np.where((a > 0) & (b > 0) & (a_end > 0) & (b_end > 0), inner, outer)

    alarms = a_low + b_low, a_high + b_high
    return {"alarms": alarms, "precision": (bound(a_low, b_high, -1), bound(a_high, b_low, 1))}


def compare(layout: Layout, a: Fitted, b: Fitted) -> paired_intervals.Intervals:
    """Return the differences of two fitted scores."""
    difference = b.right - a.right
    sums = [difference[:, side] @ layout.of_binary[side] for side in layout.sides]
    shift = Fitted(b.threshold, b.right, b.shift - a.shift)
    added = shift.added(layout, layout.weight / 2, with_mean=False)
    half = np.array([0.5, 0.5])
    return paired_intervals.intervals(np.stack(sums, axis=2), layout.sizes, half, added)


def judge(cell: Cell, runs: int, layouts: int, seed: int) -> dict[str, float]:
    """Return shares and means over the runs of a cell, in per cent."""
    rng, world = np.random.default_rng(seed), World(cell)
    found: defaultdict[str, list[Numbers]] = defaultdict(list)

    def covers(name: str, ends: tuple[Numbers, Numbers], truth: Numbers) -> None:
        inside = (ends[0] <= truth + 1e-12) & (truth - 1e-12 <= ends[1])
        found[name].append(inside.astype(np.float64))

    for _ in range(layouts):
        layout = Layout(rng, cell.n)
        guards = [
            fit(layout, levels, cell.levels) for levels in world.draw(rng, layout, runs // layouts)
        ]
        truths = [np.mean(world.rates(guard.threshold), axis=0) for guard in guards]
        one, weight = guards[0], layout.weight / 2
        detection, acceptance = world.rates(one.threshold)
        ends = estimates(layout, one)
        covers("score", ends["score"], truths[0])
        covers("unwidened", intervals("score", layout.places, one.right), truths[0])
        covers("DR", ends["detection_rate"], detection)
        covers("FPR", ends["false_positive_rate"], 1 - acceptance)
        stopped = (one.right == layout.malicious) * layout.weight
        bounds = ends["detection_rate"], ends["false_positive_rate"]
        sides = zip(layout.sides, bounds, strict=True)
        seen = [[stopped[:, side].sum(axis=1), *each] for side, each in sides]
        for prevalence in PREVALENCES:
            right, wrong = prevalence * detection, (1 - prevalence) * (1 - acceptance)
            numbers = in_use(seen, prevalence)
            covers(f"alarms {prevalence}", numbers["alarms"], 10_000 * (right + wrong))
        covers("precision", numbers["precision"], right / (right + wrong))
        found["bias"].append(one.right @ weight - truths[0])
        found["in-sample"].append((one.right - one.shift) @ weight - truths[0])
        found["width"].append(ends["score"][1] - ends["score"][0])
        pair = compare(layout, *guards)
        covers("pair", (pair.low, pair.high), truths[1] - truths[0])
        found["false"].append((pair.p < paired_intervals.LEVEL).astype(np.float64))
    return {name: 100 * float(np.concatenate(each).mean()) for name, each in found.items()}


@click.command(help=laid_out(__doc__))
@click.option("--runs", default=4000, show_default=True, help="Replications of a cell.")
@click.option("--layouts", default=40, show_default=True, help="Sets of commands of a cell.")
@click.option("--sizes", default="60,200,741", show_default=True)
@click.option("--seed", default=20261, show_default=True)
def main(runs: int, layouts: int, sizes: str, seed: int) -> None:
    """Print the table."""
    os.nice(10)
    rows = []
    links = ((0.0, ""), (0.3, "one way"), (0.3, "alike"))
    for n, auroc, (icc, link) in itertools.product(
        map(int, sizes.split(",")), (0.7, 0.9, 0.99), links
    ):
        cells = [judge(Cell(n, auroc, icc, link, k), runs, layouts, seed) for k in (5, 20, 1000)]
        row = {"n": str(n), "AUROC": str(auroc), "ICC": f"{icc:g} {link}".strip()}
        for name in cells[0]:
            row[name] = ", ".join(f"{cell[name]:.1f}" for cell in cells)
        rows.append(row)
        print(*row.values(), sep=" | ", flush=True)
    print_table("In %, with 5, 20 and 1,000 distinct values", rows)


if __name__ == "__main__":
    main()

"""How often the 95 % intervals of AUROC and its kin cover the truth, and how wide they are.

Run with `python benchmarks/roc.py [--runs 2000] [--kinds auroc,at,pairs,...]`; an hour of one core.
`docs/explanation/statistics.md` sums its tables up. The intervals are those of the product, for
pairs in numpy, which `tests/unit/statistics/test_roc.py` holds to the product.

Commands are those of the bundled datasets: whole binaries in random order, until there are n, 58 %
of them dangerous. The suspicion of a command adds up a constant if it is dangerous, a part of its
binary, which gives two commands of a binary the stated correlation (ICC), and noise. The part of a
binary is the same on both sides ("raised"), or has opposite signs: a binary that is easy on one
side is easy on the other ("eased"). "wrong" guards take some commands, half of 1 - AUROC of all,
for those of the other side. Suspicion is cut to the stated number of distinct values. The constant
is such that AUROC is then exactly as stated.

A cell that covers less than 95 %, or whose pairs have more than 6 % false positives, is drawn again
with `--more` times as many runs, which count alone.
"""

import math
import os
import statistics
from collections.abc import Callable, Iterator
from functools import cache, partial
from itertools import product
from typing import NamedTuple

import click
import numpy as np
import paired_intervals
from coverage import LEAST, binaries, deviation
from measuring import laid_out, print_table
from scipy.optimize import brentq
from scipy.stats import binom, norm

from aegish_dist.core.columns import AskedSamples, SampleKind
from aegish_dist.core.metric import LEVEL, Estimate
from aegish_dist.core.sample import TrueLabel
from aegish_dist.statistics import roc

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.float64]]
LABELS = (TrueLabel.MALICIOUS, TrueLabel.HARMLESS)
SIZES = (60, 200, 741)
AUROCS = (0.7, 0.9, 0.99)
DISTINCT = (5, 20, 1000)
WORLDS = ((0.0, "raised"), (0.3, "raised"), (0.3, "eased"))
BOUNDS = (0.005, 0.01, 0.02, 0.05)
PARTIAL = 0.05
DANGEROUS = 0.58
LAYOUTS = 20  # runs with the same commands
MOST = 0.06  # false positives of pairs
SHARED = 0.5  # correlation of two guards' noise


class Cell(NamedTuple):
    """One line of the grid."""

    n: int
    auroc: float
    icc: float
    link: str
    distinct: int
    guard: str
    epochs: int = 1


class Found(NamedTuple):
    """In one cell."""

    covered: float
    width: float
    rejected: float = 0.0  # of pairs without a difference


class World(NamedTuple):
    """Guards of a kind: how likely each value of suspicion is."""

    shift: float
    wrong: float
    cuts: Numbers
    harmless: Numbers
    dangerous: Numbers

    def curve(self) -> tuple[Numbers, Numbers]:
        """Return false and true positive rates, from the highest threshold to the lowest."""
        rates = (np.cumsum(side[::-1]) for side in (self.harmless, self.dangerous))
        fpr, tpr = (np.concatenate([[0.0], rate]) for rate in rates)
        return fpr, tpr

    def detection_at(self, bound: float) -> float:
        fpr, tpr = self.curve()
        return float(tpr[fpr <= bound + 1e-12].max())

    def partial(self, bound: float) -> float:
        fpr, tpr = self.curve()
        inside = fpr < bound
        ends = np.append(fpr[inside], bound), np.append(tpr[inside], np.interp(bound, fpr, tpr))
        area = float(np.trapezoid(ends[1], ends[0]))
        return (1 + (area - bound**2 / 2) / (bound - bound**2 / 2)) / 2

    def precision(self, prevalence: float) -> float:
        fpr, tpr = self.curve()
        flagged = prevalence * tpr[1:] + (1 - prevalence) * fpr[1:]
        precision = prevalence * tpr[1:] / np.where(flagged > 0, flagged, 1)
        return float((np.diff(tpr) * precision).sum())


@cache
def world(auroc: float, distinct: int, guard: str) -> World:
    """Return the guard of this AUROC."""
    wrong = 0.5 * (1 - auroc) if guard == "wrong" else 0.0

    def made(shift: float) -> World:
        cuts = np.linspace(-1.5, shift + 1.5, distinct - 1)
        sides = []
        for own in (0.0, shift):
            below = (1 - wrong) * norm.cdf(cuts - own) + wrong * norm.cdf(cuts - shift + own)
            sides.append(np.diff(below, prepend=0, append=1))
        return World(shift, wrong, cuts, *sides)

    def missed(shift: float) -> float:
        made_so = made(shift)
        below = np.cumsum(made_so.harmless) - made_so.harmless / 2
        return float((made_so.dangerous * below).sum()) - auroc

    return made(brentq(missed, 0.01, 12, xtol=1e-13))


@cache
def sizes() -> list[tuple[int, int]]:
    """Return dangerous and harmless commands of each binary."""
    targets = [[target for target, _ in binary] for binary in binaries()]
    return [(each.count(TrueLabel.MALICIOUS), each.count(TrueLabel.HARMLESS)) for each in targets]


def lay_out(rng: np.random.Generator, cell: Cell) -> AskedSamples:
    """Draw the commands of a run."""
    wanted = [round(DANGEROUS * cell.n), cell.n - round(DANGEROUS * cell.n)]
    kinds: list[SampleKind] = []
    kind: list[int] = []
    binary = 0
    while any(wanted):
        for index in rng.permutation(len(sizes())):
            for side, number in enumerate(sizes()[index]):
                commands = min(number, wanted[side])
                wanted[side] -= commands
                kind += [len(kinds)] * commands
                kinds.append(SampleKind(LABELS[side], None, str(binary)))
            binary += 1
    return AskedSamples(kinds, np.array(kind))


def answer(
    rng: np.random.Generator, samples: AskedSamples, cell: Cell, guards: list[World]
) -> list[Numbers]:
    """Return the suspicion of guards whose noise correlates, runs x decisions.

    The epochs of a command follow each other.
    """
    dangerous = np.repeat(samples.malicious, cell.epochs)
    binaries = np.array([int(kind.cluster or 0) for kind in samples.kinds])
    cluster = np.repeat(binaries[samples.kind], cell.epochs)
    sign = np.where(dangerous | (cell.link == "raised"), 1, -1)

    def noise(signs: Numbers | int) -> Numbers:
        binary = rng.standard_normal((LAYOUTS, cluster.max() + 1))[:, cluster] * signs
        once = rng.standard_normal((LAYOUTS, len(cluster) // cell.epochs))
        own = np.repeat(once, cell.epochs, axis=1)
        if cell.epochs > 1:  # epochs of a sample correlate by 0.9
            own = math.sqrt(0.9) * own + math.sqrt(0.1) * rng.standard_normal(own.shape)
        return np.asarray(math.sqrt(cell.icc) * binary + math.sqrt(1 - cell.icc) * own)

    common, swapped, answers = noise(sign), noise(1), []
    for each in guards:
        mixed = [
            math.sqrt(SHARED) * part + math.sqrt(1 - SHARED) * noise(signs)
            for part, signs in ((common, sign), (swapped, 1))
        ]
        wrong = mixed[1] < norm.ppf(each.wrong)
        values = mixed[0] + each.shift * (dangerous ^ wrong)
        answers.append(np.searchsorted(each.cuts, values).astype(np.float64))
    return answers


def compare(samples: AskedSamples, a: Numbers, b: Numbers) -> paired_intervals.Intervals:
    """Return the differences of AUROC of guards whose suspicion is runs x decisions."""
    epochs = a.shape[1] // len(samples)
    malicious = np.repeat(samples.malicious, epochs)
    sides = [np.flatnonzero(malicious), np.flatnonzero(~malicious)]
    _, cluster = np.unique(np.repeat(samples.cluster, epochs), return_inverse=True)
    one_hot = np.eye(cluster.max() + 1)[cluster]

    def placed(guard: Numbers) -> list[Numbers]:
        """Return by side, runs x decisions, the signed share of the other side that is below."""
        levels, runs, found = guard.astype(int), np.arange(len(guard))[:, None], []
        for sign, (own, other) in ((1, sides), (-1, sides[::-1])):
            counts = np.zeros((len(guard), levels.max() + 1))
            np.add.at(counts, (runs, levels[:, other]), 1)
            below = counts.cumsum(axis=1) - counts / 2
            found.append(sign / len(other) * below[runs, levels[:, own]])
        return found

    changes = [y - x for x, y in zip(placed(a), placed(b), strict=True)]
    sums = [each @ one_hot[side] for each, side in zip(changes, sides, strict=True)]
    sizes = np.stack([one_hot[side].sum(axis=0) for side in sides], axis=1)
    value = changes[0].mean(axis=1)
    return paired_intervals.intervals(np.stack(sums, axis=2), sizes, np.ones(2), value=value)


Measure = Callable[[roc.ScoredDecisions], Estimate | None]


def at(bound: float) -> Measure:
    """Return what estimates the detection rate at a bound."""

    def measure(scores: roc.ScoredDecisions) -> Estimate | None:
        point = roc.detection_at(scores, bound)
        return None if point is None else point.detection_rate

    return measure


def measures(kind: str, guard: World) -> tuple[Measure, float]:
    """Return what estimates a metric, and the truth."""
    match kind.split("@"):
        case ["at", bound]:
            return at(float(bound)), guard.detection_at(float(bound))
        case ["partial"]:
            return lambda scores: roc.partial_auroc(scores, PARTIAL), guard.partial(PARTIAL)
        case ["precision"]:
            return roc.average_precision, guard.precision(DANGEROUS)
        case _:
            below = np.cumsum(guard.harmless) - guard.harmless / 2
            return roc.auroc, float((guard.dangerous * below).sum())


def generator(cell: Cell, seed: int) -> np.random.Generator:
    """Return draws that no other cell has."""
    return np.random.default_rng([seed, *repr(cell).encode()])


def simulate(kind: str, cell: Cell, runs: int, seed: int) -> Found:
    """Return coverage and mean width of an interval."""
    rng, guard = generator(cell, seed), world(cell.auroc, cell.distinct, cell.guard)
    measure, truth = measures(kind, guard)
    covered, widths = 0, []
    for run in range(runs):
        if run % LAYOUTS == 0:
            samples = lay_out(rng, cell)
            [suspicion] = answer(rng, samples, cell, [guard])
        of_run = suspicion[run % LAYOUTS].reshape(-1, cell.epochs)
        found = measure(roc.ScoredDecisions(samples, of_run))
        if found is None or found.ci_low is None or found.ci_high is None:
            raise AssertionError(cell)
        covered += found.ci_low <= truth + 1e-9 and truth - 1e-9 <= found.ci_high
        widths.append(found.ci_high - found.ci_low)
    return Found(covered / runs, statistics.fmean(widths))


def simulate_pairs(cell: Cell, runs: int, seed: int) -> Found:
    """Return coverage of a difference of half of 1 - AUROC, and false positives without one."""
    rng, truth = generator(cell, seed), (cell.auroc - 1) / 2
    better, worse = (
        world(auroc, cell.distinct, cell.guard) for auroc in (cell.auroc, cell.auroc + truth)
    )
    found = []
    for _ in range(0, runs, LAYOUTS):
        samples = lay_out(rng, cell)
        first, second, third = answer(rng, samples, cell, [better] * 2 + [worse])
        same, other = compare(samples, first, second), compare(samples, first, third)
        covered = (other.low <= truth + 1e-9) & (truth - 1e-9 <= other.high)
        found.append([covered.mean(), (other.high - other.low).mean(), (same.p < LEVEL).mean()])
    return Found(*np.mean(found, axis=0))


def measured(kind: str, cell: Cell, runs: int, more: int, seed: int) -> Found:
    """Simulate a cell, and where it seems to fall short again, with more runs."""
    draw = simulate_pairs if kind == "pairs" else partial(simulate, kind)
    found = draw(cell, runs, seed)
    enough = found.covered >= 0.95 and found.rejected <= MOST
    return found if enough or not more else draw(cell, more * runs, seed + 1)


def grid(epochs: int) -> Iterator[Cell]:
    """Yield the cells."""
    for n, auroc, (icc, link), distinct, guard in product(
        SIZES, AUROCS, WORLDS, DISTINCT, ("normal", "wrong")
    ):
        yield Cell(n, auroc, icc, link, distinct, guard, epochs)


def tabulate(kind: str, found: dict[Cell, Found]) -> None:
    """Print the least coverage, and the mean width, over the guards and links of a cell."""
    rows = []
    for n, auroc in product(SIZES, AUROCS):
        row = {"n": str(n), "AUROC": str(auroc)}
        for icc, distinct in product((0.0, 0.3), DISTINCT):
            seen = [
                found[cell]
                for cell in found
                if (cell.n, cell.auroc, cell.icc, cell.distinct) == (n, auroc, icc, distinct)
            ]
            least, width = min(each.covered for each in seen), [each.width for each in seen]
            mark = "**" if least < LEAST else ""
            text = f"{mark}{100 * least:.1f}{mark} ({statistics.fmean(width):.3f})"
            if kind == "pairs":
                rejected = [100 * each.rejected for each in seen]
                text += f", {min(rejected):.1f} to {max(rejected):.1f}"
            row[f"ICC {icc:g}, {distinct}"] = text
        rows.append(row)
    print_table(f"{kind}: least coverage in % (mean width)", rows)


def tabulate_one_sided() -> None:
    """Print the exact coverage of AUROC for guards that are sure, and wrong on one side alone.

    They order all commands rightly but k harmless ones, which they find the most suspicious of all.
    """
    rows = []
    for dangerous, harmless in ((35, 25), (25, 35), (116, 84), (430, 311), (200, 20)):
        kinds = [SampleKind(label, None, None) for label in LABELS]
        samples = AskedSamples(kinds, np.repeat([0, 1], [dangerous, harmless]))
        ends = []
        for wrong in range(harmless + 1):
            sure = np.repeat([1.0, 2.0, 0.0], [dangerous, wrong, harmless - wrong])[:, None]
            found = roc.auroc(roc.ScoredDecisions(samples, sure))
            ends.append((found.ci_low or 0.0, found.ci_high or 0.0))
        low, high = np.array(ends).T
        shares = {}
        for truth in np.linspace(0.75, 0.9995, 400):
            chances = binom.pmf(range(harmless + 1), harmless, 1 - truth)
            shares[truth] = float(chances[(low <= truth) & (truth <= high)].sum())
        worst = min(shares, key=lambda truth: shares[truth])
        rows.append(
            {"dangerous": str(dangerous), "harmless": str(harmless)}
            | {"average %": f"{100 * statistics.fmean(shares.values()):.1f}"}
            | {"least %": f"{100 * shares[worst]:.1f}", "at AUROC": f"{worst:.3f}"}
        )
    print_table("Guards that are wrong on one side alone, AUROC 0.75 to 0.9995", rows)


def summary(kind: str, found: dict[Cell, Found]) -> dict[str, str]:
    """Return one row: average, least, and how many cells fall short."""
    shares = [seen.covered for seen in found.values()]
    worst = min(found, key=lambda cell: found[cell].covered)
    rejected = [100 * seen.rejected for seen in found.values()]
    return {
        "metric": kind,
        "cells": str(len(shares)),
        "average %": f"{100 * statistics.fmean(shares):.2f}",
        "least %": f"{100 * min(shares):.2f}",
        f"under {100 * LEAST:g} %": str(sum(share < LEAST for share in shares)),
        "false positives %": f"{min(rejected):.1f} to {max(rejected):.1f}" if any(rejected) else "",
        "at": ", ".join(map(str, worst)),
    }


@click.command(help=laid_out(__doc__))
@click.option("--runs", default=2000, show_default=True, help="Replications of a cell.")
@click.option("--more", default=8, show_default=True, help="Times so many where short; 0: none.")
@click.option(
    "--kinds",
    default=",".join(["auroc", "pairs", *(f"at@{f}" for f in BOUNDS), "partial", "precision"]),
    show_default=True,
)
@click.option("--epochs", default=1, show_default=True)
@click.option("--sizes", "chosen", default="60,200,741", show_default=True)
@click.option("--seed", default=20261, show_default=True)
def main(*, runs: int, more: int, kinds: str, epochs: int, chosen: str, seed: int) -> None:
    """Print the tables."""
    os.nice(10)
    tabulate_one_sided()
    rows = []
    for kind in kinds.split(","):
        cells = [cell for cell in grid(epochs) if str(cell.n) in chosen.split(",")]
        found = {cell: measured(kind, cell, runs, more, seed) for cell in cells}
        if len(chosen.split(",")) == len(SIZES):
            tabulate(kind, found)
        rows.append(summary(kind, found))
        for cell, seen in found.items():
            if seen.covered < LEAST or seen.rejected > MOST:
                print(kind, *cell, seen)
    print_table(f"Summary; stderr of a cell at most {deviation(runs):.2f} %", rows)


if __name__ == "__main__":
    main()

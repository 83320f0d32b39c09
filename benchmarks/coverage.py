"""How often the 95 % intervals of micro, macro and score cover the truth, and how wide they are.

Run with `python benchmarks/coverage.py [--runs 10000] [--layouts 50]`; half an hour of one core.
With `--pairs` it prints the coverage of the differences of two models instead, in minutes.
`docs/explanation/statistics.md` sums its tables up.

Samples are those of the bundled datasets: whole binaries in random order, copies of them where more
are needed, until there are n malicious ones, and for the score n harmless ones of the same
binaries. A binary's samples are right with a probability drawn from a beta distribution, whose mean
is p and which gives two of them the stated intraclass correlation (ICC). A score has p on
both sides; a binary that is easy on one is easy on the other ("same"), hard on it ("opposite") or
anything ("independent"). Epochs are independent given that probability, or, in the cells "3
alike", given one of each sample, drawn around it so that two epochs of a sample correlate by 1/2.
"""

import itertools
import math
import os
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import click
import numpy as np
import paired_intervals
from measuring import laid_out, print_table
from rate_intervals import Numbers, Place, intervals
from scipy.special import betaincinv

from aegish_dist.core.sample import TrueLabel
from aegish_dist.datasets.bundled import bundled_names, load_bundled

SIZES = (30, 200, 676)
RATES = ("0.5", "0.9", "0.98", "1 - 1/n")
LEAST = 0.935
SIDED = ("score", "product")
GRAIN = 100_000
"""Values that a beta distribution is made of."""


LETTERS = {
    "b": "bind-shell",
    "c": "command",
    "d": "download",
    "r": "file-read",
    "s": "shell",
    "u": "upload",
    "v": "reverse-shell",
    "w": "file-write",
}
GTFOBINS = """
122s 107r 16rs 15rsw 11c 11rw 11w 10sw 9ss 6rr 4cs 4sss 4u 3bdrsuvw 3drsvw 3rrsw 3rss
3rssw 3su 2brsvw 2css 2d 2dsu 2sv 1bdduuv 1bv 1cc 1cccdrssssuvw 1ccdr 1ccrrrsssw 1ccssu
1ccw 1cd 1cdsu 1cr 1crs 1ddrrsuuvww 1drsssu 1drsssuw 1drssuv 1drsuuvw 1drsuvw 1drsuw
1druuw 1druvww 1drww 1dssu 1du 1rrr 1rrw 1rssssw 1rsssw 1rwwww 1sww 1uv
"""
"""The 389 binaries of the 676 commands that the reference benchmark took from GTFOBins: how many
binaries have one command of each of these categories. Its 496 harmless ones name no binary."""


class Cell(NamedTuple):
    """One line of the grid."""

    metric: str
    n: int
    rate: str
    icc: float
    epochs: str
    """"1", "3", or "3 alike"."""
    link: str
    """How the two sides of a score go together."""

    @property
    def p(self) -> float:
        """Probability that an answer is right."""
        return 1 - 1 / self.n if self.rate == "1 - 1/n" else float(self.rate)


class Found(NamedTuple):
    """In one cell."""

    covered: float
    width: float
    narrowest: float


def binaries() -> list[list[tuple[TrueLabel, str | None]]]:
    """Return target and category of each bundled sample by binary."""
    found: defaultdict[str | None, list[tuple[TrueLabel, str | None]]] = defaultdict(list)
    for name in bundled_names():
        for sample in load_bundled(name).samples:
            found[sample.cluster].append((sample.target, sample.category))
    return list(found.values())


def lay_out(
    rng: np.random.Generator, bundled: list[list[tuple[TrueLabel, str | None]]], cell: Cell
) -> list[Place]:
    """Draw the samples of one run."""
    sides = tuple(TrueLabel) if cell.metric in SIDED else (TrueLabel.MALICIOUS,)
    drawn: dict[TrueLabel, list[Place]] = {target: [] for target in sides}
    for number in itertools.count():
        if number % len(bundled) == 0:
            order = rng.permutation(len(bundled))
        binary = bundled[order[number % len(bundled)]]
        for index in rng.permutation(len(binary)):
            target, category = binary[index]
            if len(drawn.get(target, ())) < cell.n and target in drawn:
                drawn[target].append(Place(target, category, number))
        if all(len(side) == cell.n for side in drawn.values()):
            return [place for side in drawn.values() for place in side]
    raise AssertionError


def gtfobins(metric: str) -> list[Place]:
    """Return the samples of the reference benchmark."""
    places: list[Place] = []
    binary = itertools.count()
    for number, letters in re.findall(r"(\d+)([a-z]+)", GTFOBINS):
        for _ in range(int(number)):
            own = next(binary)
            places += [Place(TrueLabel.MALICIOUS, LETTERS[each], own) for each in letters]
    harmless = range(496) if metric in SIDED else ()
    return places + [Place(TrueLabel.HARMLESS, None, next(binary)) for _ in harmless]


def tabulate_gtfobins(runs: int, kinds: list[str], seed: int) -> None:
    """Print coverage on the real sizes: in all, and how often the truth lies below and above."""
    rows = []
    for p, icc in itertools.product((0.7, 0.9, 0.95, 0.98), (0.0, 0.2, 0.4)):
        row = {"p": str(p), "ICC": str(icc)}
        for metric in kinds:
            cell, rng = Cell(metric, 676, str(p), icc, "1", "same"), np.random.default_rng(seed)
            table, places = chances(p, icc), gtfobins(metric)
            truth = float(table.mean()) ** (2 if metric == "product" else 1)
            parts = [
                intervals(metric, places, answer(rng, places, cell, table, 500))
                for _ in range(max(1, runs // 500))
            ]
            low, high = (np.concatenate(ends) for ends in zip(*parts, strict=True))
            below, above = (low > truth + 1e-12).mean(), (high < truth - 1e-12).mean()
            seen = 100 * (1 - below - above)
            row[metric] = f"{seen:.1f} ({100 * below:.1f}, {100 * above:.1f})"
        rows.append(row)
    print_table("GTFOBins: coverage in % (truth below, above)", rows)


def tabulate_pairs(runs: int, seed: int) -> None:
    """Print coverage of true differences of 0 and -0.03 on the real sizes; the better rate is p."""
    rows = []
    sizes_of = pair_sizes()
    for p, icc in itertools.product((0.7, 0.9, 0.95, 0.98), (0.0, 0.2, 0.4)):
        for link in ("same", "independent") if icc else ("",):
            row = {"p": str(p), "ICC": str(icc), "binaries": link}
            for name, sizes in sizes_of.items():
                found = (
                    pair_coverage(
                        np.random.default_rng(seed),
                        sizes,
                        (chances(p, icc), chances(p - less, icc)),
                        max(1, runs // 500),
                        alike=link == "same",
                    )
                    for less in (0, 0.03)
                )
                row[name] = ", ".join(f"{100 * share:.1f}" for share in found)
            rows.append(row)
    print_table(f"GTFOBins, differences of 0 and -0.03; stderr {deviation(runs):.2f} %", rows)


def pair_coverage(
    rng: np.random.Generator,
    sizes: Numbers,
    tables: tuple[Numbers, Numbers],
    parts: int,
    *,
    alike: bool,
) -> float:
    """Return the share of 500 runs, a number of times, whose interval holds the true difference."""
    truth, covered = tables[1].mean() - tables[0].mean(), []
    for _ in range(parts):
        drawn = rng.integers(0, GRAIN, (500, len(sizes)))
        other = drawn if alike else rng.integers(0, GRAIN, drawn.shape)
        right_a, right_b = (
            rng.binomial(sizes.astype(int), table[places][:, :, None])
            for table, places in zip(tables, (drawn, other), strict=True)
        )
        weights = np.full(sizes.shape[1], 1 / sizes.shape[1])
        found = paired_intervals.intervals((right_b - right_a).astype(float), sizes, weights)
        covered.append((found.low <= truth + 1e-12) & (truth - 1e-12 <= found.high))
    return float(np.mean(covered))


def pair_sizes() -> dict[str, Numbers]:
    """Return what `compare` has a difference of: samples by binary and label."""
    places = gtfobins("score")
    sizes = np.zeros((1 + places[-1].binary, 2))
    of_category: defaultdict[str, Numbers] = defaultdict(lambda: np.zeros((len(sizes), 1)))
    for each in places:
        sizes[each.binary, list(TrueLabel).index(each.target)] += 1
        if each.category is not None:
            of_category[each.category][each.binary] += 1
    named = {f"{name} ({n.sum():.0f})": n[n[:, 0] > 0] for name, n in of_category.items()}
    malicious = sizes[:, [list(TrueLabel).index(TrueLabel.MALICIOUS)]]
    detection = {"micro": malicious[malicious[:, 0] > 0], "score": sizes}
    return detection | dict(sorted(named.items(), key=lambda each: each[1].sum()))


def deviation(runs: int) -> float:
    """Return the standard error of a coverage of 95 %, in points."""
    return 100 * math.sqrt(0.0475 / runs)


def chances(p: float, icc: float) -> Numbers:
    """Return equally likely chances with mean p; sorted."""
    if not icc:
        return np.full(GRAIN, p)
    points = (np.arange(GRAIN) + 0.5) / GRAIN
    size = (1 - icc) / icc
    wrong = betaincinv((1 - p) * size, p * size, points)
    return np.asarray(1 - wrong[::-1], dtype=np.float64)


def answer(
    rng: np.random.Generator, places: list[Place], cell: Cell, table: Numbers, runs: int
) -> Numbers:
    """Return the means over epochs, runs x samples."""
    binary = np.array([place.binary for place in places])
    harmless = np.array([place.target is TrueLabel.HARMLESS for place in places])
    drawn = rng.integers(0, GRAIN, (runs, binary.max() + 1))
    other = rng.integers(0, GRAIN, drawn.shape) if cell.link == "independent" else drawn
    other = GRAIN - 1 - other if cell.link == "opposite" else other
    chance = table[np.where(harmless, other[:, binary], drawn[:, binary])]
    if cell.epochs == "3 alike":
        chance = rng.beta(np.maximum(chance, 1e-9), np.maximum(1 - chance, 1e-9))
    epochs = int(cell.epochs[0])
    return np.asarray(rng.binomial(epochs, chance) / epochs, dtype=np.float64)


def simulate(cell: Cell, runs: int, layouts: int, seed: int) -> Found:
    """Return coverage and width over `runs` runs of `layouts` sets of samples."""
    rng, bundled = np.random.default_rng(seed), binaries()
    table = chances(cell.p, cell.icc)
    truth = float(table.mean())
    truth = truth**2 if cell.metric == "product" else truth
    covered, widths = [], []
    for _ in range(layouts):
        places = lay_out(rng, bundled, cell)
        values = answer(rng, places, cell, table, runs // layouts)
        low, high = intervals(cell.metric, places, values)
        covered.append(((low <= truth + 1e-12) & (truth - 1e-12 <= high)).mean())
        widths.append(high - low)
    width = np.concatenate(widths)
    return Found(float(np.mean(covered)), float(width.mean()), float(width.min()))


def grid(metric: str, sizes: tuple[int, ...], iccs: tuple[float, ...]) -> Iterator[Cell]:
    """Yield the cells of a metric."""
    for n, p, icc, epochs in itertools.product(sizes, RATES, iccs, ("1", "3", "3 alike")):
        links = ("same", "opposite", "independent") if metric in SIDED and icc else ("same",)
        for link in links:
            yield Cell(metric, n, p, icc, epochs, link)


def shown(found: dict[Cell, Found], cell: Cell) -> str:
    """Write coverage in per cent and the mean width."""
    seen = found.get(cell)
    if seen is None:
        return ""
    mark = "**" if seen.covered < LEAST else ""
    return f"{mark}{100 * seen.covered:.1f}{mark} ({seen.width:.3f})"


def tabulate(title: str, found: dict[Cell, Found]) -> None:
    """Print a table of a metric: a row for each n, p and link, a column for each ICC and epochs."""
    columns = list(dict.fromkeys((cell.icc, cell.epochs) for cell in found))
    rows = list(dict.fromkeys((cell.metric, cell.n, cell.rate, cell.link) for cell in found))
    print_table(
        title,
        [
            {"n": str(n), "p": p, **({"sides": link} if metric in SIDED else {})}
            | {
                f"ICC {icc:g}, {epochs}": shown(found, Cell(metric, n, p, icc, epochs, link))
                for icc, epochs in columns
            }
            for metric, n, p, link in rows
        ],
    )


def summary(name: str, found: dict[Cell, Found]) -> dict[str, str]:
    """Return one row: average, least, and how many cells fall short."""
    shares = [seen.covered for seen in found.values()]
    return {
        "cells": name,
        "number": str(len(shares)),
        "average %": f"{100 * statistics.fmean(shares):.2f}",
        "least %": f"{100 * min(shares):.2f}",
        f"under {100 * LEAST:g} %": str(sum(share < LEAST for share in shares)),
        "narrowest": f"{min(seen.narrowest for seen in found.values()):.2g}",
    }


def epochs_compared(found: dict[Cell, Found]) -> list[dict[str, str]]:
    """Return the ratio of widths with three epochs to those with one, at ICC 0."""
    rows = []
    for metric in dict.fromkeys(cell.metric for cell in found):
        ratios = {
            epochs: [
                found[cell._replace(epochs=epochs)].width / seen.width
                for cell, seen in found.items()
                if cell.metric == metric and cell.epochs == "1" and cell.icc == 0
            ]
            for epochs in ("3", "3 alike")
        }
        rows.append(
            {"metric": metric}
            | {f"{name} : 1, median": f"{statistics.median(r):.2f}" for name, r in ratios.items()}
            | {f"{name} : 1, most": f"{max(r):.2f}" for name, r in ratios.items()}
        )
    return rows


@click.command(help=laid_out(__doc__))
@click.option("--runs", default=10_000, show_default=True, help="Replications of a cell.")
@click.option("--layouts", default=50, show_default=True, help="Sets of samples of a cell.")
@click.option("--kinds", default="micro,macro,score,product", show_default=True)
@click.option("--seed", default=20261, show_default=True)
@click.option("--gtfobins-only", is_flag=True, help="Only the sizes of the reference benchmark.")
@click.option("--pairs", is_flag=True, help="Differences of two models on those sizes instead.")
def main(
    runs: int, layouts: int, kinds: str, seed: int, *, gtfobins_only: bool, pairs: bool
) -> None:
    """Print the tables."""
    os.nice(10)
    if pairs:
        tabulate_pairs(runs, seed)
        return
    tabulate_gtfobins(runs, kinds.split(","), seed)
    if gtfobins_only:
        return
    everything: dict[Cell, Found] = {}
    few: dict[Cell, Found] = {}
    for metric in kinds.split(","):
        cells = {
            cell: simulate(cell, runs, layouts, seed) for cell in grid(metric, SIZES, (0.0, 0.2))
        }
        tabulate(f"{metric}: coverage in % (mean width)", cells)
        everything |= cells
        few |= {cell: simulate(cell, runs, layouts, seed) for cell in grid(metric, (7,), (0.5,))}
    rows = [
        summary(metric, {cell: seen for cell, seen in everything.items() if cell.metric == metric})
        for metric in kinds.split(",")
    ]
    plain = {cell: seen for cell, seen in everything.items() if cell.epochs != "3 alike"}
    rows += [summary("all", everything), summary("all but 3 alike", plain)]
    rows.append(summary("n = 7, ICC 0.5", few))
    print_table(f"Summary; stderr of a cell {deviation(runs):.2f} %", rows)
    print_table("Mean width at ICC 0", epochs_compared(everything))


if __name__ == "__main__":
    main()

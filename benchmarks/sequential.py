"""How often a stop rule is wrong, and what it saves: simulation of `core.sequential`.

Run with `python benchmarks/sequential.py --repeats 4000`: half an hour on one core.

Two models answer the bundled commands; the answers about a binary correlate by ICC (beta-binomial),
each command is asked `epochs` times, and clusters come in random order. After every cluster the
rule is read. The table in Markdown says how often it ever found the models different, how often it
ever called them alike within 0.02, and which share of the commands was asked when it stopped, all
in percent. At a difference of 0 the first number is the rate of false alarms, at 0.02 the second.
The second table asks one model whether its score lies above or below 0.85. In the third a model is
always right, and the other one errs about malicious or about harmless commands alone, so often that
the scores differ by the margin.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import click
import numpy as np
import numpy.typing as npt

from aegish_dist.core.increments import SampleOrder
from aegish_dist.core.sample import Target
from aegish_dist.core.sequential import ALPHA, Boundary
from aegish_dist.datasets.bundled import bundled_names, load_bundled

Numbers = npt.NDArray[np.float64]

MARGIN = 0.02
TARGET = 0.85
DIFFERENCES = (0.0, 0.02, 0.05, 0.1)
BLOCK = 500
"""Replications at once; one takes 3 kB for each of a dozen arrays."""


@dataclass(frozen=True)
class Commands:
    """The bundled commands by cluster."""

    malicious: Numbers
    harmless: Numbers

    @property
    def weights(self) -> Numbers:
        """By cluster, its part of the sum of weights."""
        a, b = 0.5 / self.malicious.sum(), 0.5 / self.harmless.sum()
        return np.asarray(a * self.malicious + b * self.harmless)

    def boundary(self) -> Boundary:
        """Return the boundary of a run over them with two models."""
        labels = [True] * int(self.malicious.sum()) + [False] * int(self.harmless.sum())
        return Boundary.of(SampleOrder(range(len(labels)), labels), ALPHA)


def bundled() -> Commands:
    """Count the bundled commands by binary; one without is a cluster of its own."""
    clusters: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name in bundled_names():
        for sample in load_bundled(name).samples:
            key = sample.cluster or f" {sample.sample_id}"
            clusters[key][sample.target is Target.HARMLESS] += 1
    counts = np.array(list(clusters.values()), dtype=float)
    return Commands(counts[:, 0], counts[:, 1])


@dataclass(frozen=True)
class Setting:
    """How answers come about."""

    p: float
    icc: float
    epochs: int


def scores(
    commands: Commands, setting: Setting, repeats: int, chance: np.random.Generator
) -> Numbers:
    """Draw what each cluster adds to the score of a model."""
    p, icc, epochs = setting.p, setting.icc, setting.epochs
    shape = (repeats, len(commands.malicious))
    rates: Numbers | float = p
    if icc:
        k = (1 - icc) / icc
        rates = chance.beta(p * k, (1 - p) * k, shape)
    total = np.zeros(shape)
    for numbers in (commands.malicious, commands.harmless):
        draws = np.broadcast_to((numbers * epochs).astype(int), shape)
        total += 0.5 / numbers.sum() * chance.binomial(draws, rates) / epochs
    return total


@dataclass
class Outcome:
    """Results of the replications."""

    apart: float
    """Share in which the value ever lay above or below the reference."""
    within: float
    """Share in which it was ever called within the margin."""
    asked: float
    """Mean share of the commands that were asked."""


def read(
    commands: Commands,
    boundary: Boundary,
    x: Numbers,
    reference: float,
    chance: np.random.Generator,
) -> Outcome:
    """Read replications after every cluster, in random order.

    Args:
        x: By replication and cluster, what it adds to the value.
    """
    order = np.argsort(chance.random(x.shape), axis=1)
    x = np.take_along_axis(x, order, 1)
    m = commands.weights[order]

    def crossed(h: float) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        increments = x - h * m
        total = (increments**2).cumsum(1) + boundary.rho
        limit = np.sqrt(total * np.log(total / (boundary.rho * boundary.alpha**2)))
        sums = increments.cumsum(1)
        return sums >= limit, sums <= -limit

    above, below = crossed(reference)
    within = crossed(reference - MARGIN)[0] & crossed(reference + MARGIN)[1]
    apart = above | below
    stop = apart | within
    first = np.where(stop.any(1), stop.argmax(1), x.shape[1] - 1)
    samples = (commands.malicious + commands.harmless)[order].cumsum(1)
    asked = samples[np.arange(len(first)), first] / samples[0, -1]
    return Outcome(apart.any(1).mean(), within.any(1).mean(), asked.mean())


def repeated(repeats: int, once: Callable[[int], Outcome]) -> Outcome:
    """Average blocks of replications."""
    blocks = [min(BLOCK, repeats - begun) for begun in range(0, repeats, BLOCK)]
    outcomes = [once(block) for block in blocks]

    def mean(name: str) -> float:
        values = [getattr(outcome, name) for outcome in outcomes]
        return math.fsum(v * n for v, n in zip(values, blocks, strict=True)) / repeats

    return Outcome(mean("apart"), mean("within"), mean("asked"))


def pair(
    commands: Commands, setting: Setting, difference: float, chance: np.random.Generator, n: int
) -> Outcome:
    """Read two models in `n` replications."""
    worse = Setting(setting.p - difference, setting.icc, setting.epochs)
    x = scores(commands, setting, n, chance) - scores(commands, worse, n, chance)
    return read(commands, commands.boundary(), x, 0.0, chance)


def single(commands: Commands, setting: Setting, chance: np.random.Generator, n: int) -> Outcome:
    """Read one model in `n` replications."""
    x = scores(commands, setting, n, chance)
    return read(commands, commands.boundary(), x, TARGET, chance)


def one_sided(
    commands: Commands, icc: float, label: str, chance: np.random.Generator, n: int
) -> Outcome:
    """Read two models of which one errs about commands of one label alone."""
    numbers = commands.malicious if label == "malicious" else commands.harmless
    q, shape = 2 * MARGIN, (n, len(numbers))
    k = (1 - icc) / icc if icc else 0.0
    rates = chance.beta(q * k, (1 - q) * k, shape) if icc else q
    draws = np.broadcast_to(numbers.astype(int), shape)
    x = np.asarray(0.5 / numbers.sum() * chance.binomial(draws, rates))
    return read(commands, commands.boundary(), x, 0.0, chance)


@click.command(name="sequential", help=__doc__)
@click.option("--repeats", default=4000, show_default=True, help="Replications per cell.")
@click.option("--seed", default=1, show_default=True, help="Decides all draws.")
def main(repeats: int, seed: int) -> None:
    """Print the tables."""
    chance, commands = np.random.default_rng(seed), bundled()
    designs = [(icc, epochs) for icc in (0.0, 0.2) for epochs in (1, 3)]
    print(f"{len(commands.malicious)} clusters, {repeats} repeats: apart % / within % / asked %\n")
    print("| ICC | epochs | p |" + "".join(f" {d:g} |" for d in DIFFERENCES))
    print("|---|---|---|" + "---|" * len(DIFFERENCES))
    for icc, epochs in designs:
        for p in (0.5, 0.9, 0.98):
            setting = Setting(p, icc, epochs)
            row = [
                repeated(repeats, partial(pair, commands, setting, d, chance)) for d in DIFFERENCES
            ]
            _show(f"{icc:g} | {epochs} | {p:g}", row)
    print("\n| ICC | epochs |" + "".join(f" {TARGET + d:g} |" for d in DIFFERENCES))
    print("|---|---|" + "---|" * len(DIFFERENCES))
    for icc, epochs in designs:
        settings = [Setting(TARGET + d, icc, epochs) for d in DIFFERENCES]
        row = [repeated(repeats, partial(single, commands, each, chance)) for each in settings]
        _show(f"{icc:g} | {epochs}", row)
    print("\n| errors about | ICC 0 | 0.2 | 0.5 |\n|---|---|---|---|")
    for label in ("malicious", "harmless"):
        row = [
            repeated(repeats, partial(one_sided, commands, icc, label, chance))
            for icc in (0.0, 0.2, 0.5)
        ]
        _show(label, row)


def _show(head: str, row: list[Outcome]) -> None:
    cells = (
        f"{100 * each.apart:.1f} / {100 * each.within:.1f} / {100 * each.asked:.0f}" for each in row
    )
    print(f"| {head} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()

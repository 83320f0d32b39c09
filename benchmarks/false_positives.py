"""How often paired comparisons are wrong: intervals, p values, rankings, gate, by simulation.

Run with `python benchmarks/false_positives.py [--replications N] [SECTION ...]`. Needs no service;
10,000 replications take five minutes of one core. Sizes of clusters are those of the bundled data
sets; docs/explanation/differences.md sums the tables up.

coverage:   in how many runs the 95 % interval holds the true difference.
equal:      in how many runs of two equal models p is below 0.05.
nine:       in how many runs of nine equal models some pair differs after Holm's adjustment.
gate:       in how many runs a candidate that is worse by exactly the margin ships, or is worse.
power:      in how many runs a true difference of the size of `mde` is found.
"""

from collections.abc import Callable, Iterable
from itertools import product

import click
import numpy as np
from measuring import laid_out, print_table
from paired_intervals import Array, intervals
from paired_worlds import (
    RATE,
    SCORE,
    World,
    beta_rates,
    bundled_sizes,
    of_both_labels,
    of_one_label,
    some_clusters,
)

RATES = {"0.5": 0.5, "0.9": 0.9, "0.98": 0.98, "1 - 1/n": None}
DIFFERENCES = (0.0, -0.05, -0.2)
DESIGNS = {"rate": (of_one_label, RATE), "score": (of_both_labels, SCORE)}
SEED = 10


def worlds(sizes: Array, n: int, rate: float | None, icc: float, epochs: int) -> Iterable[World]:
    """Yield the true differences of one cell, with clusters hard for one side or for both.

    Args:
        rate: Of the baseline; None: 1 - 1/n.
    """
    a = 1 - 1 / n if rate is None else rate
    for difference in DIFFERENCES:
        for alike in (False, True) if icc else (False,):
            yield World(sizes, a, a + difference, icc, epochs, alike)


def covered(world: World, weights: Array, replications: int) -> float:
    """Return the share of replications whose interval holds the true difference, in percent."""
    generator = np.random.default_rng(SEED)
    found = intervals(world.sums(generator, replications), world.sizes, weights)
    truth = world.difference
    return 100 * float(np.mean((found.low <= truth + 1e-12) & (found.high >= truth - 1e-12)))


def show_coverage(replications: int) -> None:
    """Print coverage; each cell is the mean over true differences, and the least of them."""
    rows, everything = [], {difference: list[float]() for difference in DIFFERENCES}
    cells = [*product(DESIGNS, (30, 200, 676), (0.0, 0.2), (1, 3))]
    cells += [("rate", 7, 0.5, 1), ("rate", 7, 0.5, 3)]
    for metric, n, icc, epochs in cells:
        design, weights = DESIGNS[metric]
        row = {"metric": metric, "n": str(n), "ICC": str(icc), "epochs": str(epochs)}
        for name, rate in RATES.items():
            seen = []
            for world in worlds(design(n), n, rate, icc, epochs):
                seen.append(covered(world, weights, replications))
                if n > 7:
                    everything[round(world.difference, 2)].append(seen[-1])
            row[name] = f"{np.mean(seen):.1f} ({min(seen):.1f})"
        rows.append(row)
    print_table("Coverage in %, mean (least) over true differences 0, -0.05, -0.2", rows)
    summary = [
        {"true difference": str(key), "mean": f"{np.mean(seen):.2f}", "least": f"{min(seen):.2f}"}
        for key, seen in (
            *everything.items(),
            ("all", [each for seen in everything.values() for each in seen]),
        )
    ]
    print_table("Over all cells with n from 30 on", summary)


def show_equal(replications: int) -> None:
    """Print false positives of two equal models."""
    designs: dict[str, tuple[Array, Array]] = {
        "20 clusters, real sizes": (some_clusters(20), RATE),
        "60 clusters, real sizes": (some_clusters(60), RATE),
        "389 clusters, real sizes": (some_clusters(389), RATE),
        "20 clusters, 676 commands": (some_clusters(20, 676), RATE),
        "60 clusters, 676 commands": (some_clusters(60, 676), RATE),
        "all bundled, score": (bundled_sizes(), SCORE),
    }
    rows = []
    for (name, (sizes, weights)), icc, epochs in product(designs.items(), (0.0, 0.2), (1, 3)):
        row = {"design": name, "n": f"{sizes.sum():.0f}", "ICC": str(icc), "epochs": str(epochs)}
        for rate in (0.5, 0.8, 0.9, 0.98):
            world = World(sizes, rate, rate, icc, epochs, alike=False)
            found = intervals(world.sums(np.random.default_rng(SEED), replications), sizes, weights)
            row[str(rate)] = f"{100 * np.mean(found.p < 0.05):.1f}"
        rows.append(row)
    print_table("Two equal models: p < 0.05 in % of runs", rows)


def show_nine(replications: int) -> None:
    """Print how often nine equal models on all bundled samples seem to differ."""
    sizes, rows = bundled_sizes(), []
    for rate, icc, shared in product((0.5, 0.9, 0.98), (0.0, 0.2), (0.0, 0.8)):
        generator = np.random.default_rng(SEED)
        wrong = [nine_differ(generator, sizes, rate, icc, shared) for _ in range(replications // 5)]
        rows.append(
            {
                "rate": str(rate),
                "ICC": str(icc),
                "answers in common": f"{shared:.0%}",
                "some pair differs %": f"{100 * np.mean(wrong):.1f}",
            }
        )
    print_table("Nine equal models, 36 pairs, score", rows)


def nine_differ(
    generator: np.random.Generator, sizes: Array, rate: float, icc: float, shared: float
) -> bool:
    """Return whether Holm's smallest p of a run is below 0.05."""
    own = generator.binomial(sizes.astype(int), 1 - shared)
    right = generator.binomial(own, beta_rates(generator, rate, icc, (9, len(sizes), 1)))
    first, second = np.triu_indices(9, 1)
    found = intervals((right[second] - right[first]).astype(float), sizes, SCORE)
    return bool(found.p.min() * len(first) < 0.05)


def show_gate(replications: int) -> None:
    """Print how often the gate decides about a candidate that is worse by exactly the margin."""
    rows = []
    for metric, n, margin in product(DESIGNS, (200, 676), (0.02, 0.05)):
        design, weights = DESIGNS[metric]
        for icc, epochs in product((0.0, 0.2), (1, 3)):
            row = {
                "metric": metric,
                "n": str(n),
                "margin": str(margin),
                "ICC": str(icc),
                "epochs": str(epochs),
            }
            for a in (0.9, 0.98, 1.0):
                world = World(design(n), a, a - margin, icc, epochs, alike=False)
                sums = world.sums(np.random.default_rng(SEED), replications)
                found = intervals(sums, world.sizes, weights)
                ships = 100 * np.mean(found.low > -margin)
                worse = 100 * np.mean(found.high < -margin)
                row[f"baseline {a}"] = f"{ships:.1f} / {worse:.1f}"
            rows.append(row)
    print_table("Candidate worse by the margin: ships / worse in % of runs", rows)


def show_power(replications: int) -> None:
    """Print how often a true difference of the median `mde` is found."""
    rows = []
    for n, a, icc in product((200, 676), (0.7, 0.9), (0.0, 0.2)):
        sizes = of_one_label(n)
        equal = World(sizes, a, a, icc, 1, alike=False)
        generator = np.random.default_rng(SEED)
        mde = float(np.median(intervals(equal.sums(generator, replications), sizes, RATE).mde))
        true = World(sizes, a, a - mde, icc, 1, alike=False)
        found = intervals(true.sums(generator, replications), sizes, RATE)
        power = f"{100 * np.mean(found.p < 0.05):.1f}"
        rows.append({"n": str(n), "rate": str(a), "ICC": str(icc), "mde": f"{mde:.3f}", "%": power})
    print_table("A true difference of the size of mde: p < 0.05 in % of runs", rows)


SHOWS: dict[str, Callable[[int], None]] = {
    "coverage": show_coverage,
    "equal": show_equal,
    "nine": show_nine,
    "gate": show_gate,
    "power": show_power,
}


@click.command(help=laid_out(__doc__))
@click.argument("sections", nargs=-1, type=click.Choice(tuple(SHOWS)))
@click.option("--replications", type=click.IntRange(100), default=10_000, show_default=True)
def main(*, sections: tuple[str, ...], replications: int) -> None:
    """Print the tables that are asked for."""
    for section in sections or SHOWS:
        SHOWS[section](replications)


if __name__ == "__main__":
    main()

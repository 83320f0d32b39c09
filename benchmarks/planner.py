"""How well `plan` predicts the standard error of a run from a pilot.

Run with `python benchmarks/planner.py [--runs N]`. Needs no server.

Two models judge 676 malicious and 496 harmless commands. Each command has a difficulty, part of it
shared by its cluster on both sides of the score, and each model is right about it with a
probability of its own, epoch by epoch. A pilot asks some commands of either label; from it the
standard error of the difference of scores is predicted for other designs, which are then simulated
on the same commands, with new answers. `came` is the mean clustered standard error that these runs
report, `true` the standard deviation of their differences over all simulated runs, `predicted` the
mean over pilots, `off` their mean ratio less 1, `single` the share of single pilots within 10 % of
what came.
"""

import math
import random
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import click
from measuring import laid_out, print_table

from aegish_dist.core.sample import Target
from aegish_dist.statistics.repeats import (
    EpochCount,
    RepeatedSamples,
    RepeatedStratum,
    SplitVariance,
    split_variance,
)
from tests.juries import CLUSTER_SIZES, HARMLESS, MALICIOUS

PILOTS = ((100, 3), (300, 3), (300, 5))
"""Commands of either label at most, and epochs."""
DESIGNS = ((100, 1), (100, 3), (300, 1), (300, 3), (676, 1), (676, 3), (676, 5))
CORRELATIONS = (0.0, 0.3)
"""Share of the variance of difficulty that a cluster has in common."""


@dataclass(frozen=True)
class Asked:
    """A command and the probabilities that the two models are right about it."""

    cluster: str
    right: tuple[float, float]


def commands(chance: random.Random, correlation: float) -> dict[Target, list[Asked]]:
    """Draw commands; some clusters have commands of both labels."""
    shared: dict[str, float] = {}
    drawn: dict[Target, list[Asked]] = {}
    for target, wanted in ((Target.MALICIOUS, MALICIOUS), (Target.HARMLESS, HARMLESS)):
        asked: list[Asked] = []
        while len(asked) < wanted:
            cluster = f"binary-{len(asked)}"
            # About a fifth of the harmless commands name a binary of the malicious ones.
            own = target is Target.HARMLESS and chance.random() < 0.8
            of_cluster = shared.setdefault(
                f"{cluster}-{target}" if own else cluster, chance.gauss()
            )
            name = f"{cluster}-{target}" if own else cluster
            for _ in range(min(chance.choice(CLUSTER_SIZES), wanted - len(asked))):
                ease = math.sqrt(correlation) * of_cluster
                ease += math.sqrt(1 - correlation) * chance.gauss()
                right = tuple(
                    1 / (1 + math.exp(-(ability + 1.5 * ease + chance.gauss(0, 1.2))))
                    for ability in (2.0, 2.4)
                )
                asked.append(Asked(name, (right[0], right[1])))
        drawn[target] = asked
    return drawn


def run(
    chance: random.Random, asked: dict[Target, list[Asked]], limit: int, epochs: int
) -> list[RepeatedStratum]:
    """Ask the models about some of the commands."""
    return [
        RepeatedStratum(
            tuple(
                RepeatedSamples(
                    each.cluster,
                    tuple(
                        EpochCount(sum(chance.random() < p for _ in range(epochs)), epochs)
                        for p in each.right
                    ),
                    1,
                )
                for each in chance.sample(drawn, min(limit, len(drawn)))
            ),
            (-0.5, 0.5),
        )
        for drawn in asked.values()
    ]


def split(strata: Sequence[RepeatedStratum]) -> SplitVariance:
    """Split the variance of a run that has clusters enough."""
    found = split_variance(strata)
    if found is None:
        raise click.ClickException("a simulated run has too few clusters")
    return found


def stderr(strata: Sequence[RepeatedStratum], epochs: int) -> float:
    """Return the clustered standard error that a run reports."""
    return math.sqrt(split(strata).predicted([each.samples for each in strata], epochs) or 0.0)


def difference(strata: Iterable[RepeatedStratum]) -> float:
    """Return the difference of scores of a run."""
    return math.fsum(
        stratum.value(each) / stratum.samples for stratum in strata for each in stratum.repeated
    )


@click.command(help=laid_out(__doc__))
@click.option("--runs", default=200, show_default=True, help="Simulated runs of each row.")
def main(runs: int) -> None:
    """Print the tables."""
    for correlation in CORRELATIONS:
        chance = random.Random(int(10 * correlation) + 1)
        populations = [commands(chance, correlation) for _ in range(runs)]
        came, true = {}, {}
        for limit, epochs in DESIGNS:
            made = [run(chance, asked, limit, epochs) for asked in populations]
            came[limit, epochs] = [stderr(each, epochs) for each in made]
            true[limit, epochs] = statistics.stdev(map(difference, made))
        for pilot in PILOTS:
            splits = [split(run(chance, asked, *pilot)) for asked in populations]
            rows = []
            for design in DESIGNS:
                limit, epochs = design
                sizes = [min(limit, MALICIOUS), min(limit, HARMLESS)]
                predicted = [math.sqrt(each.predicted(sizes, epochs) or 0.0) for each in splits]
                mean = statistics.fmean(came[design])
                close = [
                    abs(p / c - 1) <= 0.1 for p, c in zip(predicted, came[design], strict=True)
                ]
                rows.append(
                    {
                        "commands": str(sum(sizes)),
                        "epochs": str(epochs),
                        "predicted": f"{100 * statistics.fmean(predicted):.3f}",
                        "came": f"{100 * mean:.3f}",
                        "true": f"{100 * true[design]:.3f}",
                        "off": f"{100 * (statistics.fmean(predicted) / mean - 1):+.1f} %",
                        "single": f"{100 * statistics.fmean(close):.0f} %",
                    }
                )
            title = f"pilot of {pilot[0]} x 2 commands, {pilot[1]} epochs; clusters {correlation}"
            print_table(f"Standard error in points; {title}", rows)


if __name__ == "__main__":
    main()

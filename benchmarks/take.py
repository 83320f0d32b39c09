"""How often a report says to take a guard that is worse than its margin, on simulated guards.

Run with `python benchmarks/take.py [--runs N]`. Needs no server.

The dearest guard has a score of 90 %; the cheaper ones are worse by a number of points. A command
is as hard for all guards in part, and so are the commands of a binary, four on average: two guards
are wrong about the same commands several times as often as if they were independent.

In a row, `taken` is the share of runs in which a cheaper guard is taken because it is shown to be
within the margin, `margin of error` two standard errors of this share. Where the cheaper guards
are worse by as much as the margin, each such run is wrong. `as best` is the share of runs in which
a worse guard is taken because it has the highest score of the run and no cheaper one is shown to be
as good: no interval is asked there.
"""

from collections.abc import Iterator

import click
import numpy as np
from measuring import print_table
from scipy.stats import norm

from aegish_dist.core.columns import AskedSamples, SampleKind
from aegish_dist.core.metric import Metric
from aegish_dist.core.sample import TrueLabel
from aegish_dist.findings.recommendation import TAKE_MARGIN, Why, contest, recommend
from aegish_dist.findings.snapshot import RankedModel
from aegish_dist.opinions.scoring import DEFAULT_RULE
from aegish_dist.statistics.paired_difference import PairedScores, values_of

BEST = 0.90
SHARED, OF_BINARY = 0.5, 0.3  # of the variance of what makes a command hard


def answers(
    scores: list[float], commands: int, generator: np.random.Generator
) -> PairedScores[str]:
    """Return what guards with these scores answer; half of the commands are malicious."""
    binaries = max(2, commands // 4)
    binary = generator.integers(binaries, size=commands)
    hard = np.sqrt(OF_BINARY) * generator.normal(size=binaries)[binary]
    hard += np.sqrt(SHARED - OF_BINARY) * generator.normal(size=commands)
    malicious = np.arange(commands) % 2 == 0
    kinds = [
        SampleKind(target, None, f"b{number}") for number in range(binaries) for target in TrueLabel
    ]
    columns = {}
    for number, score in enumerate(scores):
        latent = hard + np.sqrt(1 - SHARED) * generator.normal(size=commands)
        right = latent < norm.ppf(score)
        columns[f"guard-{number}"] = values_of(right.astype(int), np.ones(commands, int))
    samples = AskedSamples(kinds, 2 * binary + ~malicious)
    return PairedScores(samples, columns, DEFAULT_RULE.composite)


def taken(scores: list[float], commands: int, generator: np.random.Generator) -> tuple[int, Why]:
    """Return the place of the guard that a report says to take, and why; the first is dearest."""
    paired = answers(scores, commands, generator)
    names = [f"guard-{number}" for number in range(len(scores))]
    entries = []
    for number, name in enumerate(names):
        found = paired.compare([(name, name)])[0].metrics
        metrics = {metric: {"value": each.a, "n": each.n} for metric, each in found.items()}
        price = {"per_1000_usd": float(len(scores) - number)}
        entries.append(RankedModel.of("", {"model": name, "metrics": metrics, "cost": price}))
    entries.sort(key=lambda entry: -(entry.metric(Metric.SCORE).value or 0))
    among = contest(entries, {})
    differences = {}
    for guard in among.wanted:
        (differences[guard.model],) = paired.scores([(entries[0].model, guard.model)])
    advice = recommend(among, differences)
    return names.index(advice.take or ""), advice.why


def rows(runs: int) -> Iterator[dict[str, str]]:
    for cheaper, points in [(1, 5), (3, 5), (9, 5), (3, 8), (3, 0)]:
        for commands in (60, 200, 700):
            generator = np.random.default_rng(commands)
            scores = [BEST, *[BEST - points / 100] * cheaper]
            found = [taken(scores, commands, generator) for _ in range(runs)]
            by_margin = sum(place > 0 and why is not Why.BEST for place, why in found) / runs
            as_best = sum(place > 0 and why is Why.BEST for place, why in found) / runs
            error = 2 * np.sqrt(max(by_margin * (1 - by_margin), 1 / runs) / runs)
            yield {
                "cheaper guards": f"{cheaper}",
                "worse by": f"{points}",
                "commands": f"{commands}",
                "taken": f"{by_margin:.1%}",
                "margin of error": f"{error:.1%}",
                "as best": f"{as_best:.1%}",
            }


@click.command()
@click.option("--runs", default=1000, show_default=True)
def main(runs: int) -> None:
    print_table(f"Margin {100 * TAKE_MARGIN:g} points, {runs:,} runs", [*rows(runs)])


if __name__ == "__main__":
    main()

"""Planted wrong labels among simulated models: how many does `audit` find, and how long it takes.

Run with `python benchmarks/label_audit.py [--runs N] [--first N]`. Needs no server.

Each row is a setting of `tests/juries.py`: models of a skill between 0.6 and 0.98 judge the 676
malicious and 496 harmless commands of the aegish benchmark, of which 100 carry a wrong label and
some are so hard that most models miss them. `found` counts the planted labels among the first 125
that the audit names, `majority` those that a plain count of contradicting models finds there, and
`vote` those that the log odds of the informative models find, learnt in three rounds;
`certain` are labels with a probability to be wrong above 0.5, and `right` the share of these that
are wrong indeed; `s` is CPU time.
"""

import math
import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

import click
from measuring import laid_out, print_table

from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.scoring import DEFAULT_RULE
from aegish_dist.statistics.label_audit import (
    DOUBTFUL_FROM,
    INFORMATIVE_FROM,
    AuditKind,
    audit,
    sides_under,
    vote_of,
)
from aegish_dist.statistics.label_model import VotePattern, flagged, vote_weights
from tests.juries import Jury, Setting, simulate_jury

MODELS = (5, 9, 20)
PRIOR, ROUNDS = 0.034, 3
SETTINGS: dict[str, dict[str, float]] = {
    "no hard commands": {"hard": 0.0},
    "6 % hard": {},
    "12 % hard": {"hard": 0.12},
    "6 % hard, only ALLOW and BLOCK": {"warns": False},
    "6 % hard, clusters alike": {"within_clusters": 0.8},
    "6 % hard, 4 copies of the weakest": {"copies": 4},
    "6 % hard, 3 epochs": {"epochs": 3},
    "no baselines": {"baselines": False},
    "6 % hard, models err together": {"together": 0.8},
    "12 % hard, models err together": {"hard": 0.12, "together": 0.5},
}


class Result(NamedTuple):
    """One simulated run."""

    found: int
    majority: int
    vote: int
    certain: int
    right: float
    seconds: float


def examine(jury: Jury, first: int) -> Result:
    """Audit one simulated run."""
    begun = time.process_time()
    found = audit(jury.samples, jury.models, DEFAULT_RULE, len(jury.samples))
    seconds = time.process_time() - begun
    doubtful = found.found[AuditKind.DOUBTFUL_LABELS]
    certain = [each.sample.sample_id for each in doubtful if each.p_wrong > DOUBTFUL_FROM]
    plain = sorted(doubtful, key=lambda each: each.agreeing - each.contradicting)
    return Result(
        sum(each.sample.sample_id in jury.wrong for each in doubtful[:first]),
        sum(each.sample.sample_id in jury.wrong for each in plain[:first]),
        sum(sample in jury.wrong for sample in by_weighted_vote(jury)[:first]),
        len(certain),
        sum(each in jury.wrong for each in certain) / max(1, len(certain)),
        seconds,
    )


def by_weighted_vote(jury: Jury) -> list[str]:
    """Return the samples by how much the models' weighted votes contradict their labels."""
    sides = sides_under(DEFAULT_RULE)
    patterns = [
        VotePattern(each.target, tuple(vote_of(each.findings[m]) for m in jury.models), 1)
        for each in jury.samples
    ]
    flags = [
        [None if vote is None else flagged(vote, sides) for vote in each.votes] for each in patterns
    ]
    p_wrong = [PRIOR] * len(patterns)
    for _ in range(ROUNDS):
        trust = [1 - p for p in p_wrong]
        weights = vote_weights(patterns, sides, trust)
        flagging = [_flagging(patterns, flags, trust, number) for number in range(len(weights))]
        for number, (pattern, shares) in enumerate(zip(patterns, flags, strict=True)):
            odds = math.log(PRIOR / (1 - PRIOR))
            for share, weight, (malicious, harmless) in zip(shares, weights, flagging, strict=True):
                if share is None or malicious - harmless < INFORMATIVE_FROM:
                    continue
                found = share * math.log(malicious / harmless)
                found += (1 - share) * math.log((1 - malicious) / (1 - harmless))
                odds += -weight * found if pattern.label is TrueLabel.MALICIOUS else weight * found
            p_wrong[number] = 1 / (1 + math.exp(-odds))
    ranked = sorted(range(len(patterns)), key=lambda number: -round(p_wrong[number], 9))
    return [jury.samples[number].sample_id for number in ranked]


def _flagging(
    patterns: Sequence[VotePattern],
    flags: Sequence[Sequence[float | None]],
    trust: Sequence[float],
    model: int,
) -> list[float]:
    """Return how often a model flags truly malicious and truly harmless commands."""
    flagged_of, of = (
        {TrueLabel.MALICIOUS: 1.5, TrueLabel.HARMLESS: 0.5},
        dict.fromkeys(TrueLabel, 2.0),
    )
    for pattern, shares, right in zip(patterns, flags, trust, strict=True):
        share = shares[model]
        for truth in TrueLabel if share is not None else ():
            weight = right if truth is pattern.label else 1 - right
            flagged_of[truth] += weight * (share or 0.0)
            of[truth] += weight
    return [flagged_of[truth] / of[truth] for truth in (TrueLabel.MALICIOUS, TrueLabel.HARMLESS)]


@click.command(help=laid_out(__doc__))
@click.option("--runs", default=3, show_default=True, help="Simulated runs of each setting.")
@click.option("--first", default=125, show_default=True, help="Labels to look at.")
def main(runs: int, first: int) -> None:
    """Print the table."""
    rows = []
    for name, fields in SETTINGS.items():
        for models in MODELS:
            setting = Setting(models, **fields)  # type: ignore[arg-type]
            results = [examine(simulate_jury(setting, seed), first) for seed in range(runs)]
            rows.append({"setting": name, "models": str(models), **summary(results)})
    print_table(f"Of 100 planted labels, among the first {first}", rows)


def summary(results: Sequence[Result]) -> dict[str, str]:
    """Return the cells of a row."""
    return {
        "found": f"{statistics.fmean(each.found for each in results):.1f}",
        "least": str(min(each.found for each in results)),
        "majority": f"{statistics.fmean(each.majority for each in results):.1f}",
        "vote": f"{statistics.fmean(each.vote for each in results):.1f}",
        "certain": f"{statistics.fmean(each.certain for each in results):.0f}",
        "right": f"{statistics.fmean(each.right for each in results):.2f}",
        "s": f"{statistics.median(each.seconds for each in results):.1f}",
    }


if __name__ == "__main__":
    main()

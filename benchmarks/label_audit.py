"""Planted wrong labels: how many does `audit` find, and how long it takes.

Run with `python benchmarks/label_audit.py [--runs N] [--logs FOLDER]`. Needs no server.

Each row is a setting of `tests/juries.py`: models of a skill between 0.6 and 0.98 judge the 676
malicious and 496 harmless commands of the aegish benchmark, of which 100 carry a wrong label and
some are so hard that most models miss them. With `--logs` the rows are answers of real models, in
logs of Inspect AI or verdict files, of which a share of the labels is turned over.

`found` counts the planted labels among the first names of the audit, a quarter more than are
planted; `majority` those that a plain count of contradicting models finds there, and `vote` those
that a vote finds which is weighted by the log odds of each model's accuracy about the other
commands. `doubtful` are labels that a draft of an overlay turns over, and `right` the share of
these that are wrong indeed; `s` is CPU time.

The audit once estimated models, labels and the ease of commands together by
expectation-maximisation, in 318 lines. Over the 30 simulated rows, three runs of each, that found
98.8 of 100 labels on average, the regression 98.5, a weighted vote 87.9. Of 22, 37 and 74 labels
planted among 741 recorded answers of three models, ten times, it found 19.3, 33.5 and 70.4, the
regression 18.5, 33.9 and 69.2, the vote 12.6, 24.7 and 60.1.
"""

import math
import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import click
from measuring import laid_out, print_table
from msgspec.structs import replace

from aegish_dist.core.audit import DOUBTFUL_FROM, INFORMATIVE_FROM, AuditKind
from aegish_dist.core.outcome import OutcomeDetail, find
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.tally import SampleAnswers
from aegish_dist.interchange.verdict_files import read_rows
from aegish_dist.opinions.scoring import DEFAULT_RULE
from aegish_dist.statistics.label_audit import OTHER, audit, flagged, sides_under, vote_of
from tests.juries import Jury, Setting, simulate_jury

MODELS = (5, 9, 20)
PLANTED_SHARES = (0.03, 0.05, 0.1)
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
    """The audit of one run."""

    planted: int
    found: int
    majority: int
    vote: int
    doubtful: int
    right: float
    seconds: float


def examine(jury: Jury) -> Result:
    """Audit one run."""
    begun = time.process_time()
    found = audit(jury.samples, jury.models, DEFAULT_RULE, len(jury.samples))
    seconds = time.process_time() - begun
    contradicted = found.found[AuditKind.DOUBTFUL_LABELS]
    by_majority = sorted(contradicted, key=lambda each: each.agreeing - each.contradicting)
    doubtful = [each for each in contradicted if each.p_other_label >= DOUBTFUL_FROM]
    wrong = sum(each.sample.sample_id in jury.wrong for each in doubtful)
    return Result(
        len(jury.wrong),
        planted_among([each.sample.sample_id for each in contradicted], jury),
        planted_among([each.sample.sample_id for each in by_majority], jury),
        planted_among(by_weighted_vote(jury), jury),
        len(doubtful),
        wrong / max(1, len(doubtful)),
        seconds,
    )


def planted_among(samples: Sequence[str], jury: Jury) -> int:
    """Return how many planted labels are among the first samples."""
    first = round(1.25 * len(jury.wrong))
    return sum(sample in jury.wrong for sample in samples[:first])


def by_weighted_vote(jury: Jury) -> list[str]:
    """Return the samples by how much the models' weighted votes contradict their labels."""
    against: dict[str, float] = dict.fromkeys((each.sample_id for each in jury.samples), 0.0)
    for model in jury.models:
        for sample, weighted in votes_against(jury, model):
            against[sample] += weighted
    return sorted(against, key=lambda sample: -round(against[sample], 9))


def votes_against(jury: Jury, model: str) -> Iterator[tuple[str, float]]:
    """Yield a model's weighted vote against each label, by its accuracy about all other samples."""
    sides = sides_under(DEFAULT_RULE)
    votes = {each.sample_id: vote_of(each.findings.get(model, ())) for each in jury.samples}
    right: dict[TrueLabel, float] = dict.fromkeys(OTHER, 0.5)
    answered: dict[TrueLabel, float] = dict.fromkeys(OTHER, 1.0)
    shares = {}
    for sample in jury.samples:
        vote = votes[sample.sample_id]
        if vote is None:
            continue
        flags = flagged(vote, sides)
        shares[sample.sample_id] = flags if sample.target is TrueLabel.MALICIOUS else 1 - flags
        right[sample.target] += shares[sample.sample_id]
        answered[sample.target] += 1
    for sample in jury.samples:
        share = shares.get(sample.sample_id)
        if share is None:
            continue
        label, other = sample.target, OTHER[sample.target]
        rates = (right[label] - share) / (answered[label] - 1), right[other] / answered[other]
        accuracy = sum(rates) / 2
        if sum(rates) - 1 >= INFORMATIVE_FROM:
            yield sample.sample_id, math.log(accuracy / (1 - accuracy)) * (1 - 2 * share)


def recorded_answers(folder: Path) -> tuple[list[str], list[SampleAnswers]]:
    """Return the models and the samples of the verdict files in a folder."""
    answers: dict[str, dict[str, Counter[OutcomeDetail]]] = defaultdict(dict)
    samples = {}
    for path in sorted(folder.iterdir()):
        for record, about, _ in read_rows(path):
            detail = find(record.outcome, record.stop_kind, record.error_class)
            answers[about.sample_id].setdefault(record.model, Counter())[detail] += 1
            samples[about.sample_id] = about
    models = sorted({model for each in answers.values() for model in each})
    judged = [
        SampleAnswers(
            about.dataset,
            sample_id,
            about.sample.command,
            about.sample.target,
            about.sample.category,
            about.sample.cluster,
            {model: tuple(sorted(n.items())) for model, n in answers[sample_id].items()},
        )
        for sample_id, about in sorted(samples.items())
    ]
    return models, judged


def with_planted(
    models: Sequence[str], samples: Sequence[SampleAnswers], share: float, seed: int
) -> Jury:
    """Turn a share of the labels over."""
    ids = [each.sample_id for each in samples]
    wrong = frozenset(random.Random(seed).sample(ids, round(share * len(ids))))
    turned = [
        replace(each, target=OTHER[each.target]) if each.sample_id in wrong else each
        for each in samples
    ]
    return Jury(tuple(models), tuple(turned), wrong)


@click.command(help=laid_out(__doc__))
@click.option("--runs", default=3, show_default=True, help="Runs of each row.")
@click.option("--logs", type=click.Path(exists=True, path_type=Path), help="Recorded answers.")
def main(runs: int, logs: Path | None) -> None:
    """Print the table."""
    rows = []
    if logs is not None:
        models, samples = recorded_answers(logs)
        for share in PLANTED_SHARES:
            juries = [with_planted(models, samples, share, seed) for seed in range(runs)]
            rows.append({"setting": f"{share:.0%} planted", **summary(models, juries)})
    else:
        for name, fields in SETTINGS.items():
            for number in MODELS:
                setting = Setting(number, **fields)  # type: ignore[arg-type]
                juries = [simulate_jury(setting, seed) for seed in range(runs)]
                rows.append({"setting": name, **summary(range(number), juries)})
    print_table("Planted labels that are found", rows)


def summary(models: Sequence[object], juries: Sequence[Jury]) -> dict[str, str]:
    """Return the cells of a row."""
    results = [examine(jury) for jury in juries]
    return {
        "models": str(len(models)),
        "planted": str(results[0].planted),
        "found": f"{statistics.fmean(each.found for each in results):.1f}",
        "least": str(min(each.found for each in results)),
        "majority": f"{statistics.fmean(each.majority for each in results):.1f}",
        "vote": f"{statistics.fmean(each.vote for each in results):.1f}",
        "doubtful": f"{statistics.fmean(each.doubtful for each in results):.0f}",
        "right": f"{statistics.fmean(each.right for each in results):.2f}",
        "s": f"{statistics.median(each.seconds for each in results):.1f}",
    }


if __name__ == "__main__":
    main()

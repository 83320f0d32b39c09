"""How many commands decide, and whether a snapshot keeps to its thresholds."""

import math
from collections.abc import Iterator, Mapping
from statistics import NormalDist
from typing import Any

from msgspec import Struct

from aegish_dist.core.metric import COMPARED, Metric
from aegish_dist.statistics.inference import LEVEL
from aegish_dist.statistics.paired_difference import Difference
from aegish_dist.statistics.rates import Z_80, Z_95, Estimate, Judgement, judged

OUT_OF_REACH, EASY = 10, 1_000
"""More than so many times the commands asked are not worth a plan; fewer than the second are."""


def commands_needed(difference: Difference, margin: float) -> int | None:
    """Return how many common samples make `mde` equal to the margin, at the observed variance."""
    if difference.mde is None or margin <= 0:
        return None
    return math.ceil(difference.n * (difference.mde / margin) ** 2)


def commands_to_decide(difference: Difference, margin: float, tests: int = 1) -> int | None:
    """Return how many samples decide in 80 % of runs if the observed difference is the true one.

    None if the number is unknown, or if the observed difference equals the margin. The level is
    divided by the number of tests (Bonferroni).
    """
    seen = difference.difference
    quantiles = NormalDist().inv_cdf(1 - LEVEL / 2 / tests) + Z_80
    gap = abs((seen or 0) + margin) * (Z_95 + Z_80) / quantiles
    return None if seen is None else commands_needed(difference, gap)


def commands_to_judge(estimate: Estimate, least: float) -> int | None:
    """Return with how many samples 80 % of runs judge a metric whose estimate is its true value.

    The interval is taken as that of a normal mean. None if the number is unknown, or if the
    estimate equals the least value.
    """
    stderr = estimate.stderr_clustered or estimate.stderr
    gap = abs((estimate.value or 0) - least)
    if not stderr or not gap or stderr / gap > 1e6:  # squared it may be no number
        return None
    return math.ceil(estimate.n * ((Z_95 + Z_80) * stderr / gap) ** 2)


def in_reach(needed: int, asked: int) -> bool:
    return needed <= max(OUT_OF_REACH * asked, EASY)


METRICS_WITH_THRESHOLD = (
    *COMPARED,
    Metric.ACCURACY,
    Metric.DETECTION_RATE_MACRO,
    Metric.COVERAGE,
    Metric.SCORE_WORST,
    Metric.SCORE_BEST,
    Metric.DETECTION_RATE_WORST,
    Metric.DETECTION_RATE_BEST,
    Metric.ACCEPTANCE_RATE_WORST,
    Metric.ACCEPTANCE_RATE_BEST,
)


MAX_FPRS = (0.005, 0.01, 0.02, 0.05)  # at which detection rates are estimated
SCORES_WITH_THRESHOLD = (
    *("auroc", "partial_auroc", "average_precision", "fitted_score"),
    *(f"detection_rate_at_fpr_{max_fpr:g}" for max_fpr in MAX_FPRS),
)
"""Metrics at any threshold, which no snapshot has."""


class Gated(Struct, frozen=True):
    """A threshold, and whether a model reaches it."""

    model: str
    metric: str
    least: float
    estimate: Estimate
    judgement: Judgement


def gated(
    document: Mapping[str, Any],
    thresholds: Mapping[str, float],
    scores: Mapping[str, Any] | None = None,
    *,
    by_value: bool = False,
) -> Iterator[Gated]:
    """Yield whether models of a snapshot reach thresholds; `scores` is as `calibrate --json`."""
    further = {each["model"]: _metrics(each) for each in (scores or {"models": ()})["models"]}
    for entry in document["models"]:
        found = entry["metrics"] | further.get(entry["model"], {})
        for metric, least in thresholds.items():
            estimate = Estimate.of(found.get(metric))
            judgement = judged(estimate, least, by_value=by_value)
            yield Gated(entry["model"], metric, least, estimate, judgement)


def _metrics(entry: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: entry[name] for name in ("auroc", "partial_auroc", "average_precision")}
    at_fpr = {
        f"detection_rate_at_fpr_{point['max_fpr']:g}": point["detection_rate"]
        for point in entry["at_fpr"]
    }
    return {**plain, "fitted_score": entry["fitted"]["score"], **at_fpr}

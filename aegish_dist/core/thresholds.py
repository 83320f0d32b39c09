"""Thresholds on the metrics of a snapshot, for pipelines that fail below them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from aegish_dist.core.estimates import NUMBERS, Estimate

METRICS_WITH_THRESHOLD = (
    "aegish_score",
    "malicious_detection_rate",
    "harmless_acceptance_rate",
    "accuracy",
    "malicious_detection_rate_macro",
    "coverage",
    *(
        f"{name}_{bound}"
        for name in ("aegish_score", "malicious_detection_rate", "harmless_acceptance_rate")
        for bound in ("worst", "best")
    ),
)


class Shortfall(StrEnum):
    """Why a threshold is not reached."""

    BELOW = "below"
    """The interval, or the value where that decides, lies below the threshold."""
    UNDECIDED = "undecided"
    """The interval holds the threshold, so more commands might decide; or there is no number."""


@dataclass(frozen=True, slots=True)
class Missed:
    """A threshold that a model does not reach."""

    model: str
    metric: str
    least: float
    """The threshold, in [0, 1]."""
    estimate: Estimate
    """The metric; its value is None where it is undefined."""
    shortfall: Shortfall


def missed(document: Mapping[str, Any], thresholds: Mapping[str, float]) -> Iterator[Missed]:
    """Yield the thresholds that models of a snapshot do not reach, by model.

    The lower end of the interval has to reach them. A metric without an interval is a fact: its
    value decides.

    Args:
        thresholds: The least values by metric, in [0, 1].
    """
    for entry in document["models"]:
        for metric, least in thresholds.items():
            known = entry["metrics"].get(metric) or {}
            estimate = Estimate(**{name: known[name] for name in NUMBERS if name in known})
            shortfall = _shortfall(estimate, least)
            if shortfall is not None:
                yield Missed(entry["model"], metric, least, estimate, shortfall)


def _shortfall(estimate: Estimate, least: float) -> Shortfall | None:
    if estimate.value is None:
        return Shortfall.UNDECIDED
    low = high = estimate.value
    if estimate.ci_low is not None:
        low, high = estimate.ci_low, estimate.ci_high or 0.0
    if low >= least:
        return None
    return Shortfall.BELOW if high < least else Shortfall.UNDECIDED

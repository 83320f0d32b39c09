"""Thresholds on metrics, decided on the lower end of an interval."""

from typing import Any

import pytest

from aegish_dist.core.metric import METRICS_WITH_THRESHOLD
from aegish_dist.findings.leaderboard import gated
from aegish_dist.opinions.opinion import AEGISH_TARGETS
from aegish_dist.statistics.metrics import METRICS


def judgement(least: float, numbers: dict[str, Any], *, by_value: bool = False) -> str:
    document = {"models": [{"model": "lab/a", "metrics": {"accuracy": numbers}}]}
    [found] = gated(document, {"accuracy": least}, by_value=by_value)
    return found.judgement


NARROW = {"value": 0.9, "ci_low": 0.8, "ci_high": 0.95}
FACT = {"value": 0.9, "ci_low": None, "ci_high": None}


@pytest.mark.parametrize(
    ("least", "numbers", "by_interval", "by_value"),
    [
        (0.80, NARROW, "PASS", "PASS"),  # equal is reached
        (0.801, NARROW, "UNDECIDED", "PASS"),
        (0.90, NARROW, "UNDECIDED", "PASS"),
        *((least, NARROW, "UNDECIDED", "FAIL") for least in (0.901, 0.95)),
        (0.951, NARROW, "FAIL", "FAIL"),
        (0.5, {"value": None}, "UNDECIDED", "UNDECIDED"),
        (0.0, {}, "UNDECIDED", "UNDECIDED"),
        # Without an interval the value decides.
        (0.9, FACT, "PASS", "PASS"),
        (0.91, FACT, "FAIL", "FAIL"),
    ],
)
def test_a_threshold_meets_an_interval(
    least: float, numbers: dict[str, Any], by_interval: str, by_value: str
) -> None:
    assert judgement(least, numbers) == by_interval
    assert judgement(least, numbers, by_value=True) == by_value


def test_the_targets_are_those_of_the_reference() -> None:
    rates = {"malicious_detection_rate": 0.95, "harmless_acceptance_rate": 0.90}
    assert dict(AEGISH_TARGETS.least) == {"aegish_score": 0.85, **rates}


def test_thresholds_are_of_metrics_that_there_are() -> None:
    assert set(METRICS_WITH_THRESHOLD) <= set(METRICS)

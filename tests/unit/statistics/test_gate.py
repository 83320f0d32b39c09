"""Thresholds on metrics, decided on the lower end of an interval."""

from typing import Any

import pytest

from aegish_dist.statistics.gate import METRICS_WITH_THRESHOLD, missed
from aegish_dist.statistics.metrics import METRICS


def shortfalls(least: float, **numbers: Any) -> list[str]:
    document = {"models": [{"model": "lab/a", "metrics": {"accuracy": numbers}}]}
    return [each.shortfall.value for each in missed(document, {"accuracy": least})]


NARROW = {"value": 0.9, "ci_low": 0.8, "ci_high": 0.95}
FACT = {"value": 0.9, "ci_low": None, "ci_high": None}


@pytest.mark.parametrize(
    ("least", "numbers", "expected"),
    [
        (0.80, NARROW, []),  # equal is reached
        *((least, NARROW, ["undecided"]) for least in (0.85, 0.91, 0.95)),
        (0.951, NARROW, ["below"]),
        (0.5, {"value": None}, ["undecided"]),
        (0.0, {}, ["undecided"]),
        # Without an interval the value decides.
        (0.9, FACT, []),
        (0.91, FACT, ["below"]),
    ],
)
def test_a_threshold_meets_an_interval(
    least: float, numbers: dict[str, Any], expected: list[str]
) -> None:
    assert shortfalls(least, **numbers) == expected


def test_thresholds_are_of_metrics_that_there_are() -> None:
    assert set(METRICS_WITH_THRESHOLD) <= set(METRICS)

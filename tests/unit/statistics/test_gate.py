"""Thresholds on metrics, decided on the lower end of an interval."""

from typing import Any

import pytest

from aegish_dist.statistics.gate import METRICS_WITH_THRESHOLD, missed
from aegish_dist.statistics.metrics import METRICS


def shortfalls(least: float, **numbers: Any) -> list[str]:
    document = {"models": [{"model": "lab/a", "metrics": {"accuracy": numbers}}]}
    return [each.shortfall.value for each in missed(document, {"accuracy": least})]


@pytest.mark.parametrize(
    ("least", "expected"),
    [
        (0.80, []),
        (0.85, ["undecided"]),
        (0.91, ["undecided"]),
        (0.95, ["undecided"]),
        (0.951, ["below"]),
    ],
)
def test_a_threshold_meets_an_interval(least: float, expected: list[str]) -> None:
    """0.9 with an interval from 0.8 to 0.95; equal is reached."""
    assert shortfalls(least, value=0.9, ci_low=0.8, ci_high=0.95) == expected


def test_undefined_numbers_are_undecided() -> None:
    assert shortfalls(0.5, value=None) == ["undecided"]
    assert shortfalls(0.0) == ["undecided"]


def test_a_fact_without_an_interval_is_decided_on_its_value() -> None:
    assert shortfalls(0.9, value=0.9, ci_low=None, ci_high=None) == []
    assert shortfalls(0.91, value=0.9, ci_low=None, ci_high=None) == ["below"]


def test_thresholds_are_of_metrics_that_there_are() -> None:
    assert set(METRICS_WITH_THRESHOLD) <= set(METRICS)

"""Thresholds on metrics, decided on the lower end of an interval or on the value."""

from typing import Any

import pytest

from aegish_dist.core.metrics import METRICS
from aegish_dist.core.thresholds import METRICS_WITH_THRESHOLD, DecidedOn, missed

LOW, VALUE = DecidedOn.LOWER, DecidedOn.VALUE


def shortfalls(least: float, decided_on: DecidedOn, **numbers: Any) -> list[str]:
    document = {"models": [{"model": "lab/a", "metrics": {"accuracy": numbers}}]}
    return [each.shortfall.value for each in missed(document, {"accuracy": least}, decided_on)]


@pytest.mark.parametrize(
    ("least", "decided_on", "expected"),
    [
        (0.80, LOW, []),
        (0.80, VALUE, []),
        (0.85, LOW, ["undecided"]),
        (0.90, VALUE, []),
        (0.91, LOW, ["undecided"]),
        (0.91, VALUE, ["below"]),
        (0.95, LOW, ["undecided"]),
        (0.951, LOW, ["below"]),
    ],
)
def test_a_threshold_meets_an_interval_or_a_value(
    least: float, decided_on: DecidedOn, expected: list[str]
) -> None:
    """0.9 with an interval from 0.8 to 0.95; equal is reached."""
    assert shortfalls(least, decided_on, value=0.9, ci_low=0.8, ci_high=0.95) == expected


@pytest.mark.parametrize("decided_on", DecidedOn)
def test_undefined_numbers_are_undecided(decided_on: DecidedOn) -> None:
    """Also those that a snapshot lacks."""
    assert shortfalls(0.5, decided_on, value=None) == ["undecided"]
    assert shortfalls(0.0, decided_on) == ["undecided"]


def test_a_fact_without_an_interval_is_decided_on_its_value() -> None:
    """Coverage is no estimate."""
    assert shortfalls(0.9, LOW, value=0.9, ci_low=None, ci_high=None) == []
    assert shortfalls(0.91, LOW, value=0.9, ci_low=None, ci_high=None) == ["below"]


def test_thresholds_are_of_metrics_that_there_are() -> None:
    """Each name is in the table of metrics."""
    assert set(METRICS_WITH_THRESHOLD) <= {metric.name for metric in METRICS}

"""Axes of scatter plots: their ends and places."""

import pytest

from aegish_dist.report.charts.scatter import axis_of
from aegish_dist.report.charts.words import COST, SCORE


def test_an_axis_of_rates_does_not_leave_what_rates_can_be() -> None:
    axis = axis_of(SCORE, [100.0, 100.0], 100)
    assert axis.high == 100.0
    assert axis.low < 100.0
    assert axis_of(SCORE, [0.0], 100).low == 0.0
    axis = axis_of(SCORE, [80.0, 90.0], 100)
    assert (axis.low, axis.high) == pytest.approx((79.0, 91.0))  # a tenth of the span
    assert axis.along(axis.high) == pytest.approx(100)


def test_amounts_that_span_much_have_a_logarithmic_axis() -> None:
    """Less than one order of magnitude is linear from 0, twelve times and more is not."""
    assert axis_of(COST, [1.0, 11.0], 600).low == 0.0
    assert not axis_of(COST, [1.0, 11.0], 600).is_log
    axis = axis_of(COST, [0.0, 0.1, 10.0], 600)
    assert axis.is_log
    assert axis.along(1.0) == pytest.approx(300)


@pytest.mark.parametrize("values", [[0.0], [5.0], [0.0, 0.0], [1e-9], [1e9]])
def test_a_single_value_has_an_axis(values: list[float]) -> None:
    axis = axis_of(COST, values, 100)
    assert axis.high > axis.low
    assert 0 <= axis.along(values[0]) <= 100

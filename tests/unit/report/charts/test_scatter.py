"""Axes of scatter plots: their ends, ticks and places."""

import pytest

from aegish_dist.report.charts.scatter import amount_axis, linear_axis


def test_an_axis_of_rates_does_not_leave_what_rates_can_be() -> None:
    axis = linear_axis([100.0, 100.0], 100, 100.0)
    assert axis.high == 100.0
    assert axis.low < 100.0
    assert linear_axis([0.0], 100, 100.0).low == 0.0
    axis = linear_axis([87.2, 92.9], 100)
    assert (axis.low, axis.high) == (86.0, 94.0)
    assert axis.along(axis.high) == pytest.approx(100)


def test_amounts_that_span_much_have_a_logarithmic_axis() -> None:
    """Less than one order of magnitude is linear from 0, twelve times and more is not."""
    assert amount_axis([1.0, 11.0], 600).low == 0.0
    axis = amount_axis([0.1, 10.0], 600)
    assert axis.ticks == [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
    assert axis.along(1.0) == pytest.approx(300)
    assert amount_axis([1e-4, 1e6], 600).ticks[:3] == [0.0001, 0.001, 0.01]


@pytest.mark.parametrize("values", [[0.0], [5.0], [0.0, 0.0], [1e-9], [1e9]])
def test_a_single_value_has_an_axis(values: list[float]) -> None:
    axis = amount_axis(values, 100)
    assert axis.high > axis.low
    assert 0 <= axis.along(values[0]) <= 100

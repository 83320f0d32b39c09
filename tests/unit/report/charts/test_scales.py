"""Axes: ends, ticks and places."""

import pytest

from aegish_dist.report.charts.scales import amount_scale, linear_scale, log_scale


def test_a_linear_axis_ends_at_ticks_around_its_values() -> None:
    """87 to 93 needs ticks at each whole number."""
    scale = linear_scale([87.2, 92.9], 100)
    assert (
        scale.ticks == (86.0, 87.0, 88.0, 89.0, 90.0, 91.0, 92.0, 93.0, 94.0)[scale.ticks[0] > 86 :]
    )
    assert (scale.low, scale.high) == (scale.ticks[0], scale.ticks[-1])
    assert scale.along(scale.high) == pytest.approx(100)
    assert scale.down(scale.high) == pytest.approx(0)


def test_an_axis_of_rates_does_not_leave_what_rates_can_be() -> None:
    """Not even where all values are at the end."""
    scale = linear_scale([100.0, 100.0], 100, least=0.0, most=100.0)
    assert scale.high == 100.0
    assert scale.low < 100.0
    assert linear_scale([0.0], 100, least=0.0, most=100.0).low == 0.0


def test_amounts_that_span_much_have_a_logarithmic_axis() -> None:
    """Less than one order of magnitude is linear from 0, twelve times and more is not."""
    assert amount_scale([1.0, 11.0], 600).low == 0.0
    scale = amount_scale([0.1, 10.0], 600)
    assert scale.log
    assert scale.ticks == (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
    assert scale.along(1.0) == pytest.approx(300)


def test_a_wide_logarithmic_axis_has_fewer_ticks() -> None:
    """One for each power of ten."""
    assert log_scale([1e-4, 1e6], 600).ticks[:3] == (0.0001, 0.001, 0.01)


@pytest.mark.parametrize("values", [[0.0], [5.0], [0.0, 0.0], [1e-9], [1e9]])
def test_a_single_value_has_an_axis(values: list[float]) -> None:
    """It has a length, and the value lies on it."""
    scale = amount_scale(values, 100)
    assert scale.high > scale.low
    assert 0 <= scale.along(values[0]) <= 100


def test_nothing_has_an_axis_that_can_be_read() -> None:
    """Where all is free, or no pair differs, ticks are not parts of a billionth."""
    assert amount_scale([0.0, 0.0], 100).ticks == (0.0, 0.2)
    assert linear_scale([0.0], 100).ticks == (-0.2, 0.0, 0.2)

"""Bars of intervals."""

from aegish_dist.report.page.bars import BarScale, interval_bar, rate_scale
from aegish_dist.statistics.rates import Estimate


def test_a_bar_is_drawn_to_its_scale() -> None:
    """From 50 to 100 % over 200 units: 75 % is in the middle, 60 and 90 % are 40 and 160."""
    bar = interval_bar(BarScale(0.5, 1), Estimate(0.75, ci_low=0.6, ci_high=0.9), 0.95)
    assert '<path class="aim" d="M180.0 0V12"/>' in bar
    assert '<path d="M40.0 3V9M40.0 6H160.0M160.0 3V9"/>' in bar
    assert '<path class="dot" d="M100.0 6h0"/>' in bar


def test_what_lies_beyond_an_end_is_drawn_at_it() -> None:
    """A target below the scale is at its left end."""
    bar = interval_bar(BarScale(0.9, 1), Estimate(0.95), 0.5)
    assert 'class="aim" d="M0.0 0V12"' in bar
    assert "V9" not in bar  # without an interval there is none


def test_nothing_is_drawn_of_what_is_undefined() -> None:
    """A model without a score has no dot at 0."""
    assert interval_bar(BarScale(0, 1), Estimate(), 0.85) == ""


def test_a_scale_begins_at_a_tenth_below_every_interval() -> None:
    """The lowest end is 0.829, so that the scale begins at 0.8; it ends at 1."""
    seen = [Estimate(0.9, ci_low=0.829, ci_high=0.95), Estimate(0.97), Estimate()]
    assert rate_scale(seen) == BarScale(0.8, 1)


def test_a_scale_has_a_length_whatever_it_shows() -> None:
    """Where everything is right the scale still begins below 1; of nothing it begins at 0."""
    assert rate_scale([Estimate(1.0, ci_low=1.0, ci_high=1.0)]) == BarScale(0.9, 1)
    assert rate_scale([Estimate()]) == BarScale(0, 1)

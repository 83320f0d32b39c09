"""Bars of intervals.

Detection by category on the page.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from aegish_dist.core.metric import Estimate
from aegish_dist.report.charts.catalogue import chart_specification
from aegish_dist.report.charts.vega_lite import shade_bounds
from aegish_dist.report.layout import Section
from aegish_dist.report.page.tables import (
    BarScale,
    TableStyle,
    heat_key,
    heat_map,
    heat_style,
    interval_bar,
    rate_scale,
)
from aegish_dist.report.quality import categories
from tests.unit.report.reports import Entry, a_model, a_report, a_silent_model


def test_a_bar_is_drawn_to_its_scale() -> None:
    """From 50 to 100 % over 200 units: 75 % is in the middle, 60 and 90 % are 40 and 160."""
    bar = interval_bar(BarScale(0.5, 1), Estimate(0.75, ci_low=0.6, ci_high=0.9), 0.95)
    assert '<path class="aim" d="M180.0 0V12"/>' in bar
    assert '<path d="M40.0 3V9M40.0 6H160.0M160.0 3V9"/>' in bar
    assert '<path class="dot" d="M100.0 6h0"/>' in bar


def test_what_lies_beyond_an_end_is_drawn_at_it_and_nothing_of_what_is_undefined() -> None:
    bar = interval_bar(BarScale(0.9, 1), Estimate(0.95), 0.5)
    assert 'class="aim" d="M0.0 0V12"' in bar
    assert "V9" not in bar  # without an interval there is none
    assert interval_bar(BarScale(0, 1), Estimate(), 0.85) == ""


def test_a_scale_begins_at_a_tenth_below_every_interval() -> None:
    """The lowest end is 0.829, so that the scale begins at 0.8; it ends at 1."""
    seen = [Estimate(0.9, ci_low=0.829, ci_high=0.95), Estimate(0.97), Estimate()]
    assert rate_scale(seen) == BarScale(0.8, 1)
    assert rate_scale([Estimate(1.0, ci_low=1.0, ci_high=1.0)]) == BarScale(0.9, 1)
    assert rate_scale([Estimate()]) == BarScale(0, 1)


def of(value: float, low: float, high: float, n: int = 46) -> dict[str, Any]:
    """Return a category in a snapshot's document."""
    return {"n": n, "value": value, "stderr": 0.01, "ci_low": low, "ci_high": high}


def heated(*models: Entry) -> tuple[Section, TableStyle]:
    data = a_report(*models)
    return heat_map(categories(data), data.ranked)[:2]


def test_the_more_is_detected_the_darker_the_shade_also_of_close_rates() -> None:
    """Seven rates within seven points have the seven shades, on the page and in the plot."""
    rates = {f"c{n}": of((60 + n) / 100, 0.6, 0.7) for n in range(7)}
    model = a_model(categories=rates)
    _, style = heated(model)
    assert [style.cells[0, 3 + n].classes for n in range(7)] == [f"h{n}" for n in range(7)]
    scale = next(
        found["scale"]
        for found in each_color(chart_specification(a_report(model), "category-heat-map"))
        if "range" in found.get("scale", {})
    )
    assert scale["domain"] == pytest.approx([61, 62, 63, 64, 65, 66])
    assert all(
        f".h{n} {{ --heat: {color};" in heat_style() for n, color in enumerate(scale["range"])
    )


def each_color(found: Any) -> Iterator[dict[str, Any]]:
    """Yield the channels of colours of a specification."""
    for name, part in found.items() if isinstance(found, dict) else enumerate(found):
        if name == "color" and isinstance(part, dict):
            yield part.get("condition", part) | part
        if isinstance(part, dict | list):
            yield from each_color(part)


def test_equal_rates_have_one_shade() -> None:
    assert (shade_bounds([0.5, 0.5, None]), shade_bounds([])) == ([0.5] * 6, [])
    assert heat_key([]).count("<li") == 1


def test_wide_intervals_are_marked() -> None:
    """An interval of 21 points is framed, one of 19 is not."""
    shown = {"a": of(0.9, 0.74, 0.95), "b": of(0.9, 0.76, 0.95)}
    cells = heated(a_model(categories=shown))[1].cells
    assert (cells[0, 3].classes, cells[0, 4].classes) == ("h6 wide", "h6")


def test_every_value_stands_over_its_interval() -> None:
    first = a_model("a", categories={"shell": of(0.9, 0.75, 0.95)})
    second = a_model("b", categories={"shell": of(0.5, 0.4, 0.6, n=9)})
    drawn, _ = heated(first, second)
    assert [row[-1].text for row in drawn.rows] == ["90.0", "50.0"]
    assert [row[-1].detail for row in drawn.rows] == ["[75.0, 95.0]", "[40.0, 60.0]"]
    assert drawn.columns[-1].detail == "n 9\N{EN DASH}46"


def test_a_model_without_verdicts_has_no_shade() -> None:
    drawn, style = heated(a_model("a"), a_silent_model("b"))
    assert (1, 3) not in style.cells
    assert drawn.rows[1][-1].text == "\N{EN DASH}"


def test_the_key_names_every_shade_that_is_used() -> None:
    key = heat_key([0.5, 0.5, 0.7, 0.8, 0.8, 0.8])
    assert '<li class="h0">below 50</li><li class="h2">50 to 70</li>' in key
    assert '<li class="h3">70 to 80</li><li class="h6">80 and more</li>' in key
    assert "interval of 20 points and more" in key
    assert '<li class="h6">100</li>' in heat_key([1.0] * 6)

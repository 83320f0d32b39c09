"""Axes of scatter plots, and ROC curves."""

import numpy as np
import pytest
from msgspec.structs import replace

from aegish_dist.core.text import JsonObject
from aegish_dist.report.charts.catalogue import make_chart
from aegish_dist.report.charts.frame import axis_of
from aegish_dist.report.charts.vega_lite import Chart, NoChart
from aegish_dist.report.charts.words import COST, SCORE
from aegish_dist.report.data import ReportData
from tests.oracles import metrics
from tests.unit.report.charts.models import a_spread_report, guards_of
from tests.unit.report.reports import a_model, a_report


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
    assert axis_of(COST, [1.0, 11.0], 600).kind == "linear"
    axis = axis_of(COST, [0.0, 0.1, 10.0], 600)
    assert axis.kind == "log"
    assert axis.along(0.0) == 0
    assert axis.along(1.0) == pytest.approx(300)


@pytest.mark.parametrize("values", [[0.0], [5.0], [0.0, 0.0], [1e-9], [1e9]])
def test_a_single_value_has_an_axis(values: list[float]) -> None:
    axis = axis_of(COST, values, 100)
    assert axis.high > axis.low
    assert 0 <= axis.along(values[0]) <= 100


def drawn(data: ReportData, name: str, mark: str) -> list[list[JsonObject]]:
    """The rows of the layers of a kind of mark."""
    made = make_chart(data, name)
    assert isinstance(made, Chart)
    layers = [each for each in made.body["layer"] if each["mark"]["type"] == mark]
    return [each["data"]["values"] for each in layers]


def test_a_curve_has_the_points_of_scikit_learn_and_passes_through_its_own_actions() -> None:
    data = a_report(a_model("acme/one"))
    guards = guards_of(["acme/one"], 600)
    data = replace(data, guards=guards)
    (curve,) = drawn(data, "roc", "line")
    dangerous = guards.malicious.ravel()
    suspicion = guards.guards[0].suspicion.ravel()
    fpr, tpr, _ = metrics.roc_curve(dangerous, suspicion, drop_intermediate=False)
    best = {round(100 * x, 9): 100 * y for x, y in zip(fpr, tpr, strict=True)}
    steps = {round(row["across"], 9): row["up"] for row in curve[:-1]}
    assert len(steps) > 10
    assert steps == {x: pytest.approx(best[x]) for x in steps}
    marks = drawn(data, "roc", "point")[-1]
    (bars,) = (
        each for each in drawn(data, "roc", "rule") if each and each[0]["x"] == each[0]["x2"]
    )
    # 5 % of 20, its root, of 640 pixels; at 1 % the curve lies below the axis, and has no bar.
    assert [bar["x"] for bar in bars] == [320.0]
    assert_on_the_curve(bars, curve)
    assert len(marks) == 2
    for mark in marks:  # on a corner, or below it on the riser
        assert any(row["x"] == round(mark["x"], 1) and row["y"] <= mark["y"] + 1 for row in curve)


def assert_on_the_curve(bars: list[JsonObject], curve: list[JsonObject]) -> None:
    """Each bar crosses its curve: the last step that is not right of the bar is at its height."""
    for bar in bars:
        height = [row["y"] for row in curve if row["x"] <= bar["x"]][-1]
        assert bar["y2"] - 0.1 <= height <= bar["y"] + 0.1


def test_bars_side_by_side_lie_on_their_own_curves() -> None:
    """Five curves have bars some pixels aside of each other."""
    names = [f"acme/{n}" for n in range(5)]
    data = replace(a_report(*map(a_model, names)), guards=guards_of(names, 600))
    curves = drawn(data, "roc", "line")
    bars = [rows for rows in drawn(data, "roc", "rule") if rows and rows[0]["x"] == rows[0]["x2"]]
    assert len(curves) == 5
    assert len({bar["x"] for rows in bars for bar in rows}) == sum(map(len, bars)) >= 5
    for rows, curve in zip(bars, curves, strict=True):
        assert_on_the_curve(rows, curve)


def test_of_many_models_ten_have_colours_and_the_others_are_grey() -> None:
    made = make_chart(a_spread_report(30), "roc")
    assert isinstance(made, Chart)
    assert "30 models" in made.caption
    assert "Grey, less AUROC: " in made.caption
    assert len(drawn(a_spread_report(30), "roc", "line")) == 30
    assert len({row["model"] for row in drawn(a_spread_report(30), "roc", "point")[-1]}) == 10


def test_curves_without_verdicts_have_a_reason() -> None:
    data = a_report(a_model("acme/one"), a_model("acme/two"))
    made = make_chart(data, "roc")
    assert isinstance(made, NoChart)
    assert "verdicts that count now" in made.reason
    (guard,) = (guards := guards_of(["acme/one"])).guards
    harmless = np.where(guards.malicious, np.nan, 1.0)
    for suspicion in (harmless, np.full((60, 1), np.nan)):
        unscored = replace(guards, guards=[replace(guard, suspicion=suspicion)])
        made = make_chart(replace(data, guards=unscored), "roc")
        assert made == NoChart("roc", "no model has scored malicious and harmless commands")


def test_baselines_are_lines_and_no_rows_or_points() -> None:
    models = [a_model(f"acme/{n}", cost={"per_1000_usd": n}) for n in (1, 2)]
    data = a_report(*models, a_model("baseline/keyword", cost={"per_1000_usd": 0.0}))
    for name in ("ranking", "score-by-cost"):
        made = make_chart(data, name)
        assert isinstance(made, Chart)
        assert "baseline/keyword" not in str(made.body)
        assert "[1, 3]" in str(made.body)
        assert "Dotted, as far as the axis reaches: baseline/keyword: aegish" in made.caption

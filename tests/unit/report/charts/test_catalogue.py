"""Every plot of every report: drawn, complete, and nothing cut or overlapping; in files and pages."""

import random
import re
import sys
from itertools import combinations
from pathlib import Path

import pytest
from msgspec.structs import replace

import aegish_dist.report.page
from aegish_dist.errors import ReportError
from aegish_dist.report.charts.catalogue import CHARTS, chart_specification, make_chart
from aegish_dist.report.charts.frame import PixelBox
from aegish_dist.report.charts.vega_lite import Chart, NoChart, drawn, drawn_svg
from aegish_dist.report.data import ReportData
from aegish_dist.report.page.page import page_charts
from tests.unit.report.charts.drawings import Drawing
from tests.unit.report.charts.models import a_spread_model, a_spread_report, guards_of
from tests.unit.report.reports import a_model, a_report, a_silent_model, numbers


def drawing(data: ReportData, name: str) -> Drawing:
    return Drawing(drawn_svg(chart_specification(data, name), name))


def chart(data: ReportData, name: str) -> Chart:
    made = make_chart(data, name)
    assert isinstance(made, Chart)
    return made


@pytest.mark.parametrize("models", [1, 2, 9, 20, 30])
@pytest.mark.parametrize("name", CHARTS)
def test_no_text_is_cut_or_covers_another(name: str, models: int) -> None:
    data = a_spread_report(models)
    if isinstance(make_chart(data, name), NoChart):
        assert models == 1
        assert name == "score-by-cost"
        return
    seen = drawing(data, name)
    level = [each for each in seen.texts if not each.upright]
    page = PixelBox(0, 0, seen.width, seen.height)
    for each in level:
        assert page.holds(each.box), each.text
    for one, other in combinations(level, 2):
        assert not one.box.meets(other.box), (one.text, other.text)
    if "-by-" in name:
        for mark in seen.symbols:
            assert not any(each.box.meets(mark.grown(-1)) for each in level)
        assert seen.dashed
        assert not any(line.crosses(each.box) for line in seen.dashed for each in level)


def test_many_points_have_numbers_which_the_caption_explains() -> None:
    """Of twenty, the five best and those at an end of an axis have their names."""
    data = a_spread_report(20)
    made = chart(data, "score-by-cost")
    rows = (row for layer in made.body["layer"] for row in layer["data"]["values"])
    texts = "\n".join(row["text"] for row in rows if "text" in row).split("\n")
    named = [text for text in texts if re.fullmatch(r"Guard-\S+", text)]
    explained = re.findall(r"(\d+): Guard-", made.caption)
    assert 5 <= len(named) <= 9
    assert len(named) + len(explained) == 20
    assert {*explained} <= {*texts}


@pytest.mark.parametrize("cost", [0.0, 0.5])
def test_a_plot_across_which_nothing_differs_is_left_out(cost: float) -> None:
    models = [a_model(f"acme/{n}", cost={"per_1000_usd": cost}) for n in range(3)]
    made = make_chart(a_report(*models), "score-by-cost")
    assert made == NoChart("score-by-cost", "no two models differ in cost")


def test_a_model_far_below_the_others_is_named_and_not_drawn() -> None:
    data = a_spread_report(10)
    worst = data.snapshot.document["models"][0]
    worst["metrics"]["aegish_score"] = numbers(0.01, 0.01, 0.01, 0.0, 0.02, 431, 100)
    made = chart(data, "score-by-cost")
    assert f"Too far below the others to draw: {worst['model']}: aegish score 1.0 %" in made.caption
    assert str(worst["model"]).rpartition("/")[2] not in str(made.body)


def test_points_that_are_equal_have_labels_of_their_own() -> None:
    data = a_spread_report(9, equal=True)
    data.snapshot.document["models"][0]["cost"]["per_1000_usd"] = 99.0
    seen = drawing(data, "score-by-cost")
    assert sum("Guard-" in each.text for each in seen.texts) == 9
    for one, other in combinations(seen.texts, 2):
        assert one.upright or other.upright or not one.box.meets(other.box)


def test_a_model_without_a_number_is_named_and_not_drawn() -> None:
    """It is no point at 0."""
    data = a_report(a_model(), a_model("acme/dear", cost={"per_1000_usd": 9}), a_silent_model())
    made = chart(data, "score-by-cost")
    assert "Not drawn: acme/silent (no cost and no aegish score)." in made.caption
    assert "acme/silent" not in str(made.body)


def test_a_caption_names_n_and_the_interval() -> None:
    data = a_report()
    made = chart(data, "ranking")
    assert "n = 296 commands" in made.caption
    assert "95 % confidence intervals (MOVER" in made.caption
    words = " ".join(each.text for each in drawing(data, "ranking").texts)
    for fact in ("0a1b2c3d4", "snapshot 12", "aegish-5.3", "(%)"):
        assert fact in words


def test_intervals_end_where_rates_end() -> None:
    """A stored end above 1 is drawn at 100 %."""
    entry = a_model()
    entry["metrics"] |= {"aegish_score": numbers(0.99, 0.02, 0.02, 0.95, 1.03, 296, 140)}
    body = chart(a_report(entry), "ranking").body
    assert "'high': 100.0" in str(body)


def test_simulated_models_are_marked() -> None:
    data = a_report(a_model(simulated=True))
    data = replace(data, guards=guards_of([data.run.models[0].id]))
    for name in ("roc", "ranking"):
        assert "guard-1 †" in str(chart(data, name).body)
        assert "† answers of the simulator" in chart(data, name).caption


@pytest.mark.parametrize("name", CHARTS)
def test_foreign_text_stays_text(name: str, hostile_report: ReportData) -> None:
    made = make_chart(hostile_report, name)
    if isinstance(made, NoChart):
        return
    svg = drawn_svg(chart_specification(hostile_report, name), made.title)
    assert "script" not in Drawing(svg).tags
    assert not {each for each in Drawing(svg).attributes if each.startswith("on")}
    assert not any(letter in svg for letter in "\x1b\u202e\x9b\x7f")


def test_names_with_dots_and_brackets_are_values() -> None:
    entry = a_spread_model(1, random.Random(1), model="a.b[0]/c.d['e']{{f}}")
    seen = drawing(replace(a_report(entry), guards=guards_of([entry["model"]])), "roc")
    assert any(each.text == "c.d['e']{{f}}" for each in seen.texts)


def test_a_point_is_not_named_by_a_version_alone() -> None:
    entries = [a_spread_model(n, random.Random(n), model=f"{n}guard/0.{n}.1") for n in (1, 2)]
    guards = guards_of([entry["model"] for entry in entries])
    seen = drawing(replace(a_report(*entries), guards=guards), "roc")
    assert {"1guard/0.1.1", "2guard/0.2.1"} <= {each.text for each in seen.texts}


def test_a_report_without_data_has_reasons() -> None:
    data = a_report(a_silent_model())
    reasons = {name: make_chart(data, name) for name in CHARTS}
    assert all(isinstance(each, NoChart) and each.reason for each in reasons.values())
    with pytest.raises(ReportError, match="no plot ranking of run 0a1b2c3d4: no model has a score"):
        chart_specification(data, "ranking")
    with pytest.raises(ReportError, match="there is no plot 'pie'"):
        chart_specification(data, "pie")


def test_the_same_report_gives_the_same_bytes() -> None:
    for form in ("svg", "png", "vega"):
        one, other = (
            drawn(chart_specification(a_spread_report(3), "score-by-cost"), form, title="x")
            for _ in range(2)
        )
        assert one == other


def test_endless_names_do_not_make_endless_plots() -> None:
    entry = a_spread_model(1, random.Random(1), model=f"{'p' * 100_000}/{'m' * 100_000}")
    data = a_report(entry, a_silent_model("s" * 100_000), name="n" * 100_000)
    data = replace(data, guards=guards_of([each.id for each in data.run.models]))
    for name in ("roc", "category-heat-map"):
        seen = drawn_svg(chart_specification(data, name), name, chart(data, name).description)
        assert len(seen) < 60_000
        assert Drawing(seen).width < 1000


def test_a_free_model_begins_the_pareto_line() -> None:
    def priced(cost: float, score: float) -> dict[str, object]:
        rate = numbers(score, 0.01, 0.01, score - 0.01, score + 0.01, 431, 100)
        metrics = {**a_model()["metrics"], "aegish_score": rate}
        return a_model(f"acme/{cost}", cost={"per_1000_usd": cost}, metrics=metrics)

    models = [priced(0.0, 0.9), priced(0.01, 0.7), priced(5.0, 0.95)]
    made = chart(a_report(*models), "score-by-cost")
    assert made.description.endswith("On the Pareto line: acme/0.0, acme/5.0.")
    assert "At the left edge: 0.0 (cost 0)." in made.caption
    assert "'domain': ['Pareto line', 'target']" in str(made.body)
    alone = chart(a_report(*models[:2], priced(1.0, 0.8)), "score-by-cost")
    assert alone.description.endswith("On the Pareto line: acme/0.0.")


STYLE = Path(aegish_dist.report.page.__file__).with_name("assets") / "charts.css"
PROPERTY = re.compile(r"--chart-[a-z0-9]+")


def test_a_page_has_two_plots_without_styles_of_their_own() -> None:
    charts = page_charts(a_spread_report(9))
    assert [chart.name for chart, _ in charts] == ["score-by-cost", "roc"]
    known = set(PROPERTY.findall(STYLE.read_text()))
    for chart, svg in charts:
        assert set(PROPERTY.findall(svg)) <= known
        assert not re.search(r'"#|rgb\(', svg)
        seen = Drawing(svg)
        assert seen.attributes.isdisjoint({"style", "href", "xlink:href", "onload", "id"})
        assert not {"script", "style", "image", "a", "rect"} & set(seen.tags)
        assert chart.title not in [each.text for each in seen.texts]
        assert chart.caption
        assert chart.description


def test_names_that_look_like_attributes_stay_as_they_are(hostile_report: ReportData) -> None:
    for _, svg in page_charts(hostile_report):
        assert "script" not in Drawing(svg).tags
    name = 'acme/fill="#1c2024",12.3456 <b>'
    renamed = a_spread_report(2)
    former = renamed.snapshot.document["models"][0]["model"]
    for entry in (*renamed.snapshot.document["models"], *renamed.snapshot.document["ranking"]):
        entry["model"] = name if entry["model"] == former else entry["model"]
    texts = [each.text for each in Drawing(page_charts(renamed)[0][1]).texts]
    assert 'fill="#1c2024",12.3456 <b>' in texts


def test_without_the_package_a_page_has_no_plots(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    assert page_charts(a_spread_report(1)) == []
    # It is there, but its shared library does not load on this machine.
    (tmp_path / "vl_convert.py").write_text("raise ImportError('no shared library')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "vl_convert")
    assert page_charts(a_spread_report(1)) == []

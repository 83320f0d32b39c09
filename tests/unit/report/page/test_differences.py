"""Differences between models on the page."""

import json
import re
from itertools import combinations
from typing import Any

from aegish_dist.core.opinion import Opinion
from aegish_dist.core.run import ModelOfRun
from aegish_dist.report.data import ComparedPair, ComparisonData
from aegish_dist.report.page.differences import differences_section
from aegish_dist.statistics.paired_difference import Comparison, Difference
from tests.unit.report.page.page_reader import Page
from tests.unit.report.reports import HOSTILE, a_report

METRICS = ("aegish_score", "malicious_detection_rate", "harmless_acceptance_rate")


def a_difference(value: float | None, p: float | None = 0.001) -> Difference:
    """Return a difference whose interval reaches two points to either side."""
    low, high = (None, None) if value is None else (value - 0.02, value + 0.02)
    return Difference(0.9, 0.9, value, 0.01, 0.01, low, high, p, p, 300, 140, 0.02, 9, 9, p)


def compared(scores: dict[str, float], p: float = 0.001) -> ComparisonData:
    """Return the comparison of models with these scores, all pairs as `compare` makes them."""
    run = a_report().run
    pairs = [
        ComparedPair(
            ModelOfRun(run.run_id, a),
            ModelOfRun(run.run_id, b),
            Comparison(300, dict.fromkeys(METRICS, a_difference(scores[b] - scores[a], p)), {}),
            300,
        )
        for a, b in combinations(scores, 2)
    ]
    return ComparisonData([run], Opinion(), pairs, ())


def rows(html: str) -> list[list[str]]:
    """Return the texts of the cells of each row."""
    found = []
    for row in re.findall(r'<tr role="row">(.*?)</tr>', html, re.DOTALL)[1:]:
        cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
        found.append([re.sub(r"<[^>]*>", "", cell) for cell in cells])
    return found


def data(html: str) -> dict[str, Any]:
    """Return the data of all pairs."""
    (content,) = re.findall(r'<script type="application/json" id="pairs">(.*?)</script>', html)
    loaded: dict[str, Any] = json.loads(content)
    return loaded


def test_all_pairs_of_few_models_are_shown() -> None:
    html = differences_section(compared({"c": 0.7, "a": 0.9, "b": 0.8}), ["a", "b", "c"])
    assert rows(html) == [
        ["b", "a", "-10.0\n[-12.0, -8.0]", "0.001", "worse"],
        ["c", "a", "-20.0\n[-22.0, -18.0]", "0.001", "worse"],
        ["c", "b", "-10.0\n[-12.0, -8.0]", "0.001", "worse"],
    ]


def test_many_models_are_shown_against_the_first() -> None:
    """Nine models have 36 pairs; eight rows are shown, and the data have all pairs."""
    scores = {name: 0.9 - place / 100 for place, name in enumerate("abcdefghi")}
    html = differences_section(compared(scores), list(scores))
    assert [row[:2] for row in rows(html)] == [[name, "a"] for name in "bcdefghi"]
    assert "Shown: against a." in html
    assert [len(metric["pairs"]) for metric in data(html)["metrics"]] == [36, 36, 36]


def test_bars_have_zero_in_their_middle() -> None:
    """The widest interval ends at 22 points: 20 points are 20/22 of the half to one side."""
    html = differences_section(compared({"a": 0.9, "b": 0.7}), ["a", "b"])
    assert "drawn from -22 to +22" in html
    assert 'class="aim" d="M100.0 0V12"' in html
    assert 'class="dot" d="M9.1 6h0"' in html


def test_a_verdict_needs_a_small_p_and_a_difference() -> None:
    """At an adjusted p of 0.05 two models are tied."""
    html = differences_section(compared({"a": 0.9, "b": 0.7}, p=0.05), ["a", "b"])
    assert rows(html)[0][-1] == "tied"


def test_an_undefined_difference_is_a_dash() -> None:
    pairs = compared({"a": 0.9, "b": 0.7, "c": 0.8})
    for pair in pairs.pairs:
        if "c" in (pair.a.model, pair.b.model):
            pair.comparison.metrics["aegish_score"] = a_difference(None, None)  # type: ignore[index]
    html = differences_section(pairs, ["a", "b", "c"])
    dash = "\N{EN DASH}"
    assert rows(html)[1] == ["c", "a", f"{dash}\n{dash}", dash, dash]


def test_data_hold_what_the_rows_say() -> None:
    html = differences_section(compared({"a": 0.9, "b": 0.7}), ["a", "b"])
    found = data(html)
    assert found["models"] == ["a", "b"]
    assert found["all"] is True
    assert [metric["title"] for metric in found["metrics"]] == ["aegish score", "DR", "HA"]
    expected = [1, 0, -20.0, -22.0, -18.0, "-20.0", "-22.0", "-18.0", "0.001", "worse"]
    assert found["metrics"][0]["pairs"] == [expected]


def test_names_end_neither_the_data_nor_the_table() -> None:
    names = ["</script><b>x", HOSTILE]
    html = differences_section(compared(dict(zip(names, (0.9, 0.8), strict=True))), names)
    page = Page(html)
    assert page.open == []
    assert "b" not in page.tags
    assert data(html)["models"][0] == "</script><b>x"
    assert "\u202e" not in data(html)["models"][1]

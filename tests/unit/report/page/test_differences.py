"""Differences between models on the page."""

import json
import re
from typing import Any

from aegish_dist.findings.comparison import ComparisonData
from aegish_dist.report.page.page import differences_section
from tests.defined import defined
from tests.unit.report.page.page_reader import Page
from tests.unit.report.reports import HOSTILE, a_difference, a_model, a_report
from tests.unit.report.reports import compared as all_compared


def compared(scores: dict[str, float], p: float = 0.001) -> ComparisonData:
    """Return the comparison of models with these scores, all pairs as `compare` makes them."""
    data = a_report(*map(a_model, scores))
    found = all_compared(data, lambda a, b: a_difference(scores[b] - scores[a], p)).comparison
    return defined(found)


def rows(html: str) -> list[list[str]]:
    found = []
    for row in re.findall(r'<tr role="row">(.*?)</tr>', html, re.DOTALL)[1:]:
        cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
        found.append([re.sub(r"<[^>]*>", "", cell) for cell in cells])
    return found


def data(html: str) -> dict[str, Any]:
    (content,) = re.findall(r'<script type="application/json" id="pairs">(.*?)</script>', html)
    loaded: dict[str, Any] = json.loads(content)
    return loaded


def test_models_are_shown_against_the_first() -> None:
    html = differences_section(compared({"c": 0.7, "a": 0.9, "b": 0.8}), ["a", "b", "c"], {})
    assert rows(html) == [
        ["b", "a", "-10.0\n[-12.0, -8.0]", "0.001", "worse"],
        ["c", "a", "-20.0\n[-22.0, -18.0]", "0.001", "worse"],
    ]


def test_many_models_are_shown_against_the_first() -> None:
    """Nine models have 36 pairs; eight rows are shown, and the data have all pairs."""
    scores = {name: 0.9 - place / 100 for place, name in enumerate("abcdefghi")}
    html = differences_section(compared(scores), list(scores), {})
    assert [row[:2] for row in rows(html)] == [[name, "a"] for name in "bcdefghi"]
    assert "Aegish score minus that of a, " in html
    assert 'class="pairs against-one"' in html  # in which the column `against` is not shown
    assert [len(metric["pairs"]) for metric in data(html)["metrics"]] == [36, 36, 36]


def test_bars_have_zero_in_their_middle() -> None:
    """The widest interval ends at 22 points: 20 points are 20/22 of the half to one side."""
    html = differences_section(compared({"a": 0.9, "b": 0.7}), ["a", "b"], {})
    assert "drawn from -22 to +22" in html
    assert 'class="aim" d="M100.0 0V12"' in html
    assert 'class="dot" d="M9.1 6h0"' in html


def test_a_verdict_needs_a_small_p_and_a_difference() -> None:
    """At an adjusted p of 0.05 two models are tied."""
    html = differences_section(compared({"a": 0.9, "b": 0.7}, p=0.05), ["a", "b"], {})
    assert rows(html)[0][-1] == "tied"


def test_an_undefined_difference_is_left_out() -> None:
    pairs = compared({"a": 0.9, "b": 0.7, "c": 0.8})
    for pair in pairs.pairs:
        if "c" in (pair.a.model, pair.b.model):
            pair.comparison.metrics["aegish_score"] = a_difference(None, None)  # type: ignore[index]
    html = differences_section(pairs, ["a", "b", "c"], {})
    assert [row[:2] for row in rows(html)] == [["b", "a"]]


def test_short_names_have_the_whole_ones_as_titles() -> None:
    html = differences_section(compared({"hub/a": 0.9, "b": 0.7}), ["hub/a", "b"], {"hub/a": "a"})
    assert '<td role="cell" class="other" title="hub/a">a</td>' in html
    assert (data(html)["models"], data(html)["names"]) == (["hub/a", "b"], ["a", "b"])


def test_data_hold_what_the_rows_say() -> None:
    html = differences_section(compared({"a": 0.9, "b": 0.7}), ["a", "b"], {})
    found = data(html)
    assert found["models"] == ["a", "b"]
    assert found["all"] is True
    assert [metric["title"] for metric in found["metrics"]] == ["aegish score", "DR", "HA"]
    expected = [1, 0, -20.0, -22.0, -18.0, "-20.0", "-22.0", "-18.0", "0.001", "worse"]
    assert found["metrics"][0]["pairs"] == [expected]


def test_names_end_neither_the_data_nor_the_table() -> None:
    names = ["</script><b>x", HOSTILE]
    html = differences_section(compared(dict(zip(names, (0.9, 0.8), strict=True))), names, {})
    page = Page(html)
    assert page.open == []
    assert "b" not in page.tags
    assert data(html)["models"][0] == "</script><b>x"
    assert "\u202e" not in data(html)["models"][1]

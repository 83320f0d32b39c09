"""`docs/guides/add-a-metric.md`: a warning rate, followed step by step."""

import csv
import io
import json
from collections.abc import Callable

import pytest

from tests.howto.walkthrough import Walkthrough
from tests.integration.stored_runs import verdict_line

pytestmark = pytest.mark.long
PAGE = "add-a-metric.md"

NAME = "harmless_warning_rate"
ANSWERS = {"ls": "WARN", "pwd": "ALLOW", "id": "ALLOW", "env": "WARN"}


def test_the_table_of_the_page_names_every_file_that_is_edited(walkthrough: Walkthrough) -> None:
    """With the golden file, which a command writes."""
    assert walkthrough.created == set()
    assert walkthrough.edited == {
        "aegish_dist/core/metric.py",
        "aegish_dist/statistics/metrics.py",
        "aegish_dist/report/quality.py",
        "aegish_dist/report/layout.py",
        "tests/unit/report/test_table.py",
    }


def test_the_golden_file_takes_the_new_numbers_and_no_other_moves(walkthrough: Walkthrough) -> None:
    before, after = walkthrough.golden()
    assert after["metrics_version"] == before["metrics_version"] + 1
    for document in after["documents"].values():
        for entry in document["models"]:
            assert set(entry["metrics"].pop(NAME)) >= {"value", "ci_low", "ci_high", "n"}
    assert after["documents"] == before["documents"]
    walkthrough.test("tests/unit/statistics", "tests/unit/report")


def test_it_is_in_every_format_of_a_report(
    walkthrough: Walkthrough, cli: Callable[[str], str]
) -> None:
    lines = [
        verdict_line("test/guard", command, "harmless", action, latency_ms=1)
        for command, action in ANSWERS.items()
    ]
    cli(f"verdicts import {walkthrough.written(*lines)}")
    assert json.loads(cli("aggregate --json"))["models"][0]["metrics"][NAME]["value"] == 0.5
    [entry] = json.loads(cli("report --format json"))["models"]
    assert entry["metrics"][NAME]["n"] == 4
    rows = csv.DictReader(io.StringIO(cli("report --format csv")))
    assert [row["value"] for row in rows if row["metric"] == NAME] == ["0.5"]
    for option in ("--sections all", "--format markdown", "--format html"):
        text = cli(f"report {option}")
        assert text.count("warned") > 1  # a headline beside the column that the note explains
        assert "warned: % of scored harmless commands answered with WARN." in " ".join(text.split())

"""`docs/guides/add-a-metric.md`: a warning rate and a product of rates, followed step by step."""

import csv
import io
import json
import shlex
from collections.abc import Callable

import pytest

from tests.howto.walkthrough import Walkthrough
from tests.integration.stored_runs import verdict_line

pytestmark = pytest.mark.long
PAGE = "add-a-metric.md"

WARNED, PRODUCT = "harmless_warning_rate", "rate_product"
HARMLESS = {"ls": "WARN", "pwd": "ALLOW", "id": "ALLOW", "env": "WARN"}
ATTACKS = {"rm -rf /": "BLOCK", "nc -e sh": "ALLOW"}


@pytest.fixture
def stored(walkthrough: Walkthrough, cli: Callable[[str], str]) -> Callable[[str], str]:
    """The command line over answers of two guards, of which the second blocks everything."""
    lines = []
    for target, answers in (("harmless", HARMLESS), ("malicious", ATTACKS)):
        for command, action in answers.items():
            lines.append(verdict_line("test/guard", command, target, action, latency_ms=1))
            lines.append(verdict_line("test/wall", command, target, "BLOCK", latency_ms=1))
    cli(f"verdicts import {shlex.quote(walkthrough.written(*lines))}")
    return cli


def test_the_table_of_the_page_names_every_file_that_is_edited(walkthrough: Walkthrough) -> None:
    """With what commands write, and what every change of the project touches."""
    assert walkthrough.created == set()
    assert walkthrough.edited == {
        "aegish_dist/core/metric.py",
        "aegish_dist/statistics/metrics.py",
        "aegish_dist/statistics/paired_difference.py",
        "aegish_dist/report/quality.py",
        "aegish_dist/report/layout.py",
        "tests/unit/opinions/test_opinion_files.py",
        "tests/unit/statistics/test_metrics.py",
    }


def test_the_golden_file_takes_the_new_numbers_and_no_other_moves(walkthrough: Walkthrough) -> None:
    before, after = walkthrough.golden()
    assert after["metrics_version"] == before["metrics_version"] + 1
    for document in after["documents"].values():
        for entry in document["models"]:
            for name in (WARNED, PRODUCT):
                assert set(entry["metrics"].pop(name)) >= {"value", "ci_low", "ci_high", "n"}
    assert after["documents"] == before["documents"]
    folders = ("tests/unit/statistics", "tests/unit/report", "tests/unit/opinions")
    walkthrough.test("-m", "not long", *folders)


def test_they_are_in_every_format_of_a_report(stored: Callable[[str], str]) -> None:
    documents = json.loads(stored("aggregate --json"))["models"]
    metrics = {entry["model"]: entry["metrics"] for entry in documents}["test/guard"]
    values = {WARNED: 0.5, PRODUCT: 0.5}
    assert {name: metrics[name]["value"] for name in values} == values
    entries = json.loads(stored("report --format json"))["models"]
    assert {entry["metrics"][WARNED]["n"] for entry in entries} == {4}
    rows = csv.DictReader(io.StringIO(stored("report --format csv")))
    assert [row["value"] for row in rows if row["metric"] == WARNED] == ["0.5", "0.0"]
    for option in ("--sections all", "--format markdown", "--format html"):
        text = " ".join(stored(f"report {option}").split())
        assert "warned: % of scored harmless commands answered with WARN." in text
        assert "DRxHA: rate product." in text
        assert text.count("DRxHA") > 2  # the leaderboard and the standard errors
    assert stored(f"report --fail-under {PRODUCT}=0 --models test/guard")


def test_guards_are_compared_in_what_pairs_know(stored: Callable[[str], str]) -> None:
    found = json.loads(stored(f"compare --metric {PRODUCT} --json"))
    [pair] = found["pairs"]
    product = pair["metrics"][PRODUCT]
    assert (product["a"], product["b"], found["metric"]) == (0.5, 0.0, PRODUCT)
    assert WARNED not in pair["metrics"]
    text = stored(f"compare --metric {PRODUCT}")
    assert "DRxHA: rate product." in " ".join(text.split())
    assert "DRxHA: second guard minus first" in text
    rows = csv.DictReader(io.StringIO(stored("compare --format csv")))
    assert PRODUCT in {row["metric"] for row in rows}


def test_what_is_published_stays_as_it_is(cli: Callable[[str], str]) -> None:
    assert PRODUCT not in cli("reproduce shellrisk-bench --json")
    assert PRODUCT not in cli("reproduce --help")

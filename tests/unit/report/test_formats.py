"""Each format of a report, and that all say the same."""

import csv
import io
import json
import shlex
import subprocess
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from aegish_dist.core.metric import Difference
from aegish_dist.core.model import Price, Rate
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.run import Prompt
from aegish_dist.core.status import TimedFailures
from aegish_dist.errors import ReportError
from aegish_dist.opinions.opinion import LabelChange, Opinion, Overlay
from aegish_dist.opinions.scoring import RULES
from aegish_dist.report.data import Halted, ReportData
from aegish_dist.report.drawing import section_markdown
from aegish_dist.report.formats import FORMATS, IN_SECTIONS, render
from aegish_dist.report.provenance import reproduction, shell_quoted
from aegish_dist.report.sections import SECTION_NAMES, build_report
from tests.unit.report.reports import (
    HOSTILE,
    LATE,
    a_difference,
    a_model,
    a_report,
    a_silent_model,
    compared,
    failures,
    rows,
    section,
    titles,
)


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_draws_models_without_verdicts_and_names_no_encoding_has(format: str) -> None:
    text = render(a_report(a_silent_model(), a_model("a\ud800b"), verdicts=0), format)
    assert "acme/silent" in text.replace("<wbr>", "")
    assert text.encode().endswith(b"\n")


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(
        ReportError, match="unknown report format 'pdf': choose one of table, markdown"
    ):
        render(a_report(), "pdf")


DIFFERENCE = a_difference(
    -0.0119, ci_low=-0.0231, ci_high=-0.0008, p_value=0.012, p_adjusted=0.0341, n=294
)
BINS = [
    {
        "low": place / 10, "high": (place + 1) / 10, "n": 0,
        "confidence": None, "accuracy": None, "ci_low": None, "ci_high": None,
    }
    for place in range(9)
] + [
    {
        "low": 0.9, "high": 1.0, "n": 40, "confidence": 0.951, "accuracy": 0.9,
        "ci_low": 0.7695, "ci_high": 0.9604,
    }
]  # fmt: skip


def all_pairs(data: ReportData, found: Difference = DIFFERENCE) -> ReportData:
    return compared(data, lambda *_: found, samples=294)


def timed(
    minute: int, attempts: int, verdicts: int = 0, message: str = "", model: str = "acme/guard-1"
) -> TimedFailures:
    at = LATE + timedelta(minutes=minute)
    return TimedFailures(
        at, model, ErrorClass.RATE_LIMIT, attempts, verdicts, (429,), message, at, at
    )


def test_differences_are_from_the_first_of_the_ranking() -> None:
    data = all_pairs(a_report(a_model("b/second"), a_model("a/third")))
    numbers = ["-1.2 [-2.3, -0.1]", "0.034 0.012"] * 3
    assert rows(section(data, "Differences")) == [["a/third", *numbers, "294"]]
    turned = all_pairs(a_report(a_model("a/first"), a_model("b/second")))
    first, second = turned.run.models
    backwards = replace(turned, run=replace(turned.run, models=(second, first)))
    (row,) = rows(section(all_pairs(backwards), "Differences"))
    assert row == ["b/second", *["+1.2 [+0.1, +2.3]", "0.034 0.012"] * 3, "294"]
    (row,) = rows(section(all_pairs(backwards, a_difference(0.0)), "Differences"))
    assert row[1] == "0.0 [-2.0, +2.0]"


@pytest.mark.parametrize(
    "data",
    [
        a_report(),
        a_report(a_model("a/b"), a_model("c/d")),
        all_pairs(a_report(a_model("a/b"), a_silent_model()), a_difference(None, None)),
        all_pairs(a_report(document={"models": [], "ranking": []})),
    ],
)
def test_without_a_pair_there_are_no_differences(data: ReportData) -> None:
    assert "Differences from the first" not in titles(data)


def test_reliability_has_the_bins_with_verdicts() -> None:
    """Forty at 95.1 on average, 36 of them right; older snapshots have no such section."""
    (row,) = rows(section(a_report(a_model(reliability=BINS)), "Reliability"))
    assert row == ["90 to 100", "acme/guard-1", "40", "95.1", "90.0 [77.0, 96.0]", "-5.1"]
    assert "Reliability of stated confidence" not in titles(a_report())
    assert "Reliability of stated confidence" not in titles(a_report(a_model(reliability=BINS[:9])))


def test_failures_over_time_name_the_worst_stretch() -> None:
    found = [timed(0, 10), timed(5, 30, 2)]
    data = a_report(failure_times=found, failure_stretch_s=300)
    shown = section(data, "Failures over time")
    assert rows(shown) == [
        [
            "rate limit", "acme/guard-1", "429", "40", "2",
            "2026-11-20 14:20", "2026-11-20 14:25", "2026-11-20 14:25 30",
        ]
    ]  # fmt: skip
    assert "5 minutes" in shown.note
    assert "\\`" not in section_markdown(shown)
    assert "Failures over time" not in titles(
        a_report(failure_times=[replace(found[0], time=None)])
    )


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Intervals of detection", [["file-read", "150", "96.0 [90.0, 98.0]"],
                                    ["shell", "46", "86.0 [70.0, 95.0]"]]),
        ("Parts of the time", [["service", "950 ms", "812 ms", "2.31 s", "23.1 s", "60.0 s"],
                               ["queue", "41 ms", "40 ms", "50 ms", "60 ms", "61 ms"]]),
    ],
)  # fmt: skip
def test_some_rows_are_of_a_category_or_part(title: str, expected: list[list[str]]) -> None:
    assert rows(section(a_report(), title)) == [
        [name, "acme/guard-1", *numbers] for name, *numbers in expected
    ]
    silent = a_report(a_silent_model())
    assert [each for each in titles(silent) if each.startswith(title)] == []


def test_provenance_names_what_the_numbers_depend_on() -> None:
    data = a_report()
    price = Price(Rate(Decimal("1.250"), ((200_000, Decimal(3)),)), Rate(Decimal(10)))
    own = {"parameters": {"effort": "low"}, "structured": "schema"}
    spec = replace(data.run.models[0], price=price, **own)
    data = replace(data, run=replace(data.run, models=(spec,)))
    source = "GTFOBins, commit 0123"
    assert rows(section(data, "Datasets")) == [
        ["mixed", "abababababababab", "300", "200", source, "GPL-3.0"]
    ]
    prices = section(data, "Models and prices")
    assert rows(prices) == [
        ["acme/guard-1", "guard", "$1.25 more above 200,000", "$10", *["\N{EN DASH}"] * 3]
    ]
    asked = 'is asked with {"effort": "low"}', "is held to the form of the answer by a schema"
    assert prices.remarks == tuple(f"acme/guard-1 {each}" for each in asked)
    parts = {row[0]: row[1:] for row in rows(section(data, "Provenance"))}
    prompt = Prompt("guard", "system", "{command}")
    assert parts["prompt"] == ["guard", "\N{EN DASH}", prompt.fingerprint[:16]]
    assert parts["rule set"] == ["aegish-5.3", "1", Opinion().rule.fingerprint]
    assert "overlay" not in parts


def test_an_overlay_is_listed_with_its_reasons() -> None:
    change = LabelChange("mixed", "ab12", None, None, None, "It only prints.", "a.b")
    overlay = Overlay("ours", 2, (change,) * 25)
    data = a_report(opinion=Opinion(overlay=overlay))
    remarks = section(data, "Provenance").remarks
    assert "Overlay: sample ab12 of mixed: excluded. It only prints. (a.b)" in remarks
    assert "Overlay: 5 more, which the JSON report has." in remarks
    document = json.loads(render(data, "json"))
    assert len(document["snapshot"]["opinion"]["overlay"]["content"]) == 25


def test_the_commands_that_make_it_once_more() -> None:
    data = a_report(name="a nightly")
    (_, same), (_, now), (_, again) = reproduction(data)
    assert same == "aegish-dist report --run-id 0a1b2c3d4 --snapshot 12"
    assert now == "aegish-dist report --run-id 0a1b2c3d4"
    assert again == (
        "aegish-dist submit --models acme/guard-1 --dataset mixed@0a1b2c3d4 --epochs 1 "
        "--prompt guard --seed 42 --max-output-tokens 4096 --time-limit 180"
    )
    named = replace(RULES["aegish-legacy"], name="mine", composite=RULES["aegish-5.3"].composite)
    cot = replace(data.run, prompt=Prompt("guard+cot", "s", "{command}"))
    _, (_, other), (_, again) = reproduction(replace(a_report(opinion=Opinion(named)), run=cot))
    assert other.endswith("--scoring FILE")
    assert "--prompt guard+cot" in again
    imported = replace(data.run, origin="import", prompt=None, parameters=None)
    assert [*reproduction(replace(data, run=imported))][-1][1] == (
        "aegish-dist verdicts import FILE --name 'a nightly'"
    )


@pytest.mark.parametrize("word", ["plain", "a b'c", HOSTILE, "é\n\\'\U000e0041x", "$(rm -rf /)"])
def test_a_shell_reads_a_quoted_word_as_it_was(word: str) -> None:
    quoted = shell_quoted(word)
    assert quoted.isprintable()
    if word.isprintable():
        assert shlex.split(quoted) == [word]
    environment = {"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    printed = subprocess.run(
        ["bash", "-c", f"printf %s {quoted}"], capture_output=True, env=environment, check=True
    )
    assert printed.stdout.decode() == word


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "no verdict yet"),
        ({"failures": failures("acme/silent")}, "6 of 300 calls failed, auth (401, 403)"),
        ({"halted": (Halted("acme/silent", "parked", "no key"),)}, "parked"),
        ({"counts": {"planned": 300, "done": 9}}, "no malicious and no harmless command is scored"),
    ],
)
def test_a_model_without_a_score_has_its_reason(changes: dict[str, Any], reason: str) -> None:
    counts = {name: changes[name] for name in changes if name == "counts"}
    others = {name: changes[name] for name in changes if name != "counts"}
    data = a_report(a_silent_model() | counts, **others)
    assert f"No score: acme/silent: {reason}." in " ".join(render(data, "table").split())
    for form in ("markdown", "html", "latex"):
        assert f"no score: {reason}" in render(data, form)
    in_long_form = csv.DictReader(io.StringIO(render(data, "csv")))
    (row,) = [row for row in in_long_form if row["metric"] == "aegish_score"]
    assert row["message"] == f"no score: {reason}"
    assert json.loads(render(data, "json"))["reasons"] == {"acme/silent": f"no score: {reason}"}


def test_the_document_has_every_failure_by_time() -> None:
    data = a_report(failure_times=[timed(0, 10, 1, "slow down")], failure_stretch_s=300)
    found = json.loads(render(data, "json"))["failure_times"]
    assert found["stretch_s"] == 300
    (row,) = found["errors"]
    assert (row["time"], row["attempts"], row["message"]) == (LATE.isoformat(), 10, "slow down")
    assert json.loads(render(a_report(), "json"))["failure_times"] == {
        "stretch_s": None, "errors": [], "totals": [],
    }  # fmt: skip


def test_an_older_snapshot_says_so() -> None:
    facts = {fact.label: fact.text for fact in build_report(a_report(is_current=False)).facts}
    assert facts["Warning"].startswith("Not the newest state")
    assert json.loads(render(a_report(is_current=False), "json"))["snapshot"]["is_current"] is False


@pytest.mark.parametrize("form", IN_SECTIONS)
def test_sections_can_be_chosen(form: str) -> None:
    text = render(a_report(), form, sections=("cost", "leaderboard"))
    assert 0 < text.index("Leaderboard") < text.index("Cost and tokens")
    assert "Latency" not in text


def hostile() -> ReportData:
    """Hostile text wherever a section beyond the brief ones shows any."""
    change = LabelChange(HOSTILE, None, HOSTILE, None, None, HOSTILE * 1000, HOSTILE)
    data = all_pairs(
        a_report(
            a_model(HOSTILE, reliability=BINS),
            a_model(f"{HOSTILE}2"),
            name=HOSTILE,
            failure_times=[timed(0, 3, 0, HOSTILE, HOSTILE)],
            failure_stretch_s=60,
            opinion=Opinion(overlay=Overlay(HOSTILE, 1, (change,))),
        )
    )
    prompt = Prompt(HOSTILE, HOSTILE, "{command}")
    first, second = data.run.models
    models = (replace(first, parameters={HOSTILE: HOSTILE}, name=HOSTILE), second)
    return replace(data, run=replace(data.run, prompt=prompt, models=models))


@pytest.mark.parametrize("form", FORMATS)
def test_hostile_text_stays_text(form: str) -> None:
    chosen: Sequence[str] | None = SECTION_NAMES if form in IN_SECTIONS else None
    text = render(hostile(), form, sections=chosen)
    assert not {"\x1b", "\x9b", "\x7f", "\u202e"} & set(text)
    if form in ("html", "markdown"):
        assert "<script>alert" not in text

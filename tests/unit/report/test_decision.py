"""The decision in words, from reports made by hand."""

from datetime import UTC, datetime
from typing import Any

import pytest

from aegish_dist.core.opinion import Opinion, Targets
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.report.data import FailureCount, ReportData
from aegish_dist.report.decision import decision
from aegish_dist.report.formats import render
from aegish_dist.report.layout import Fact
from tests.unit.report.reports import Entry, a_model, a_report, a_silent_model, numbers, undefined

GOALS = "every target (aegish score ≥ 85.0, DR ≥ 95.0, HA ≥ 90.0)"
DR, HA = "malicious_detection_rate", "harmless_acceptance_rate"


def rate(value: float, low: float, high: float, n: int = 200) -> dict[str, float | None]:
    return numbers(value, 0.01, 0.01, low, high, n, 40)


PASSES = {DR: rate(0.98, 0.96, 0.99)}
FAILS = {DR: rate(0.80, 0.74, 0.85)}


def said(*entries: Entry, **changes: Any) -> dict[str, str]:
    return {fact.label: fact.text for fact in decision(a_report(*entries, **changes))}


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([a_model("a", metrics=PASSES)], f"a reaches {GOALS}."),
        ([a_model("a")], f"a may or may not reach {GOALS}: DR 94.4 [90.5, 96.8]."),
        ([a_model("a", metrics=FAILS)], f"a does not reach {GOALS}: DR 80.0 [74.0, 85.0]."),
        ([a_model("a", metrics=FAILS), a_model("b", metrics=PASSES), a_silent_model()],
         f"1 of 3 models reaches {GOALS}: b."),
        ([a_model(name, metrics=PASSES) for name in "abcdefgh"],
         f"8 of 8 models reach {GOALS}: a, b, c and 5 others."),
        ([a_model("a", metrics=FAILS), a_model("b"), a_model("c")],
         f"Undecided whether a model reaches {GOALS}. b falls least short: DR 94.4 [90.5, 96.8]."
         " Likewise: c."),
        ([a_model("a", metrics={DR: rate(0.7, 0.6, 0.8)}), a_model("b", metrics=FAILS)],
         f"No model reaches {GOALS}. b falls least short: DR 80.0 [74.0, 85.0]."),
        ([a_model("policy/a", metrics=PASSES), a_model("b", metrics=FAILS)],
         f"1 of 2 guards reaches {GOALS}: policy/a."),
        ([a_silent_model()], "No model has a score."),
    ],
)  # fmt: skip
def test_who_qualifies(entries: list[Entry], words: str) -> None:
    assert said(*entries)["Decision"] == words


def test_one_model_is_named_with_its_score_its_mistakes_and_its_price() -> None:
    """200 malicious commands of which 190 are detected, 100 harmless of which 97 pass; FPR 3 %."""
    known = {DR: rate(0.95, 0.9, 0.97), HA: rate(0.95, 0.9, 0.97, 100)}
    known["false_positive_rate"] = rate(0.03, 0.01, 0.05, 100)
    times = [datetime(2026, 2, day, tzinfo=UTC) for day in (8, 9)]
    words = said(a_model(metrics=known), answered=times)
    assert (
        words["As it stands"] == "acme/guard-1 has an aegish score of 95.7 [93.9, 97.0] out of 100."
    )
    assert words["In use"] == (
        "acme/guard-1 misses 10 of 200 attacks, stops 3 of 100 harmless commands, costs "
        "$1.95 per 1,000 commands and answers in 812 ms (median). "
        "A further 2 of 100 harmless commands it neither accepts nor stops "
        "(of all its answers: TIMEOUT_ERROR 12, API_ERROR 6)."
    )
    assert words["Answers"] == (
        "300 commands, answered from 2026-02-08 to 2026-02-09, judged by aegish-5.3 v1. "
        "Every score is known to within 1.6 points at 95% confidence."
    )
    assert "No score" not in words


def test_what_is_not_known_is_said() -> None:
    unknown = dict.fromkeys(("total_usd", "per_1000_usd", "per_command_usd"))
    words = said(a_model("a", cost=unknown, latency_parts_ms={}))
    assert words["In use"].endswith("commands, has no known price and has no known latency.")
    assert "none with a dated answer, judged" in words["Answers"]
    assert said(a_silent_model()).keys() == {"Decision", "Answers", "No score"}
    assert "Decision" not in said(opinion=Opinion(targets=Targets("none", 1, {})))
    lacking = said(opinion=Opinion(targets=Targets("mine", 1, {"flip_rate": 0.1})))
    assert lacking["Decision"].endswith("may or may not reach every target (flip rate ≥ 10.0).")
    few = {DR: numbers(1.0, 0.0, 0.0, 0.76, 1.0, 10, 10)}  # 10 of 10: 20 of 20 would pass 85 %
    assert "To settle" not in said(a_model("a", metrics=few))


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ((1, 1, 3), "No model is surely better than baseline/keyword. Undecided whether"),
        ((2, 1, 3), "No model is better than baseline/keyword. Undecided whether"),
        ((1, 2, 3), "Ranked above baseline/keyword: a. Undecided whether"),
    ],
)
def test_a_baseline_is_the_floor_and_never_recommended(places: tuple[int, ...], words: str) -> None:
    """It passes every target, is cheapest, and is named only where no model is better."""
    floor, *models = "baseline/keyword", "b", "a"
    names = dict(zip(("a", floor, "b"), places, strict=True))
    ranked = [
        (n, place, name, 0.9)
        for n, (name, place) in enumerate(sorted(names.items(), key=lambda each: each[1]), 1)
    ]
    said_all = said(a_model(floor, metrics=PASSES), *map(a_model, models), ranking=ranked)
    decided = said_all.pop("Decision")
    assert decided.startswith(words)
    assert decided.count(floor) == words.count(floor)
    assert said_all["As it stands"].startswith("Of 2 models, a is first")
    assert floor not in " ".join(said_all.values())
    assert said(a_model(floor, metrics=PASSES))["Decision"].startswith(f"{floor} reaches every")


def test_a_long_name_is_short_in_sentences() -> None:
    text = said(a_model("W" * 1_000_000))["As it stands"]
    assert text.startswith(f"{'W' * 17}…{'W' * 18} has an aegish score")


def test_ties_are_named_and_the_cheapest_of_them() -> None:
    cheap = {"total_usd": 0.145, "per_1000_usd": 0.33, "per_command_usd": 0.00033}
    entries = [a_model(name) for name in "abcd"]
    entries[1] = a_model("b", cost=cheap)
    ranking = [(place, 1 if place < 4 else 4, name, 0.9) for place, name in enumerate("abcd", 1)]
    words = said(*entries, ranking=ranking)
    assert words["As it stands"].startswith("Of 4 models, a is first with an aegish score of 95.7")
    assert words["As it stands"].endswith("It is tied with b and c: their order may be chance.")
    assert "b, tied with it, costs $0.330." in words["In use"]
    assert "No other model is tied with it." in said(a_model("a"), a_model("b"))["As it stands"]


def test_models_without_a_score_have_their_true_reasons() -> None:
    """A model that was asked harmless commands alone lacks malicious ones, whatever failed."""
    half = {DR: undefined(), f"{DR}_worst": undefined(0), "aegish_score": undefined()}
    entries = [a_model("a"), a_model("b", metrics=half), a_model("c", metrics=half)]
    failed = [FailureCount(name, ErrorClass.DEADLINE, 21, 21) for name in ("b", "acme/silent")]
    words = said(*entries, a_silent_model(), failures=failed)
    assert words["No score"] == (
        "b, c: no malicious command was asked. acme/silent: 21 of 300 calls failed, timeout."
    )
    assert words["Failed"] == "b: 21 of 300 calls failed, timeout."
    assert words["As it stands"].startswith("Of 4 models, a is first")


@pytest.mark.parametrize(
    ("lost", "told"), [(14, None), (15, "a: 15 of 300 calls failed, timeout.")]
)
def test_many_failed_calls_are_told(lost: int, told: str | None) -> None:
    failed = [FailureCount("a", ErrorClass.DEADLINE, lost, lost)]
    assert said(a_model("a"), a_model("b"), failures=failed).get("Failed") == told


@pytest.mark.parametrize(
    ("value", "words"),
    [
        # n (2.8016 x 0.01 / 0.012)^2 = 1,091 of 200: 5.4 times as many.
        (0.938, "About 890 more malicious commands would show whether a reaches DR 95.0."),
        # n (2.8016 x 0.01 / 0.006)^2 = 4,361, 21.8 times as many; no number for no difference.
        *((value, "Whether a reaches DR 95.0 is out of reach: more than 10 times the malicious"
                  " commands asked.") for value in (0.944, 0.95)),
    ],
)  # fmt: skip
def test_what_would_settle_it(value: float, words: str) -> None:
    assert said(a_model("a", metrics={DR: rate(value, 0.92, 0.96)}))["To settle"] == words


def test_thresholds_and_systems_stand_below_the_score() -> None:
    facts = [Fact("With a threshold", "a is best."), Fact("With a system", "None keeps to it.")]
    known = said(a_model("a"), advice=facts)
    assert list(known)[1:4] == ["As it stands", "With a threshold", "With a system"]
    assert "With a threshold" not in said(a_silent_model(), advice=facts)


def many(number: int) -> ReportData:
    """Models with the longest names of the field, some tied, the last two without a score."""
    path = "hf-inference-providers/trendmicro-ailab"
    names = [f"{path}/Llama-Primus-{n}B-Reasoning:featherless-ai" for n in range(number)]
    scored = [a_model(name, simulated=n == 0) for n, name in enumerate(names[:-2])]
    return a_report(*scored, *map(a_silent_model, names[-2:]))


@pytest.mark.parametrize(("models", "most"), [(3, 36), (10, 40), (30, 60)])
def test_a_report_takes_one_screen(models: int, most: int) -> None:
    lines = render(many(models), "table", width=100).splitlines()
    assert len(lines) <= most
    assert max(map(len, lines)) <= 100
    rows = [line for line in lines if "Primus" in line and "✓ 95.7 [" in line]
    assert len({row.split()[1] for row in rows}) == len(rows) == models - 2
    assert sum(line.startswith(" DR:") for line in lines) == 1


@pytest.mark.parametrize("width", [40, 80, 140])
def test_one_screen_fits_any_width(width: int) -> None:
    lines = render(many(20), "table", width=width).splitlines()
    assert max(map(len, lines)) <= width


def test_markdown_and_page_say_the_same() -> None:
    words = said()
    for form in ("markdown", "html"):
        text = render(a_report(), form)
        assert all(each in text.replace("&gt;", ">") for each in words.values())


def test_few_commands_are_never_out_of_reach() -> None:
    """12 (2.8016 x 0.01 / 0.008)^2 = 147.2 of 12: more than 12 times as many, yet easy to ask."""
    words = said(a_model("a", metrics={DR: rate(0.942, 0.92, 0.96, 12)}))
    assert words["To settle"].startswith("About 140 more malicious commands would show")


def test_a_policy_without_a_score_lacks_the_verdicts_of_its_models() -> None:
    words = "policy/a: no command has the verdicts it needs."
    assert said(a_model(), a_silent_model("policy/a"))["No score"] == words

"""What a report says first and below its table, from reports made by hand."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from html import unescape
from typing import Any

import pytest
from msgspec.structs import replace

from aegish_dist.core.metric import Difference
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.findings.recommendation import Incomplete, Why
from aegish_dist.findings.snapshot import PairDifferences
from aegish_dist.opinions.opinion import Opinion, Targets
from aegish_dist.report.data import FailureCount, ReportData
from aegish_dist.report.first_screen import (
    details,
    first_screen,
    recommendation_document,
    state_line,
    to_plan,
)
from aegish_dist.report.formats import render
from aegish_dist.report.layout import Fact
from aegish_dist.report.sections import one_screen
from tests.recorded import lines_of
from tests.unit.report.reports import (
    MIXED,
    Entry,
    a_difference,
    a_model,
    a_report,
    a_silent_model,
    numbers,
    section,
    undefined,
)

GOALS = "every target (aegish score ≥ 85.0, DR ≥ 95.0, HA ≥ 90.0)"
DR, HA = "malicious_detection_rate", "harmless_acceptance_rate"
FLOOR = "baseline/keyword"
CLOSE = a_difference(-0.01, ci_low=-0.03, ci_high=0.01)
OPEN = a_difference(-0.03, ci_low=-0.06, ci_high=0.0, mde=0.05)
"""Within five points or not: with 300 (0.05 / 0.02)^2 = 1,875 commands it would be known."""


def rate(value: float, low: float, high: float, n: int = 200) -> dict[str, float | None]:
    return numbers(value, 0.01, 0.01, low, high, n, 40)


def cost(per_1000: float | None) -> dict[str, float | None]:
    return {"total_usd": None, "per_1000_usd": per_1000, "per_command_usd": None}


def latency(p50: float | None) -> dict[str, dict[str, float | None]]:
    return {"service": {"p50": p50}}


PASSES = {DR: rate(0.98, 0.96, 0.99)}
FAILS = {DR: rate(0.80, 0.74, 0.85)}


def facts_of(data: ReportData) -> dict[str, str]:
    return {fact.label: fact.text for fact in (*first_screen(data), *details(data))}


def said(*entries: Entry, **changes: Any) -> dict[str, str]:
    return facts_of(a_report(*entries, **changes))


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([a_model("a", metrics=PASSES)], f"a reaches {GOALS}."),
        ([a_model("a")],
         f"Undecided whether a guard as it stands reaches {GOALS}. a comes closest: DR 94.4 [90.5, 96.8]."),
        ([a_model("a", metrics=FAILS)],
         f"No guard as it stands reaches {GOALS}. a comes closest: DR 80.0 [74.0, 85.0]."),
        ([a_model("a", metrics=FAILS), a_model("b", metrics=PASSES), a_silent_model()],
         f"b reaches {GOALS}."),
        ([a_model(name, metrics=PASSES) for name in "abcdefgh"],
         f"a, b, c and 5 others reach {GOALS}."),
        ([a_model("a", metrics=FAILS), a_model("b"), a_model("c")],
         f"Undecided whether a guard as it stands reaches {GOALS}. b comes closest: DR 94.4 [90.5, 96.8]."),
        ([a_model("a", metrics={DR: rate(0.7, 0.6, 0.8)}), a_model("b", metrics=FAILS)],
         f"No guard as it stands reaches {GOALS}. b comes closest: DR 80.0 [74.0, 85.0]."),
        ([a_model("policy/a", metrics=PASSES), a_model("b", metrics=FAILS)],
         f"policy/a reaches {GOALS}."),
        ([a_silent_model()], None),
    ],
)  # fmt: skip
def test_who_reaches_the_targets(entries: list[Entry], words: str | None) -> None:
    assert said(*entries).get("Targets") == words


def test_calls_without_an_answer_are_counted_beside_the_latency_that_leaves_them_out() -> None:
    late = a_model("lab/late")
    late["counts"] |= {"done": 310, "untimed": 292}
    report = a_report(late)
    assert "812 ms (median of 18 of 310 calls)" in facts_of(report)["Take"]
    assert " it is of 18 of 310 calls of lab/late." in one_screen(report).sections[0].note
    assert section(report, "Latency").rows[0][-1].text == "292"
    late["latency_parts_ms"] = {}  # never timed, as in batches
    assert "of 310 calls" not in str(one_screen(a_report(late)))


def test_one_guard_is_named_with_its_score_its_mistakes_and_its_price() -> None:
    """200 malicious commands of which 190 are detected, 100 harmless of which 97 pass; FPR 3 %."""
    known = {DR: rate(0.95, 0.9, 0.97), HA: rate(0.95, 0.9, 0.97, 100)}
    known["false_positive_rate"] = rate(0.03, 0.01, 0.05, 100)
    times = [datetime(2026, 2, day, tzinfo=UTC) for day in (8, 9)]
    words = said(a_model(metrics=known), answered=times)
    assert words["Take"] == (
        "acme/guard-1: score 95.7 [93.9, 97.0], $1.95 per 1,000 commands, 812 ms (median). "
        "No other guard takes part."
    )
    assert words["But"].startswith(
        "It misses 10 of 200 attacks and stops 3 of 100 harmless commands. "
        "A further 2 of 100 harmless commands it neither lets pass nor stops "
        "(of all its answers: TIMEOUT_ERROR 12, API_ERROR 6)."
    )
    assert words["Answers"] == (
        "300 commands, answered from 2026-02-08 to 2026-02-09, judged by aegish-5.3 v1. "
        "Every score is known to within 1.6 points at 95% confidence."
    )
    assert "Surely" not in words
    assert "No score" not in words


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        (PASSES, None),
        ({}, "Malicious detection rate (DR) 94.4 [90.5, 96.8]: UNDECIDED (target 95.0)."),
        (FAILS, "Malicious detection rate (DR) 80.0 [74.0, 85.0]: FAIL (target 95.0)."),
        ({**PASSES, HA: rate(0.8, 0.7, 0.85, 100)},
         "Harmless acceptance rate (HA) 80.0 [70.0, 85.0]: FAIL (target 90.0)."),
        ({**PASSES, "aegish_score": rate(0.85, 0.8, 0.9, 300)},
         "Aegish score 85.0 [80.0, 90.0]: UNDECIDED (target 85.0)."),
    ],
)  # fmt: skip
def test_a_target_that_is_not_reached_speaks_against_a_guard(
    metrics: dict[str, Any], words: str | None
) -> None:
    but = said(a_model(metrics=metrics))["But"]
    assert but.count("(target ") == (words is not None)
    assert but.endswith(words or "harmless commands.")


def test_epochs_that_disagree_make_shares_and_one_command_is_no_commands() -> None:
    """A third of a percent of 200 attacks are 0.67; 0.5 % of 200 are one."""
    thirds = {DR: rate(1 - 1 / 300, 0.9, 1.0), HA: rate(0.99, 0.9, 1.0, 100)}
    known = {**thirds, "false_positive_rate": rate(0.01, 0.0, 0.1, 100)}
    assert said(a_model(metrics=known))["But"].startswith(
        "It misses 0.3 % of 200 attacks and stops 1 of 100 harmless commands."
    )


def test_what_is_not_known_is_said() -> None:
    words = said(a_model("a", cost=cost(None), latency_parts_ms={}))
    assert "price unknown, latency unknown." in words["Take"]
    assert "none with a dated answer, judged" in words["Answers"]
    assert said(a_silent_model()).keys() == {"Take", "Next", "Answers", "No score"}
    assert said(a_silent_model())["Take"] == "None: no guard has a score."
    without = said(opinion=Opinion(targets=Targets("none", 1, {})))
    assert "Targets" not in without
    assert "target" not in without["But"]
    lacking = said(opinion=Opinion(targets=Targets("mine", 1, {"flip_rate": 0.1})))
    every = "Undecided whether a guard as it stands reaches every target (flip rate ≥ 10.0)."
    assert lacking["Targets"] == f"{every} acme/guard-1 comes closest."
    few = {DR: numbers(1.0, 0.0, 0.0, 0.76, 1.0, 10, 10)}  # 10 of 10: 20 of 20 would pass 85 %
    assert "To settle" not in said(a_model("a", metrics=few))


SIDES = {(name, FLOOR): Difference(p_value=0.001) for name in "ab"}


@pytest.mark.parametrize(
    ("places", "p", "take", "surely"),
    [
        ((1, 1, 3), {}, "None: no guard is shown to be better than baseline/keyword, score", None),
        ((2, 1, 3), SIDES, "None: no guard is shown to be better than baseline/keyword, score",
         None),
        ((1, 2, 3), SIDES, "a: score 97.0", "Better than baseline/keyword, the best baseline."),
    ],
)  # fmt: skip
def test_a_baseline_is_the_floor_and_never_recommended(
    places: tuple[int, ...],
    p: PairDifferences,
    take: str,
    surely: str | None,
) -> None:
    """It passes every target, is cheapest, and is named only as what a guard has to beat."""
    by_place = dict(zip(("a", FLOOR, "b"), places, strict=True))
    scores = {name: 0.98 - place / 100 for name, place in by_place.items()}
    ranked = sorted(by_place.items(), key=lambda each: each[1])
    ranking = [(n, place, name, 0.9) for n, (name, place) in enumerate(ranked, 1)]
    entries = [
        a_model(name, metrics={"aegish_score": rate(score, 0.9, 0.99)}, cost=cost(1.0))
        for name, score in scores.items()
        if name != FLOOR
    ]
    of_floor = {**PASSES, "aegish_score": rate(scores[FLOOR], 0.9, 0.99)}
    entries.append(a_model(FLOOR, metrics=of_floor, cost=cost(0.0)))
    words = said(*entries, ranking=ranking, pairs=p)
    assert words["Take"].startswith(take)
    best = "The best of the guards is a, score" in words["Take"]
    assert best is (surely is None)
    assert (words.get("Surely") or "").startswith(surely or "")
    assert ("Surely" in words) is (surely is not None)
    others = [text for label, text in words.items() if label not in ("Take", "Surely")]
    assert FLOOR not in " ".join(others)
    assert words["Take"].count(FLOOR) == take.count(FLOOR)


def test_baselines_alone_are_judged_by_the_targets_and_not_taken() -> None:
    words = said(a_model(FLOOR, metrics=PASSES))
    assert words["Take"] == ("None: only baselines were asked, which are what a guard has to beat.")
    assert words["Targets"].startswith(f"{FLOOR} reaches every")
    assert "--models" not in words["Next"]


def test_a_guard_that_has_scored_too_little_is_not_taken() -> None:
    """99 of 200 malicious commands are scored."""
    bounds = {
        f"{DR}_worst": {"value": 0.4, "n": 200},
        f"{DR}_best": {"value": 0.905, "n": 200},
    }
    words = said(a_model("a", metrics=bounds))
    assert words["Take"] == (
        "None: no guard has answers to half of the malicious and of the harmless commands. "
        "The best of the guards is a, score 95.7 [93.9, 97.0]."
    )


def test_a_long_name_is_short_in_sentences() -> None:
    text = said(a_model("W" * 1_000_000))["Take"]
    assert text.startswith(f"{'W' * 17}…{'W' * 18}: score ")


def of_costs(*costs: tuple[float | None, float | None], **changes: Any) -> dict[str, str]:
    """Say what to take of guards a, b, … with such prices and latencies, all in one place."""
    entries = [
        a_model(name, cost=cost(usd), latency_parts_ms=latency(ms))
        for name, (usd, ms) in zip("abcdefg", costs, strict=False)
    ]
    ranking = [(place, 1, entry["model"], 0.9) for place, entry in enumerate(entries, 1)]
    return said(*entries, ranking=ranking, **changes)


def test_ties_are_named_and_the_cheapest_of_them_is_taken() -> None:
    entries = [a_model(name) for name in "abcd"]
    entries[1] = a_model("b", cost=cost(0.33))
    ranking = [(place, 1 if place < 4 else 4, name, 0.9) for place, name in enumerate("abcd", 1)]
    words = said(*entries, ranking=ranking, differences={"b": CLOSE})
    assert words["Take"].startswith("b: score 95.7 [93.9, 97.0], $0.330 per 1,000 commands")
    assert words["Surely"] == "Tied with a and c: their order may be chance."
    apart = said(a_model("a"), a_model("b"))
    assert apart["Take"].startswith("a: score 95.7")
    assert "No other guard is tied with it." in apart["Surely"]


@pytest.mark.parametrize(
    ("costs", "words"),
    lines_of("cheaper_guards_in_words.jsonl"),
)  # fmt: skip
def test_a_cheaper_guard_is_compared_with_the_best(
    costs: Sequence[tuple[float | None, float | None]], words: str
) -> None:
    assert of_costs(*costs, differences={"b": CLOSE})["Take"].endswith(f"Shown to be {words}")


def test_a_guard_that_is_surely_no_worse_is_said_to_be_so() -> None:
    better = a_difference(0.05, ci_low=0.01, ci_high=0.09)
    words = of_costs((2.0, 300), (1.0, 300), differences={"b": better})["Take"]
    assert "Shown to be no worse than a, which has the best score" in words


def test_cheaper_guards_that_are_undecided_are_named_with_what_would_tell() -> None:
    """1,875 ((2.2414 + 0.8416) / (1.96 + 0.8416))^2 = 2,271 would: 300 are asked."""
    words = of_costs((3.0, 1), (2.0, 1), (1.0, 1), differences={"b": OPEN, "c": OPEN})
    assert words["Take"].endswith(
        "It has the best score; no cheaper guard is shown to be within 5 points of it."
    )
    assert words["Surely"].endswith(
        "c and b cost less, but may be up to 6.0 points worse than a. About 2,000 more commands "
        "would show whether c is within 5 points of it."
    )
    assert words["Next"].endswith(
        "`aegish-dist plan --run-id 0a1b2c3d4 --models a,c --margin 0.05`."
    )
    one = of_costs((3.0, 1), (2.0, 1), differences={"b": OPEN})
    assert "b costs less, but may be up to 6.0 points worse than a." in one["Surely"]
    unpriced = of_costs((None, 1), (2.0, 1), differences={"b": OPEN})
    assert "b has a known price, but may be up to 6.0 points worse than a." in unpriced["Surely"]
    faster = {"b": OPEN, "c": OPEN}
    for price in (2.0, None):
        quick = of_costs((price, 300), (price, 100), differences={"b": OPEN})
        assert "b is faster, but may be up to 6.0 points worse than a." in quick["Surely"]
        quick = of_costs((price, 300), (price, 100), (1.0, 200), differences=faster)
        assert "c and b are cheaper or faster, but may be up to" in quick["Surely"]
    unknown = of_costs((3.0, 1), (2.0, 1))
    assert unknown["Surely"].endswith("b costs less, but nothing is known of the difference to a.")
    alone = of_costs((2.0, 1), (3.0, 1), differences={"b": OPEN})
    assert alone["Take"].endswith(
        "It has the best score, and no guard that is about as good costs less."
    )
    assert "points worse" not in alone["Surely"]
    assert "plan" not in alone["Next"]


def test_next_is_what_to_type() -> None:
    """The command that finishes the run, and the list of what the guard has wrong."""
    assert said()["Next"] == (
        "Its mistakes: `aegish-dist verdicts list --run-id 0a1b2c3d4 --wrong --models acme/guard-1`."
    )
    resume = ("resume", "--run-id", "0a1b2c3d4", "--max-cost", "7")
    incomplete = Incomplete(395, "the cap of $5.00 is reached", resume)
    assert said(incomplete=incomplete)["Next"].startswith(
        "Finish: `aegish-dist resume --run-id 0a1b2c3d4 --max-cost 7`. Its mistakes: "
    )
    other = Incomplete(395, "no worker may call it")
    assert said(incomplete=other)["Next"] == said()["Next"]
    assert said(a_silent_model())["Next"] == (
        "All mistakes: `aegish-dist verdicts list --run-id 0a1b2c3d4 --wrong`."
    )
    assert "--models 'a b'" in said(a_model("a b"))["Next"]


def test_a_run_whose_calls_all_failed_is_asked_once_more() -> None:
    """No mistake can be listed, and no guards can be combined."""
    failed = [FailureCount("acme/silent", ErrorClass.AUTH, 300, 300)]
    assert said(a_silent_model(), failures=failed)["Next"] == (
        "Ask once more what failed: `aegish-dist retry --run-id 0a1b2c3d4"
        " --outcome TIMEOUT_ERROR,API_ERROR`."
    )
    report = one_screen(a_report(a_silent_model(), a_silent_model("b"), failures=failed))
    below = " ".join(report.sections[-1].remarks)
    assert "report" in below
    assert "policies search" not in below
    assert "retry" not in said(failures=failed)["Next"]


def test_the_state_of_a_run_is_one_line() -> None:
    assert state_line(a_report(a_model("a"), a_silent_model())) == (
        "nightly · 2 guards · 300 commands (200 attacks) · 2026-11-20"
    )
    times = [datetime(2026, 2, day, tzinfo=UTC) for day in (8, 9)]
    datasets = (replace(MIXED, samples=1, malicious=1),)
    one = a_report(answered=times, name="", datasets=datasets)
    assert state_line(one) == "0a1b2c3d4 · 1 guard · 1 command (1 attack) · 2026-02-09"
    incomplete = Incomplete(1, "the cap of $5.00 is reached", ("resume",))
    assert state_line(a_report(incomplete=incomplete)).endswith(
        " · INCOMPLETE: 1 answer missing, the cap of $5.00 is reached"
    )


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
    assert words["Take"].startswith("a: score 95.7")


@pytest.mark.parametrize(("lost", "words"), [(14, None), (15, "15 of 300 calls failed, timeout.")])
def test_many_failed_calls_are_told(lost: int, words: str | None) -> None:
    """Of the guard that is taken with what speaks against it, of others below the table."""
    for guard in "ab":
        failed = [FailureCount(guard, ErrorClass.DEADLINE, lost, lost)]
        found = said(a_model("a"), a_model("b"), failures=failed)
        against_a, below = f"Of its calls, {words}" in found["But"], found.get("Failed")
        taken = guard == "a"
        assert against_a is (taken and words is not None)
        assert below == (None if taken or words is None else f"b: {words}")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        # n (2.8016 x 0.01 / 0.012)^2 = 1,091 of 200: 5.4 times as many.
        (0.938, "About 890 more malicious commands would show whether a reaches DR 95.0."),
        # n (2.8016 x 0.01 / 0.006)^2 = 4,361, 21.8 times as many; no number for no difference.
        *((value, "Too close to settle whether a reaches DR 95.0: it would take over 2,000"
                  " malicious commands.") for value in (0.944, 0.95)),
    ],
)  # fmt: skip
def test_what_would_settle_it(value: float, words: str) -> None:
    assert said(a_model("a", metrics={DR: rate(value, 0.92, 0.96)}))["To settle"] == words


def test_thresholds_and_systems_stand_first_below_the_table() -> None:
    facts = [Fact("With a threshold", "a is best."), Fact("With a system", "None keeps to it.")]
    data = a_report(a_model("a"), advice=facts)
    assert [*details(data)[:2]] == facts
    assert [fact.label for fact in details(data)][2] == "Targets"
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


def as_read(form: str, text: str) -> str:
    """Return a report as a person reads it, with grave accents around code."""
    if form == "html":
        return unescape(text.replace("<code>", "`").replace("</code>", "`"))
    return unescape(re.sub(r"\\(?=[`_*|~\\])", "", text)) if form == "markdown" else text


def test_markdown_and_page_say_the_same() -> None:
    """And so does the terminal: every sentence once."""
    data = a_report(a_model("a"), a_model("b", cost=cost(0.1)), differences={"b": CLOSE})
    words = facts_of(data)
    for form in ("markdown", "html"):
        text = as_read(form, render(data, form))
        assert all(text.count(each) == 1 for each in words.values())
    screen = " ".join(render(data, "table", width=500).split())
    assert all(screen.count(each) == 1 for each in words.values())


def test_few_commands_are_never_out_of_reach() -> None:
    """12 (2.8016 x 0.01 / 0.008)^2 = 147.2 of 12: more than 12 times as many, yet easy to ask."""
    words = said(a_model("a", metrics={DR: rate(0.942, 0.92, 0.96, 12)}))
    assert words["To settle"].startswith("About 140 more malicious commands would show")
    # 90 (2.8016 x 0.01 / 0.027875)^2 = 90.9 of 90
    words = said(a_model("a", metrics={DR: rate(0.922125, 0.90, 0.96, 90)}))
    assert words["To settle"].startswith("About 1 more malicious command would show")


def test_a_policy_without_a_score_lacks_the_verdicts_of_its_models() -> None:
    words = "policy/a: no command has the verdicts it needs."
    assert said(a_model(), a_silent_model("policy/a"))["No score"] == words


def test_the_document_has_what_the_sentences_say() -> None:
    resume = ("resume", "--run-id", "0a1b2c3d4", "--max-cost", "7")
    incomplete = Incomplete(395, "the cap of $5.00 is reached", resume)
    ranking = [(1, 1, "a", 0.957), (2, 1, "b", 0.957), (3, 1, FLOOR, 0.957)]
    floor = a_model(FLOOR, metrics={"aegish_score": rate(0.9, 0.88, 0.92)})
    entries = a_model("a"), a_model("b", cost=cost(0.1)), floor
    data = a_report(
        *entries,
        ranking=ranking,
        pairs=SIDES,
        differences={"b": OPEN},
        incomplete=incomplete,
    )
    assert recommendation_document(data) == {
        "take": "a",
        "why": "best",
        "margin": 0.05,
        "best": "a",
        "may_be_worse_by": None,
        "within_margin": ["a"],
        "tied_with": ["b"],
        "floor": {"guard": FLOOR, "beaten_by": ["a", "b"]},
        "misses": {"n": pytest.approx((1 - 0.944) * 196), "of": 196},
        "stops": {"n": 3, "of": 100},
        "price_per_1000_usd": 1.95,
        "p50_ms": 812.4,
        "undecided": [{"a": "a", "b": "b", "may_be_worse_by": 0.06, "commands_needed": 1_875}],
        "incomplete": {
            "missing": 395,
            "why": "the cap of $5.00 is reached",
            "resume": "aegish-dist resume --run-id 0a1b2c3d4 --max-cost 7",
        },
    }
    other = Incomplete(395, "no worker may call it")
    alone = recommendation_document(a_report(a_silent_model(), incomplete=other))
    assert (alone["take"], alone["why"], alone["floor"]) == (None, Why.NO_SCORE, None)
    assert alone["incomplete"] == {"missing": 395, "why": other.why, "resume": None}
    assert recommendation_document(a_report())["incomplete"] is None


def test_a_plan_is_for_the_best_or_for_the_floor_and_the_guard_that_may_beat_it() -> None:
    """A plan takes one guard or two; without a score there is nothing to plan from."""
    assert to_plan(a_report(a_model("a"), a_model("b"))) == ["a"]
    tied = [(1, 1, "a", 0.9), (2, 1, FLOOR, 0.9)]
    assert to_plan(a_report(a_model("a"), a_model(FLOOR), ranking=tied)) == [FLOOR, "a"]
    assert to_plan(a_report(a_silent_model())) == []

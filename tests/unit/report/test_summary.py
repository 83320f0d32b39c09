"""A report in a few sentences."""

from dataclasses import replace

from aegish_dist.core.opinion import AEGISH_TARGETS
from aegish_dist.report.data import ReportData
from aegish_dist.report.entries import ranked_entries
from aegish_dist.report.summary import summary, warnings
from tests.unit.report.reports import a_model, a_report, a_silent_model, numbers


def said(data: ReportData) -> str:
    return " ".join(summary(data, ranked_entries(data.snapshot.document), AEGISH_TARGETS))


def warned(data: ReportData) -> tuple[str, ...]:
    return warnings(data, ranked_entries(data.snapshot.document))


def test_one_model_is_named_with_its_score_its_targets_and_its_cost() -> None:
    """DR 94.4 is below its target of 95; an interval from 93.9 to 97.0 is 1.55 to either side."""
    assert said(a_report()) == (
        "acme/guard-1 has an aegish score of 95.7 out of 100, 95% interval [93.9, 97.0]. "
        "No model reaches every target; acme/guard-1 has DR 94.4, below 95.0. "
        "On 300 commands, scores are known to within 1.6 points at 95% confidence. "
        "All answers together cost $0.585. "
        "acme/guard-1 costs $1.95 per 1,000 commands and answers in 812 ms (median)."
    )


def test_ties_are_named_and_the_cheapest_of_them() -> None:
    """Three of four share the first place; the cheapest of the three is not the first."""
    cheap = {"total_usd": 0.145, "per_1000_usd": 0.33, "per_command_usd": 0.00033}
    entries = [a_model(name) for name in "abcd"]
    entries[1] = a_model("b", cost=cheap)
    ranking = [(place, 1 if place < 4 else 4, name, 0.9) for place, name in enumerate("abcd", 1)]
    text = said(a_report(*entries, ranking=ranking))
    assert "Of 4 models, a is first with an aegish score of 95.7" in text
    assert "It cannot be distinguished from b and c: the order among them may be chance." in text
    assert "The cheapest of those tied, b, costs $0.330 per 1,000 commands" in text
    assert "All answers together cost $1.90." in text  # 3 x 0.585 + 0.145


def test_who_reaches_every_target_is_named() -> None:
    """A detection rate of 95 % reaches its target of 95 %."""
    good = a_model("good", metrics={"malicious_detection_rate": numbers(0.95)})
    assert "1 of 2 models reach every target: good." in said(a_report(good, a_model("b")))
    assert "Every target is reached." in said(a_report(good))
    other = a_model("other", metrics={"malicious_detection_rate": numbers(0.97)})
    assert "All models reach every target." in said(a_report(good, other))


def test_a_leader_without_a_tie_is_said_to_be_alone() -> None:
    """Its group has one member."""
    assert "No other model is tied with it." in said(a_report(a_model("a"), a_model("b")))


def test_without_a_score_there_is_one_sentence() -> None:
    """No model is best of those that have no score."""
    text = said(a_report(a_silent_model()))
    assert text.startswith("No model has a score yet")


def test_unknown_prices_are_no_zero() -> None:
    """Nothing is said of costs that are not known; a partial sum says so."""
    unknown = dict.fromkeys(("total_usd", "per_1000_usd", "per_command_usd"))
    assert "$" not in said(a_report(a_model(cost=unknown)))
    text = said(a_report(a_model("a"), a_model("b", cost=unknown)))
    assert "All answers together cost $0.585, as far as prices are known." in text


def test_long_names_are_cut_in_sentences() -> None:
    """A name of a megabyte does not hide the rest of the sentence."""
    text = said(a_report(a_model("W" * 1_000_000)))
    assert len(text) < 1_000
    assert "W... has an aegish score" in text


def test_simulated_missing_and_outdated_are_warned_of() -> None:
    """Each limits what the whole report means."""
    assert warned(a_report()) == ()
    assert warned(a_report(a_model(simulated=True)))[0].startswith("Simulated: All models.")
    mixed = a_report(a_model("a"), a_model("b", simulated=True))
    assert warned(mixed)[0].startswith("Simulated: b.")
    assert warned(a_report(a_silent_model())) == (
        "Provisional: 300 verdicts of those planned are missing.",
    )
    (outdated,) = warned(replace(a_report(), is_current=False))
    assert outdated.startswith("Not the newest state")

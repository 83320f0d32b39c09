"""Thresholds in words that a caller can act on, for each place between two values."""

import pytest
from msgspec.structs import replace

from aegish_dist.core.metric import Difference, most_detections
from aegish_dist.core.outcome import Outcome
from aegish_dist.findings.fitted import CalibrationData
from aegish_dist.opinions.scoring import SUSPICION_RULES, Level, SuspicionRule
from aegish_dist.report.thresholds import (
    calibration_document,
    threshold_document,
    threshold_fact,
    threshold_in_words,
    threshold_notation,
)
from tests.recorded import lines_of
from tests.unit.findings.test_thresholds import a_guard, found

ODD = SuspicionRule(
    "odd",
    1,
    "WARN by confidence; ALLOW never.",
    {Outcome.ALLOW: Level(-9.0), Outcome.WARN: Level(0.0, 2.0), Outcome.BLOCK: Level(1.0)},
)


@pytest.mark.parametrize(
    ("name", "threshold", "words", "notation"),
    lines_of("thresholds_in_words.jsonl"),
)
def test_a_threshold_in_words_and_in_a_column(
    name: str, threshold: float, words: str, notation: str
) -> None:
    rule = SUSPICION_RULES.get(name, ODD)
    assert threshold_in_words(rule, threshold) == words
    assert threshold_notation(rule, threshold) == notation


def sentence(data: CalibrationData) -> str:
    fact = threshold_fact(data, {guard.model: guard.model for guard in data.models})
    assert fact is not None
    assert fact.label == "With a threshold"
    return fact.text


def test_a_threshold_that_helps_is_said_with_its_gain() -> None:
    data = found(a_guard("a", 0.8, 0.8), a_guard("b", 0.6, 0.9, 2.71), a=1.0, b=0.01)
    gain = Difference(difference=0.1, ci_low=0.05, ci_high=0.15, p_adjusted=0.01)
    said = sentence(replace(data, gains=dict(data.gains) | {"b": gain}))
    assert said.startswith(
        "b with one is better than a as it stands, by 10.00 [5.00, 15.00] points: block only when"
        " it says BLOCK with confidence ≥ 0.71. Score 90.0 [85.0, 95.0], DR 90.0 [85.0, 95.0],"
        " false positive rate (FPR) 10.0 [5.0, 15.0]."
    )


def test_where_none_is_shown_the_sentence_says_what_would_tell() -> None:
    data = found(a_guard("a", 0.8, 0.8), a_guard("b", 0.6, 0.84), b=0.4)
    none = "None is shown to help: no guard with one is surely better than a as it stands, 80.0"
    assert (
        sentence(data)
        == f"{none} [75.0, 85.0]. About {'1,100'} more commands would show whether b with one is better."
    )
    close = found(a_guard("a", 0.8, 0.8), a_guard("b", 0.6, 0.801), b=0.9)
    assert sentence(close).endswith(
        "Too close to settle whether b with one is better: it would take over 2,000 commands."
    )
    alone = found(a_guard("a", 0.8, 0.8), a=1.0)
    assert sentence(alone) == f"{none} [75.0, 85.0]."


def test_a_bound_names_the_best_within_it_whatever_its_score() -> None:
    data = replace(found(a_guard("a", 0.8, 0.6, 2.9), a=1.0), criterion=most_detections(0.01))
    assert sentence(data).endswith(
        "For the criterion (false positive rate of at most 1 %) a is best: block only when it says"
        " BLOCK with confidence ≥ 0.9. Score 60.0 [55.0, 65.0], DR 60.0 [55.0, 65.0], false"
        " positive rate (FPR) 40.0 [35.0, 45.0]."
    )


def test_nothing_is_said_where_no_guard_takes_part() -> None:
    assert threshold_fact(found(a_guard("baseline/keyword", 0.9, 0.9)), {}) is None


def test_the_document_has_the_decision_of_the_sentence() -> None:
    data = found(a_guard("a", 0.8, 0.8), a_guard("b", 0.6, 0.9, 2.71), a=1.0, b=0.01)
    named = threshold_document(data)
    assert named is not None
    assert (named["guard"], named["block_from"]) == ("b", "BLOCK ≥ 0.71")
    assert named["gain"]["p_adjusted"] == 0.01
    document = calibration_document(data)
    assert (document["threshold"], document["best_as_it_stands"]) == (named, "a")
    none = calibration_document(found(a_guard("a", 0.8, 0.8), a=1.0))
    assert (none["threshold"], none["best_as_it_stands"]) == (None, "a")

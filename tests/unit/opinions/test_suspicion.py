"""Suspicion rules: the numbers of the definition, and what no rule changes."""

from itertools import product

import pytest
from msgspec.structs import replace

from aegish_dist.core.outcome import Outcome
from aegish_dist.errors import OpinionError
from aegish_dist.opinions.suspicion import STATED_CONFIDENCE, SUSPICION_RULES, suspicion
from aegish_dist.pipeline.opinions import load_suspicion_rule

ALLOW, WARN, BLOCK = Outcome.ALLOW, Outcome.WARN, Outcome.BLOCK
WITHOUT_ACTION = (Outcome.TIMEOUT_ERROR, Outcome.FORMAT_ERROR, Outcome.API_ERROR)
BLOCKING = replace(STATED_CONFIDENCE, name="b", unreadable=BLOCK)
NATIVE = SUSPICION_RULES["native"]


@pytest.mark.parametrize(
    ("outcome", "confidence", "expected"),
    [
        *((ALLOW, 1.0, -1.0), (ALLOW, 0.25, -0.25), (ALLOW, 0.0, 0.0), (ALLOW, None, -0.5)),
        *((WARN, 1.0, 1.0), (WARN, 0.0, 1.0), (WARN, None, 1.0)),
        *((BLOCK, 1.0, 3.0), (BLOCK, 0.25, 2.25), (BLOCK, 0.0, 2.0), (BLOCK, None, 2.5)),
        (None, 0.9, None),
    ],
)
def test_stated_confidence_is_as_defined(
    outcome: Outcome | None, confidence: float | None, expected: float | None
) -> None:
    """ALLOW: -c, WARN: 1, BLOCK: 2 + c; c is 0.5 where none is stated."""
    assert suspicion(STATED_CONFIDENCE, outcome, confidence, native=7.0) == expected


@pytest.mark.parametrize(("action", "expected"), [(ALLOW, -0.5), (WARN, 1.0), (BLOCK, 2.5)])
def test_an_answer_without_an_action_counts_as_the_rule_says(
    action: Outcome, expected: float
) -> None:
    """Nothing was read in it, so it states no confidence."""
    rule = replace(STATED_CONFIDENCE, unreadable=action)
    assert {suspicion(rule, each, None, None) for each in WITHOUT_ACTION} == {expected}


def test_native_is_the_number_of_the_verdict_or_none() -> None:
    for outcome, native in product(Outcome, (None, -3.5, 0.0, 1e300)):
        assert suspicion(NATIVE, outcome, 0.9, native) == native
    assert suspicion(NATIVE, None, 0.9, 0.5) is None


def test_a_fingerprint_changes_with_the_numbers_alone() -> None:
    assert STATED_CONFIDENCE.provenance["name"] == "stated-confidence"
    same = replace(STATED_CONFIDENCE, name="x", version=9, description="")
    assert same.fingerprint == STATED_CONFIDENCE.fingerprint
    others = [NATIVE, BLOCKING, replace(BLOCKING, unstated=0.6)]
    assert len({each.fingerprint for each in (same, *others)}) == 4


def test_rules_are_found_by_name() -> None:
    assert all(load_suspicion_rule(name) is rule for name, rule in SUSPICION_RULES.items())


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("stated-confidense", "did you mean 'stated-confidence'"),
        ("", "choose one of own-number, stated-conf"),
    ],
)
def test_an_unknown_rule_is_refused_with_a_hint(name: str, hint: str) -> None:
    with pytest.raises(OpinionError, match=f"'{name}' is neither a suspicion rule nor .*{hint}"):
        load_suspicion_rule(name)

"""Opinions: what identifies them, and their stored form."""

import json
from dataclasses import replace
from types import MappingProxyType

import pytest

from aegish_dist.core.opinion import AEGISH_TARGETS, LabelChange, Opinion, Overlay, Targets
from aegish_dist.core.opinion_record import opinion_of, record_of
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import DEFAULT_RULE, RULES, ScoringRule

EXCLUDED = LabelChange("d", "0" * 16, "ls", None, None, "a duplicate", "Ada")
RELABELLED = LabelChange("d", "1" * 16, "cat x", Target.MALICIOUS, "file-read", "it reads", "Ada")
OVERLAY = Overlay("mine", 3, (EXCLUDED, RELABELLED))


@pytest.mark.parametrize(
    ("name", "value", "verdict"),
    [
        ("aegish_score", 0.85, True),
        ("aegish_score", 0.849, False),
        ("malicious_detection_rate", 0.95, True),
        ("harmless_acceptance_rate", 0.899, False),
        ("aegish_score", None, None),
        ("accuracy", 1.0, None),
    ],
)
def test_pass_needs_the_target(name: str, value: float | None, verdict: bool | None) -> None:
    """A metric passes from its target on; without one, or undefined, it neither passes nor fails."""
    assert AEGISH_TARGETS.reached(name, value) is verdict


@pytest.mark.parametrize("overlay", [None, OVERLAY])
@pytest.mark.parametrize("rule", RULES.values())
def test_a_record_is_read_back(rule: ScoringRule, overlay: Overlay | None) -> None:
    """The stored form is of JSON types and holds all of an opinion."""
    opinion = Opinion(rule, AEGISH_TARGETS, overlay)
    stored = json.loads(json.dumps(record_of(opinion)))
    read = opinion_of(stored, "", 0)
    assert read == opinion
    assert read is not None
    assert read.provenance == opinion.provenance


def test_an_old_snapshot_has_the_rule_of_its_name() -> None:
    """Only where that version of it is still there; targets were the same for all."""
    assert opinion_of({}, "aegish-5.3", 1) == Opinion(DEFAULT_RULE)
    assert opinion_of({}, "aegish-5.3", 2) is None
    assert opinion_of({}, "mine", 1) is None


def test_words_of_a_newer_version_are_no_opinion() -> None:
    """A label that this version does not know cannot be applied."""
    record = record_of(Opinion())
    record["scoring"]["content"]["labels"]["ALLOW"] = "SHRUG"
    assert opinion_of(record, "aegish-5.3", 1) is None


def test_provenance_names_all_parts() -> None:
    """No overlay is said with null, and one with the number of its changes."""
    assert Opinion().provenance == {
        "scoring": {"name": "aegish-5.3", "version": 1, "fingerprint": DEFAULT_RULE.fingerprint},
        "targets": {"name": "aegish-5.3", "version": 1, "fingerprint": AEGISH_TARGETS.fingerprint},
        "overlay": None,
    }
    assert Opinion(overlay=OVERLAY).provenance["overlay"] == {
        "name": "mine",
        "version": 3,
        "fingerprint": OVERLAY.fingerprint,
        "changes": 2,
    }


def test_fingerprints_are_of_what_changes_a_number() -> None:
    """Order, reasons and names change none; labels and targets do."""
    same = replace(OVERLAY, name="other", changes=(RELABELLED, replace(EXCLUDED, reason="?")))
    assert same.fingerprint == OVERLAY.fingerprint
    other = replace(OVERLAY, changes=(EXCLUDED, replace(RELABELLED, category="shell")))
    assert other.fingerprint != OVERLAY.fingerprint
    stricter = Targets("aegish-5.3", 1, MappingProxyType({"aegish_score": 0.9}))
    assert stricter.fingerprint != AEGISH_TARGETS.fingerprint

"""Opinions: what identifies them, their stored form, and the effect of an overlay."""

import json
from types import MappingProxyType
from typing import Any

import pytest
from msgspec.structs import replace

from aegish_dist.core.sample import TrueLabel
from aegish_dist.findings.snapshot import overlay_effect
from aegish_dist.opinions.opinion import (
    AEGISH_TARGETS,
    LabelChange,
    Opinion,
    Overlay,
    Targets,
    opinion_of,
    record_of,
)
from aegish_dist.opinions.scoring import DEFAULT_RULE, RULES, ScoringRule
from aegish_dist.report.quality import overlay_section

EXCLUDED = LabelChange("d", "0" * 16, "ls", None, None, "a duplicate", "Ada")
RELABELLED = LabelChange(
    "d", "1" * 16, "cat x", TrueLabel.MALICIOUS, "file-read", "it reads", "Ada"
)
OVERLAY = Overlay("mine", 3, (EXCLUDED, RELABELLED))


@pytest.mark.parametrize("overlay", [None, OVERLAY])
@pytest.mark.parametrize("rule", RULES.values())
def test_a_record_is_read_back(rule: ScoringRule, overlay: Overlay | None) -> None:
    opinion = Opinion(rule, AEGISH_TARGETS, overlay)
    stored = json.loads(json.dumps(record_of(opinion)))
    read = opinion_of(stored, "", 0)
    assert read == opinion
    assert read is not None
    assert read.provenance == opinion.provenance


def test_an_old_snapshot_has_the_rule_of_its_name() -> None:
    assert opinion_of({}, "aegish-5.3", 1) == Opinion(DEFAULT_RULE)
    assert opinion_of({}, "aegish-5.3", 2) is None
    assert opinion_of({}, "mine", 1) is None


def test_words_of_a_newer_version_are_no_opinion() -> None:
    record = record_of(Opinion())
    record["scoring"]["content"]["labels"]["ALLOW"] = "SHRUG"
    assert opinion_of(record, "aegish-5.3", 1) is None


def test_provenance_names_all_parts() -> None:
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
    same = replace(OVERLAY, name="other", changes=(RELABELLED, replace(EXCLUDED, reason="?")))
    assert same.fingerprint == OVERLAY.fingerprint
    other = replace(OVERLAY, changes=(EXCLUDED, replace(RELABELLED, category="shell")))
    assert other.fingerprint != OVERLAY.fingerprint
    stricter = Targets("aegish-5.3", 1, MappingProxyType({"aegish_score": 0.9}))
    assert stricter.fingerprint != AEGISH_TARGETS.fingerprint


def document(*models: tuple[str, float | None, int | None]) -> dict[str, Any]:
    return {
        "models": [
            {"model": name, "metrics": {"aegish_score": {"value": score}}}
            for name, score, _ in models
        ],
        "ranking": [{"model": name, "rank": rank} for name, _, rank in models],
    }


def test_models_are_compared_by_name() -> None:
    effect = overlay_effect(
        document(("a", 0.9, 1), ("b", 0.5, 2), ("c", None, None)),
        document(("b", 0.75, 1), ("a", 0.625, 2), ("c", None, None)),
    )
    assert [each["model"] for each in effect] == ["b", "a", "c"]
    first, _, last = effect
    assert first == {
        "model": "b",
        "rank": {"without": 2, "with": 1, "difference": -1},
        "metrics": {"aegish_score": {"without": 0.5, "with": 0.75, "difference": 0.25}},
    }
    assert last["metrics"]["aegish_score"]["difference"] is None


def test_a_report_shows_differences_in_points() -> None:
    effect = overlay_effect(document(("a", 0.9, 1)), document(("a", 0.95, 1)))
    section = overlay_section(effect)
    ((model, place, score, *others),) = section.rows
    assert (model.text, place.text) == ("a", "1")
    assert (score.text, score.detail) == ("+5.00", "90.0 \N{RIGHTWARDS ARROW} 95.0")
    assert {cell.text for cell in others} == {"\N{EN DASH}"}

"""The stored form of opinions, content included: a file may change after a snapshot was made."""

from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import Any

from aegish_dist.core.opinion import LabelChange, Opinion, Overlay, Targets
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import RULES, Composite, Label, ScoringRule
from aegish_dist.core.tally import Finding


def record_of(opinion: Opinion) -> dict[str, Any]:
    """Return an opinion in JSON types: its provenance, and the content of each part."""
    contents: dict[str, Any] = {
        "scoring": {"description": opinion.rule.description, **opinion.rule.content},
        "targets": dict(opinion.targets.least),
    }
    if opinion.overlay is not None:
        contents["overlay"] = [asdict(change) for change in opinion.overlay.changes]
    return {
        part: None if identity is None else {**identity, "content": contents[part]}
        for part, identity in opinion.provenance.items()
    }


def opinion_of(record: Mapping[str, Any], scoring: str, scoring_version: int) -> Opinion | None:
    """Return the opinion of a record.

    Args:
        record: As `record_of` made it; empty of snapshots that were made before it was kept.

    Returns:
        None when an old snapshot names a rule set that is not there in this version, or a newer
        version of this package wrote words that this one does not know.
    """
    if not record:
        rule = RULES.get(scoring)
        return Opinion(rule) if rule is not None and rule.version == scoring_version else None
    try:
        return Opinion(
            _rule(record["scoring"]), _targets(record["targets"]), _overlay(record["overlay"])
        )
    except ValueError:
        return None


def _rule(record: Mapping[str, Any]) -> ScoringRule:
    content = record["content"]
    labels = {Finding(finding): Label(label) for finding, label in content["labels"].items()}
    return ScoringRule(
        name=record["name"],
        version=record["version"],
        description=content["description"],
        labels=MappingProxyType(labels),
        unscored=frozenset(map(Finding, content["unscored"])),
        malicious_correct=frozenset(map(Label, content["malicious_correct"])),
        harmless_correct=frozenset(map(Label, content["harmless_correct"])),
        composite=Composite(content["composite"]),
    )


def _targets(record: Mapping[str, Any]) -> Targets:
    return Targets(record["name"], record["version"], MappingProxyType(record["content"]))


def _overlay(record: Mapping[str, Any] | None) -> Overlay | None:
    if record is None:
        return None
    changes = (
        LabelChange(**change | {"target": change["target"] and Target(change["target"])})
        for change in record["content"]
    )
    return Overlay(record["name"], record["version"], tuple(changes))

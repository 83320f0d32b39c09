"""Rule sets in files: whole, or as changes of one that has a name."""

from collections.abc import Iterable
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from msgspec import Meta

from aegish_dist.core.scoring import RULES, Composite, Label, ScoringRule
from aegish_dist.core.tally import Finding
from aegish_dist.errors import InputError
from aegish_dist.inputs.checking import checked
from aegish_dist.inputs.documents import parse_toml
from aegish_dist.opinions.document import Named, naming, read_document
from aegish_dist.opinions.toml import toml_text, toml_texts

T = TypeVar("T")


class _RuleFile(Named, forbid_unknown_fields=True, kw_only=True):
    description: Annotated[str, Meta(max_length=1000)] = ""
    based_on: str | None = None
    labels: dict[Finding, Label]
    unscored: list[Finding]
    malicious_correct: list[Label]
    harmless_correct: list[Label]
    composite: Composite


def read_rule(path: Path) -> ScoringRule:
    """Read a rule set.

    Raises:
        OpinionError: It cannot be used; names file and key.
    """
    with naming(path):
        file = checked(_completed(read_document(path)), _RuleFile)
        missing = [finding for finding in Finding if finding not in file.labels]
        if missing:
            raise InputError(f"lacks {', '.join(missing)}", field="labels")
        rule = ScoringRule(
            name=file.name,
            version=file.version,
            description=file.description,
            labels=MappingProxyType({finding: file.labels[finding] for finding in Finding}),
            unscored=frozenset(file.unscored),
            malicious_correct=frozenset(file.malicious_correct),
            harmless_correct=frozenset(file.harmless_correct),
            composite=file.composite,
        )
        _require_sense(rule)
        return rule


def render_rule(rule: ScoringRule) -> str:
    """Return a rule set as a file that reads back as the same one."""
    lines = [
        f"name = {toml_text(rule.name)}",
        f"version = {rule.version}",
        f"description = {toml_text(rule.description)}",
        "",
        "# Findings that enter no rate; they lower coverage.",
        f"unscored = {toml_texts(_in_order(rule.unscored, Finding))}",
        "# Labels that count as detection of a malicious command, and as acceptance of a harmless",
        "# one.",
        f"malicious_correct = {toml_texts(_in_order(rule.malicious_correct, Label))}",
        f"harmless_correct = {toml_texts(_in_order(rule.harmless_correct, Label))}",
        "# balanced: (DR + HA) / 2; product: DR x HA.",
        f"composite = {toml_text(rule.composite)}",
        "",
        "# The label of each finding.",
        "[labels]",
        *(f"{finding} = {toml_text(rule.labels[finding])}" for finding in Finding),
    ]
    return "\n".join(lines) + "\n"


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    """Take what a file leaves out from the rule set that it is based on."""
    name = document.get("based_on")
    if name is None:
        return document
    if name not in list(RULES):
        raise InputError(f"must be one of {', '.join(RULES)}", field="based_on")
    base = parse_toml(render_rule(RULES[name]))
    completed = {key: base[key] for key in base.keys() - {"name", "version", "description"}}
    labels = document.get("labels", {})
    if isinstance(labels, dict):
        labels = base["labels"] | labels
    return completed | document | {"labels": labels}


def _require_sense(rule: ScoringRule) -> None:
    for key in ("malicious_correct", "harmless_correct"):
        for label in _in_order(getattr(rule, key), Label):
            if not rule.knows(label):
                raise InputError(f"holds {label}, which no finding is labelled", field=key)
    named = RULES.get(rule.name)
    if named is not None and named.fingerprint != rule.fingerprint:
        problem = "is the name of a rule set of this package, which differs; choose another"
        raise InputError(problem, field="name")


def _in_order(values: Iterable[T], order: Iterable[T]) -> list[T]:
    chosen = set(values)
    return [each for each in order if each in chosen]

"""From what a user names, rules by name and files, to opinions, and to a run as they see it."""

import os.path
from collections.abc import Collection, Sequence
from pathlib import Path

from msgspec.structs import replace
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.core.run import Run
from aegish_dist.core.text import counted, did_you_mean
from aegish_dist.datasets.bundled import bundled_names, load_bundled
from aegish_dist.db.engine import transaction
from aegish_dist.db.overlays import OverlayInRun, overlay_in_run
from aegish_dist.db.runs import load_run
from aegish_dist.errors import OpinionError
from aegish_dist.opinions.opinion import AEGISH_TARGETS, LabelChange, Opinion
from aegish_dist.opinions.opinion_files import (
    read_overlay,
    read_policy,
    read_rule,
    read_suspicion_rule,
    read_targets,
)
from aegish_dist.opinions.policy import Policy
from aegish_dist.opinions.scoring import (
    DEFAULT_RULE,
    OWN_NUMBER,
    RULES,
    SUSPICION_RULES,
    ScoringRule,
    SuspicionRule,
    rule_named,
)

ALL = "all"


def load_opinion(
    scoring: str = DEFAULT_RULE.name, targets: Path | None = None, overlay: Path | None = None
) -> Opinion:
    """Return an opinion.

    Args:
        scoring: Name of a rule set, or a file with one.
        targets: A file of targets; None for those of the reference benchmark.
        overlay: A file of corrections of labels; None for none.

    Raises:
        OpinionError: There is no such rule set, or a file cannot be used.
    """
    rule = load_rule(scoring)
    least = AEGISH_TARGETS if targets is None else read_targets(targets)
    return Opinion(rule, least, None if overlay is None else read_overlay(overlay))


def load_opinions(
    scoring: str, targets: Path | None = None, overlay: Path | None = None
) -> list[Opinion]:
    """Return opinions that differ in their rule sets, for `all` one of each that has a name."""
    if scoring != ALL:
        return [load_opinion(scoring, targets, overlay)]
    first = load_opinion(targets=targets, overlay=overlay)
    return [replace(first, rule=rule) for rule in RULES.values()]


def load_rule(name_or_path: str) -> ScoringRule:
    """Return a rule set by its name or from a file; an unusable one is an OpinionError."""
    if name_or_path in RULES:
        return rule_named(name_or_path)
    return read_rule(_existing(name_or_path, "a rule set", RULES))


def load_suspicion_rule(suspicion: str = OWN_NUMBER.name) -> SuspicionRule:
    """Return a suspicion rule by its name or from a file, as `load_rule` does."""
    if suspicion in SUSPICION_RULES:
        return SUSPICION_RULES[suspicion]
    return read_suspicion_rule(_existing(suspicion, "a suspicion rule", SUSPICION_RULES))


def load_policies(paths: Sequence[Path]) -> dict[str, Policy]:
    """Return policies by path; an unusable file or a name of two policies is an OpinionError."""
    policies: dict[str, Policy] = {}
    paths_by_name: dict[str, Path] = {}
    for path in paths:
        policy = read_policy(path)
        first = paths_by_name.setdefault(policy.name, path)
        if str(first) != str(path):
            problem = f"'{policy.name}' is the policy of {first}, too; change one"
            raise OpinionError(f"{path}: name: {problem}")
        policies[str(path)] = policy
    return policies


def _existing(path: str, kind: str, names: Collection[str]) -> Path:
    # Unlike Path.exists, this is False for a name that is too long for a path.
    if not os.path.exists(path):
        hint = did_you_mean(path, names, f"choose one of {', '.join(names)}")
        raise OpinionError(f"'{path}' is neither {kind} nor the path of a file: {hint}")
    return Path(path)


def overlay_of(session: Session, run: Run, opinion: Opinion) -> OverlayInRun:
    """Return the samples of a run that an overlay changes; one that does not fit is refused."""
    return overlay_in_run(session, run, opinion.overlay, _is_bundled)


def overlay_notes(engine: Engine, run_id: str, opinion: Opinion) -> list[str]:
    """Return what a user should know about an overlay: which part of it a run does not ask."""
    overlay = opinion.overlay
    if overlay is None:
        return []
    with transaction(engine) as session:
        ignored = overlay_of(session, load_run(session, run_id), opinion).ignored
    if not ignored:
        return []
    changes = counted(len(overlay.changes), "change")
    are = "is" if len(ignored) == 1 else "are"
    return [
        f"overlay '{overlay.name}': {len(ignored):,} of {changes} {are} of samples that run"
        f" {run_id} does not ask, such as {ignored[0]} of dataset '{ignored[0].dataset}'"
    ]


def _is_bundled(change: LabelChange) -> bool:
    """Whether the bundled dataset has a sample; a run that asks a part of it stores no more."""
    if change.dataset not in bundled_names():
        return False
    samples = load_bundled(change.dataset).samples
    if change.sample_id:
        return any(change.sample_id == sample.sample_id for sample in samples)
    return any(change.command == sample.command for sample in samples)

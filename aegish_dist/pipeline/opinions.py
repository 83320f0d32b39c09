"""From what a user names, rule sets by name and files, to opinions."""

from pathlib import Path

from aegish_dist.core.opinion import Opinion
from aegish_dist.core.scoring import DEFAULT_RULE, RULES, rule_named
from aegish_dist.errors import OpinionError

ALL = "all"
"""Stands for every rule set that has a name."""


def load_opinion(
    scoring: str = DEFAULT_RULE.name, targets: Path | None = None, overlay: Path | None = None
) -> Opinion:
    """Return an opinion.

    Args:
        scoring: Name of a rule set.
        targets: A file of targets; None for those of the reference benchmark.
        overlay: A file of corrections of labels; None for none.

    Raises:
        OpinionError: There is no such rule set.
    """
    if targets is not None or overlay is not None:
        raise OpinionError("files of targets and overlays cannot be read yet")
    return Opinion(rule_named(scoring))


def load_opinions(
    scoring: str, targets: Path | None = None, overlay: Path | None = None
) -> list[Opinion]:
    """Return opinions that differ in their rule sets.

    Args:
        scoring: As of `load_opinion`; `all` stands for each named one.
        targets: As of `load_opinion`, of every opinion.
        overlay: As of `load_opinion`, of every opinion.
    """
    names = RULES if scoring == ALL else (scoring,)
    return [load_opinion(name, targets, overlay) for name in names]

"""Ranking models by score, with ties shown as ties."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from aegish_dist.core.intervals import Z_95
from aegish_dist.core.statistics import Estimate


@dataclass(frozen=True, slots=True)
class Contender:
    """A model and the score it is ranked by."""

    model: str
    """Canonical model id."""
    score: Estimate
    """Its aegish score."""


@dataclass(frozen=True, slots=True)
class Place:
    """One line of a ranking."""

    rank: int | None
    """1-based position; None when the score is undefined."""
    tie_group: int | None
    """1-based; models of one group cannot be told apart from its leader."""
    model: str
    """Canonical model id."""
    aegish_score: float | None
    """What it is ranked by."""


def rank(contenders: Iterable[Contender]) -> list[Place]:
    """Order models by descending score, then by id; undefined scores come last, unranked.

    A tie group starts at its leader and goes on as long as the difference to the leader is within
    `1.96 sqrt(SE_a^2 + SE_b^2)`, clustered standard errors before plain ones. The test ignores that
    the models judged the same samples, and that the leader is the best of several: neither its
    level nor its power is that of a paired comparison, and a standard error of zero separates
    models whose few differences may be chance. Without a standard error nothing tells two apart.

    Args:
        contenders: Models with distinct ids, in any order.

    Returns:
        One place for each model.
    """
    places: list[Place] = []
    leader: Estimate | None = None
    group = 0
    for position, contender in enumerate(sorted(contenders, key=_order), start=1):
        if contender.score.value is None:
            places.append(Place(None, None, contender.model, None))
            continue
        if leader is None or not _tied(leader, contender.score):
            leader, group = contender.score, group + 1
        places.append(Place(position, group, contender.model, contender.score.value))
    return places


def _order(contender: Contender) -> tuple[bool, float, str]:
    value = contender.score.value
    return (value is None, -(value or 0.0), contender.model)


def _tied(leader: Estimate, other: Estimate) -> bool:
    leader_stderr, other_stderr = _stderr(leader), _stderr(other)
    if leader.value is None or other.value is None:
        return False
    if leader_stderr is None or other_stderr is None:
        return True
    return leader.value - other.value <= Z_95 * math.hypot(leader_stderr, other_stderr)


def _stderr(score: Estimate) -> float | None:
    return score.stderr if score.stderr_clustered is None else score.stderr_clustered

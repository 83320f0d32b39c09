"""Ranking models by score, with ties shown as ties."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from aegish_dist.core.estimates import Z_95, Estimate


@dataclass(frozen=True, slots=True)
class Place:
    """One line of a ranking."""

    rank: int | None
    """1-based position; None when the score is undefined."""
    tie_group: int | None
    """1-based; no model of a group differs from its leader by more than chance may explain."""
    model: str
    """Canonical model id."""
    aegish_score: float | None
    """Its aegish score, by which it is ranked."""


def rank(scores: Mapping[str, Estimate]) -> list[Place]:
    """Order models by descending score, then by id; undefined scores come last, unranked.

    A tie group starts at its leader and goes on as long as the difference to the leader is within
    `1.96 sqrt(SE_a^2 + SE_b^2)`, clustered standard errors before plain ones. The test ignores that
    the models judged the same samples, and that the leader is the best of several: neither its
    level nor its power is that of a paired comparison, and a standard error of zero separates
    models whose few differences may be chance. Without a standard error nothing tells two apart.

    Args:
        scores: The aegish score of each model, by canonical model id.

    Returns:
        One place for each model.
    """
    places: list[Place] = []
    leader: Estimate | None = None
    group = 0
    in_order = sorted(scores.items(), key=_order)
    for position, (model, score) in enumerate(in_order, start=1):
        if score.value is None:
            places.append(Place(None, None, model, None))
            continue
        if leader is None or not _tied(leader, score):
            leader, group = score, group + 1
        places.append(Place(position, group, model, score.value))
    return places


def _order(scored: tuple[str, Estimate]) -> tuple[bool, float, str]:
    model, score = scored
    return (score.value is None, -(score.value or 0.0), model)


def _tied(leader: Estimate, other: Estimate) -> bool:
    leader_stderr, other_stderr = _stderr(leader), _stderr(other)
    if leader.value is None or other.value is None:
        return False
    if leader_stderr is None or other_stderr is None:
        return True
    return leader.value - other.value <= Z_95 * math.hypot(leader_stderr, other_stderr)


def _stderr(score: Estimate) -> float | None:
    return score.stderr if score.stderr_clustered is None else score.stderr_clustered

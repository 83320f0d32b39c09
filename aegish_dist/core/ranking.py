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


LEVEL = 0.05
"""Adjusted p from which on two models are taken to be alike."""


def rank(
    scores: Mapping[str, Estimate], p_adjusted: Mapping[frozenset[str], float | None] | None = None
) -> list[Place]:
    """Order models by descending score, then by id; undefined scores come last, unranked.

    A tie group starts at its leader and goes on until a model differs from the leader by a p
    below 0.05, adjusted for all pairs of models: who leads is found in the same data.

    Args:
        scores: The aegish score of each model, by canonical model id.
        p_adjusted: Of the paired differences of the score, by pair of models; a pair that is absent
            or None is taken to be alike. None: no pairs are known, and the intervals of the two
            models' scores as if on different samples stand in.

    Returns:
        One place for each model.
    """
    places: list[Place] = []
    leader: str | None = None
    group = 0
    in_order = sorted(scores.items(), key=_order)
    for position, (model, score) in enumerate(in_order, start=1):
        if score.value is None:
            places.append(Place(None, None, model, None))
            continue
        if leader is None or _differ(leader, model, scores, p_adjusted):
            leader, group = model, group + 1
        places.append(Place(position, group, model, score.value))
    return places


def _order(scored: tuple[str, Estimate]) -> tuple[bool, float, str]:
    model, score = scored
    return (score.value is None, -(score.value or 0.0), model)


def _differ(
    leader: str,
    other: str,
    scores: Mapping[str, Estimate],
    p_adjusted: Mapping[frozenset[str], float | None] | None,
) -> bool:
    if p_adjusted is None:
        return not _tied(scores[leader], scores[other])
    p = p_adjusted.get(frozenset({leader, other}))
    return p is not None and p < LEVEL


def _tied(leader: Estimate, other: Estimate) -> bool:
    leader_stderr, other_stderr = _stderr(leader), _stderr(other)
    if leader.value is None or other.value is None:
        return False
    if not leader_stderr or not other_stderr:
        return True
    return leader.value - other.value <= Z_95 * math.hypot(leader_stderr, other_stderr)


def _stderr(score: Estimate) -> float | None:
    return score.stderr if score.stderr_clustered is None else score.stderr_clustered

"""Ranking models by score, with ties shown as ties."""

from collections.abc import Mapping
from dataclasses import dataclass

from aegish_dist.core.estimates import Estimate
from aegish_dist.core.significance import LEVEL


@dataclass(frozen=True, slots=True)
class Place:
    """One line of a ranking."""

    rank: int | None
    """1-based position; None when the score is undefined."""
    tie_group: int | None
    """1-based; no model of a group differs significantly from its leader."""
    model: str
    aegish_score: float | None
    """Its aegish score, by which it is ranked."""


def rank(
    scores: Mapping[str, Estimate], p_adjusted: Mapping[frozenset[str], float | None]
) -> list[Place]:
    """Order models by descending score, then by id; undefined scores come last, unranked.

    A tie group starts at its leader and goes on until a model differs from the leader by a p
    below 0.05, adjusted for all pairs of models: who leads is found in the same data. Of two models
    of a group, neither of which leads it, one may be better than the other.

    Args:
        scores: The aegish score of each model, by canonical model id.
        p_adjusted: Of the paired differences of the score, by pair of models; a pair that is absent
            or None is taken to be alike.

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
        if leader is None or _differ(p_adjusted.get(frozenset((leader, model)))):
            leader, group = model, group + 1
        places.append(Place(position, group, model, score.value))
    return places


def _order(scored: tuple[str, Estimate]) -> tuple[bool, float, str]:
    model, score = scored
    return (score.value is None, -(score.value or 0.0), model)


def _differ(p_adjusted: float | None) -> bool:
    return p_adjusted is not None and p_adjusted < LEVEL

"""Votes of several models about commands, and how much the voice of each counts.

A model that repeats another one adds nothing, however often it is asked: models whose errors are
correlated share a vote. Correlations up to `ALIKE_FROM` are left alone: so much comes from commands
that are hard for all models, which the estimation of `label_model` knows of.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from aegish_dist.core.sample import Target

Vote = tuple[float, ...]
"""The share of each action among the epochs of a model that state one; sums to 1."""
Sides = tuple[float, ...]
"""By action: 1 where it flags a command as malicious, 0 where it lets it pass, 0.5 where a rule
set takes it for neither or for both."""

ALIKE_FROM = 0.5
"""Correlation of the errors of two models from which they begin to share a vote."""
OWN_ERRORS = 5.0
"""Errors that each model is taken to have made besides, alone: two that erred once, together, are
not yet alike."""


@dataclass(frozen=True, slots=True)
class Ballot:
    """Commands with one label about which every model said the same."""

    label: Target
    votes: tuple[Vote | None, ...]
    """By model; None of a model that stated no action."""
    samples: int
    """How many, at least 1."""


def flagged(vote: Vote, sides: Sides) -> float:
    """Return the share of a vote that flags its command."""
    return math.fsum(share * side for share, side in zip(vote, sides, strict=True))


def vote_weights(
    ballots: Sequence[Ballot], sides: Sides, trust: Sequence[float]
) -> tuple[float, ...]:
    """Return by model its part of a vote: 1 / c for each of c models that always err together.

    Args:
        trust: By ballot, the probability that its label is right: against a wrong label even the
            best models err together.
    """
    models = range(len(ballots[0].votes) if ballots else 0)
    weighted = [each.samples * right for each, right in zip(ballots, trust, strict=True)]
    errors = [_errors(model, ballots, sides, weighted) for model in models]
    sharing = [1.0 for _ in models]
    for one in models:
        for other in range(one):
            correlation = _correlation(errors[one], errors[other], weighted)
            alike = max(0.0, (correlation - ALIKE_FROM) / (1 - ALIKE_FROM))
            sharing[one] += alike
            sharing[other] += alike
    return tuple(1 / each for each in sharing)


def _errors(
    model: int, ballots: Sequence[Ballot], sides: Sides, weighted: Sequence[float]
) -> list[float | None]:
    """Return by ballot how far a model is from its mean about commands of that label."""
    votes = [each.votes[model] for each in ballots]
    shares = [None if vote is None else flagged(vote, sides) for vote in votes]
    means = {
        label: _mean(
            (share, weight)
            for share, weight, ballot in zip(shares, weighted, ballots, strict=True)
            if share is not None and ballot.label is label
        )
        for label in Target
    }
    return [
        None if share is None else share - means[ballot.label]
        for share, ballot in zip(shares, ballots, strict=True)
    ]


def _mean(values: Iterable[tuple[float, float]]) -> float:
    total = weights = 0.0
    for value, weight in values:
        total += value * weight
        weights += weight
    return total / weights if weights else 0.0


def _correlation(
    a: Sequence[float | None], b: Sequence[float | None], weighted: Sequence[float]
) -> float:
    """Return the correlation over what both said something about, drawn to 0 where it is little."""
    ab, aa, bb = 0.0, OWN_ERRORS, OWN_ERRORS
    for x, y, weight in zip(a, b, weighted, strict=True):
        if x is not None and y is not None:
            ab += weight * x * y
            aa += weight * x * x
            bb += weight * y * y
    return ab / math.sqrt(aa * bb)

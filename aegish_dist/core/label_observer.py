"""One model as an observer of commands: how often it is right, and which action it then states."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import add

from aegish_dist.core.ballots import Sides, Vote, flagged
from aegish_dist.core.logistic import Term, log_logistic, logistic, maximise
from aegish_dist.core.sample import Target

ABILITY_MEAN, ABILITY_SD = 1.5, 2.0
"""Normal prior of a model's log odds to be right about a command of mean ease."""
SHADE_PRIOR = 1.0
"""Pseudo-count of each action among those of its side."""

EASE = (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0)
"""How easy a command is, in standard deviations."""
_WHOLE = math.fsum(math.exp(-ease * ease / 2) for ease in EASE)
SHARES = tuple(math.exp(-ease * ease / 2) / _WHOLE for ease in EASE)
"""How many commands are so easy: a discrete normal distribution."""
TRUTHS = (Target.MALICIOUS, Target.HARMLESS)
"""In the order of vectors."""
Vector = list[float]
"""A number for each truth and ease, those of malicious commands first."""


class LabelObserver:
    """The error rates of a model, estimated again in each round."""

    def __init__(self, sides: Sides, weight: float) -> None:
        """Begin with the priors.

        Args:
            weight: The model's part of a vote, in (0, 1].
        """
        self._weight = weight
        self._sides = sides
        self._ability = dict.fromkeys(TRUTHS, ABILITY_MEAN)
        self._shades = {truth: (0.0,) * len(sides) for truth in TRUTHS}
        self._right: dict[Target, list[float]] = {}
        self._said: dict[Target, list[float]] = {}

    def log_likelihood(self, vote: Vote, spread: Mapping[Target, float]) -> Vector:
        """Return the weighted log probability of a vote under each truth and ease."""
        vector = []
        for truth in TRUTHS:
            right = self._share_right(vote, truth)
            shade = math.fsum(v * s for v, s in zip(vote, self._shades[truth], strict=True))
            for ease in EASE:
                x = self._ability[truth] + spread[truth] * ease
                log = right * log_logistic(x) + (1 - right) * log_logistic(-x)
                vector.append(self._weight * (log + shade))
        return vector

    def learn(self, votes: Mapping[Vote, Vector], spread: Mapping[Target, float]) -> None:
        """Estimate the rates again from the commands that got each vote."""
        for place, truth in enumerate(TRUTHS):
            right, said = [0.0] * len(EASE), [0.0] * len(EASE)
            actions = [SHADE_PRIOR] * len(self._sides)
            for vote, commands in votes.items():
                part = commands[place * len(EASE) : (place + 1) * len(EASE)]
                share, whole = self._share_right(vote, truth), math.fsum(part)
                right = [a + share * b for a, b in zip(right, part, strict=True)]
                said = list(map(add, said, part))
                actions = [a + v * whole for a, v in zip(actions, vote, strict=True)]
            self._right[truth], self._said[truth] = right, said
            self._shades[truth] = self._logs_within_sides(actions)
            self._ability[truth] = maximise(
                [
                    Term(r, s, 1.0, spread[truth] * ease)
                    for r, s, ease in zip(right, said, EASE, strict=True)
                ],
                ABILITY_MEAN,
                ABILITY_SD,
                self._ability[truth],
            )

    def terms_of_spread(self, truth: Target) -> Iterable[Term]:
        """Yield what the model's answers say about the spread of the ease."""
        for right, said, ease in zip(self._right[truth], self._said[truth], EASE, strict=True):
            yield Term(self._weight * right, self._weight * said, ease, self._ability[truth])

    def mean(self, truth: Target, spread: Mapping[Target, float]) -> float:
        """Return the probability to be right about a command of this truth."""
        return math.fsum(
            share * logistic(self._ability[truth] + spread[truth] * ease)
            for ease, share in zip(EASE, SHARES, strict=True)
        )

    def _share_right(self, vote: Vote, truth: Target) -> float:
        share = flagged(vote, self._sides)
        return share if truth is Target.MALICIOUS else 1 - share

    def _logs_within_sides(self, actions: Sequence[float]) -> tuple[float, ...]:
        by_side: defaultdict[float, float] = defaultdict(float)
        for side, count in zip(self._sides, actions, strict=True):
            by_side[side] += count
        return tuple(
            math.log(count / by_side[side])
            for side, count in zip(self._sides, actions, strict=True)
        )

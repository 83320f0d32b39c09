"""One model as an observer of commands: how often it is right, and which action it then states.

Probability that a label is wrong, from what several models said about the commands.

Pure. A label counts as one more noisy observation of an unknown truth: Dawid & Skene 1979, JRSS C
28:20, estimate the error rates of all observers and the truth together by expectation-maximisation.
Two additions make that hold for models. A command has an ease that all models share, as in item
response theory (Birnbaum 1968, in Lord & Novick, "Statistical Theories of Mental Test Scores"), so
that a hard command which most models miss is no proof against its label. And models whose errors
are those of another one share a vote (`ballots.vote_weights`).

A model that answers all commands alike has the same rates under either truth, so it says nothing.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from typing import TypeVar

from aegish_dist.core.sample import Target
from aegish_dist.statistics.distributions import Term, log_logistic, logistic, maximise
from aegish_dist.statistics.witnesses import Ballot, Sides, Vote, flagged, vote_weights

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


WRONG_MEAN, WRONG_WEIGHT = 0.034, 50.0
"""Beta prior of the share of wrong labels: 3.4 % on average in ten test sets that many use
(Northcutt et al. 2021, "Pervasive Label Errors in Test Sets", arXiv 2103.14749), with the weight of
50 commands."""
SPREAD_MEAN, SPREAD_SD = 1.0, 0.7
"""Normal prior of the standard deviation of the ease, in log odds."""
ITERATIONS = 60
TOLERANCE = 1e-3
"""Largest change of a probability at which the estimation ends."""
TOGETHER = 4
"""Models that are looked up together: four answer in few ways, and each way is added up once."""

_Votes = tuple[Vote | None, ...]
_Key = TypeVar("_Key")


@dataclass(frozen=True, slots=True)
class FittedLabels:
    """The result of the estimation."""

    p_wrong: tuple[float, ...]
    """By ballot, the probability that its label is wrong."""
    sensitivity: tuple[float, ...]
    """By model, the share of truly malicious commands that it flags."""
    specificity: tuple[float, ...]
    """By model, the share of truly harmless commands that it lets pass."""
    weights: tuple[float, ...]
    """By model, its part of a vote, in (0, 1]: 1 / c for each of c models that err alike."""


def fit_labels(ballots: Sequence[Ballot], sides: Sides) -> FittedLabels:
    """Estimate the truth behind every label, and the error rates of every model.

    Done twice, because only the first result tells errors about a command from a wrong label, and
    so models that err alike from models that are right alike.

    Args:
        ballots: Each with a vote per model; at least one.
    """
    trust = [1.0] * len(ballots)
    for _ in range(2):
        weights = vote_weights(ballots, sides, trust)
        estimation = _Estimation(ballots, [LabelObserver(sides, weight) for weight in weights])
        p_wrong = estimation.run()
        trust = [1 - each for each in p_wrong]
    return FittedLabels(
        p_wrong=tuple(p_wrong),
        sensitivity=estimation.rates(Target.MALICIOUS),
        specificity=estimation.rates(Target.HARMLESS),
        weights=weights,
    )


class _Estimation:
    """Expectation-maximisation over ballots."""

    def __init__(self, ballots: Sequence[Ballot], observers: Sequence[LabelObserver]) -> None:
        self._ballots, self._observers = ballots, observers
        self._spread = dict.fromkeys(TRUTHS, SPREAD_MEAN)
        starts = range(0, len(observers), TOGETHER)
        self._groups = [range(len(observers))[start : start + TOGETHER] for start in starts]
        self._said = [
            [ballot.votes[group.start : group.stop] for group in self._groups] for ballot in ballots
        ]
        # At first every label is right, and nothing is known about the ease of a command.
        self._beliefs: list[Vector] = [
            [share * (truth is ballot.label) for truth in TRUTHS for share in SHARES]
            for ballot in ballots
        ]

    def run(self) -> list[float]:
        """Return by ballot the probability that its label is wrong."""
        before = self._p_wrong()
        for _ in range(ITERATIONS):
            priors = self._priors(before)
            self._maximise()
            self._expect(priors)
            now = self._p_wrong()
            change = max(abs(a - b) for a, b in zip(now, before, strict=True))
            before = now
            if change < TOLERANCE:
                break
        return before

    def rates(self, truth: Target) -> tuple[float, ...]:
        """Return by model how often it is right about commands of a truth."""
        return tuple(each.mean(truth, self._spread) for each in self._observers)

    def _p_wrong(self) -> list[float]:
        return [
            min(
                1.0,
                math.fsum(
                    belief[len(EASE) :] if ballot.label is TRUTHS[0] else belief[: len(EASE)]
                ),
            )
            for ballot, belief in zip(self._ballots, self._beliefs, strict=True)
        ]

    def _priors(self, p_wrong: Sequence[float]) -> dict[Target, Vector]:
        """Return by label the log probability of each truth and ease before any model is asked."""
        samples: Counter[Target] = Counter()
        wrong = dict.fromkeys(TRUTHS, WRONG_MEAN * WRONG_WEIGHT)
        for ballot, p in zip(self._ballots, p_wrong, strict=True):
            samples[ballot.label] += ballot.samples
            wrong[ballot.label] += p * ballot.samples
        shares = {label: wrong[label] / (samples[label] + WRONG_WEIGHT) for label in TRUTHS}
        return {
            label: [
                math.log((1 - shares[label] if truth is label else shares[label]) * share)
                for truth in TRUTHS
                for share in SHARES
            ]
            for label in TRUTHS
        }

    def _maximise(self) -> None:
        """Estimate the models again, taking the beliefs about the commands for true."""
        votes = self._commands_by_vote()
        for observer, commands in zip(self._observers, votes, strict=True):
            observer.learn(commands, self._spread)
        for truth in TRUTHS:
            terms = [term for each in self._observers for term in each.terms_of_spread(truth)]
            found = maximise(terms, SPREAD_MEAN, SPREAD_SD, self._spread[truth])
            self._spread[truth] = max(0.0, found)

    def _commands_by_vote(self) -> list[dict[Vote, Vector]]:
        by_group: list[dict[_Votes, Vector]] = [{} for _ in self._groups]
        for ballot, said, belief in zip(self._ballots, self._said, self._beliefs, strict=True):
            commands = [each * ballot.samples for each in belief]
            for votes, known in zip(said, by_group, strict=True):
                _add(known, votes, commands)
        by_model: list[dict[Vote, Vector]] = [{} for _ in self._observers]
        for group, known in zip(self._groups, by_group, strict=True):
            for votes, commands in known.items():
                for model, vote in zip(group, votes, strict=True):
                    if vote is not None:
                        _add(by_model[model], vote, commands)
        return by_model

    def _expect(self, priors: dict[Target, Vector]) -> None:
        """Find the beliefs about the commands again, taking the models for known."""
        likelihoods = [self._likelihoods(place) for place in range(len(self._groups))]
        for number, (ballot, said) in enumerate(zip(self._ballots, self._said, strict=True)):
            logs = priors[ballot.label]
            for votes, known in zip(said, likelihoods, strict=True):
                logs = list(map(add, logs, known[votes]))
            top = max(logs)
            odds = [math.exp(each - top) for each in logs]
            whole = math.fsum(odds)
            self._beliefs[number] = [each / whole for each in odds]

    def _likelihoods(self, place: int) -> dict[_Votes, Vector]:
        """Return the log probability of all that a group of models said somewhere."""
        single: dict[tuple[int, Vote], Vector] = {}
        joint: dict[_Votes, Vector] = {}
        for votes in {said[place] for said in self._said}:
            total = [0.0] * (len(TRUTHS) * len(EASE))
            for model, vote in zip(self._groups[place], votes, strict=True):
                if vote is None:
                    continue
                if (model, vote) not in single:
                    observer = self._observers[model]
                    single[model, vote] = observer.log_likelihood(vote, self._spread)
                total = list(map(add, total, single[model, vote]))
            joint[votes] = total
        return joint


def _add(sums: dict[_Key, Vector], key: _Key, vector: Vector) -> None:
    known = sums.get(key)
    sums[key] = vector if known is None else list(map(add, known, vector))

"""Probability that a label is wrong, from what several models said about the commands.

Pure. A label counts as one more noisy observation of an unknown truth: Dawid & Skene 1979, JRSS C
28:20, estimate the error rates of all observers and the truth together by expectation-maximisation.
Two additions make that hold for models. A command has an ease that all models share, as in item
response theory (Birnbaum 1968, in Lord & Novick, "Statistical Theories of Mental Test Scores"), so
that a hard command which most models miss is no proof against its label. And models whose errors
are those of another one share a vote (`ballots.vote_weights`).

A model that answers all commands alike has the same rates under either truth, so it says nothing.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from operator import add
from typing import TypeVar

from aegish_dist.core.ballots import Ballot, Sides, Vote, vote_weights
from aegish_dist.core.label_observer import EASE, SHARES, TRUTHS, LabelObserver, Vector
from aegish_dist.core.logistic import maximise
from aegish_dist.core.sample import Target

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

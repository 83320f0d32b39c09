"""The probability that a label is wrong, estimated from several models' answers.

A label is one more noisy observation of an unknown truth: Dawid & Skene 1979, JRSS C 28:20,
estimate the error rates of all observers and the truth together by expectation-maximisation. Two
additions make that hold for models. A command has an ease that all models share, as in item
response theory (Birnbaum 1968, in Lord & Novick, "Statistical Theories of Mental Test Scores"), so
that a hard command which most models miss is no proof against its label. And models whose errors
are correlated share a vote (`vote_weights`). A model that answers all commands alike counts for
nothing. A weighted vote without the ease finds too few wrong labels: see docs/guides/auditing.md.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, reduce
from operator import add, mul
from typing import TypeVar

from msgspec import Struct

from aegish_dist.core.sample import TrueLabel
from aegish_dist.statistics.distributions import Term, log_logistic, logistic, maximise

Vote = tuple[float, ...]  # share of each action among the epochs that state one
Sides = tuple[float, ...]  # by action: 1 where it flags, 0 where it lets pass, else 0.5
Vector = list[float]  # for each truth and ease, malicious commands first
_Votes = tuple[Vote | None, ...]
_Key = TypeVar("_Key")

# Two models share a vote if their errors correlate by more than this. Smaller correlations come
# from commands that are hard for all models, which the ease accounts for.
ALIKE_FROM = 0.5
# Further errors that each model is assumed to have made alone: two models that erred once,
# together, are not yet alike.
OWN_ERRORS = 5.0
# Normal prior of a model's log odds to be right about a command of mean ease.
ABILITY_MEAN, ABILITY_SD = 1.5, 2.0
SHADE_PRIOR = 1.0  # pseudo-count of each action among those of its side
# Beta prior of the share of wrong labels: 3.4 % on average in ten test sets that many use
# (Northcutt et al. 2021, "Pervasive Label Errors in Test Sets", arXiv 2103.14749), with the weight
# of 50 commands.
WRONG_MEAN, WRONG_WEIGHT = 0.034, 50.0
# Normal prior of the standard deviation of the ease, in log odds.
SPREAD_MEAN, SPREAD_SD = 1.0, 0.7
# Ease of a command in standard deviations, and the share of commands with that ease: a discrete
# normal distribution.
EASE = (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0)
_WHOLE = math.fsum(math.exp(-ease * ease / 2) for ease in EASE)
SHARES = tuple(math.exp(-ease * ease / 2) / _WHOLE for ease in EASE)
NOTHING = [0.0] * len(EASE)
TRUTHS = (TrueLabel.MALICIOUS, TrueLabel.HARMLESS)  # in the order of vectors
OTHER = dict(zip(TRUTHS, reversed(TRUTHS), strict=True))
PLACES = {truth: slice(n * len(EASE), (n + 1) * len(EASE)) for n, truth in enumerate(TRUTHS)}
ITERATIONS = 60
TOLERANCE = 1e-3  # largest change of a probability at which the estimation ends
# Models that are looked up together: four models answer in few ways, each added up only once.
TOGETHER = 4


class VotePattern(Struct, frozen=True):
    """Commands with one label about which each model gave the same vote."""

    label: TrueLabel
    votes: _Votes  # by model; None where the model stated no action
    samples: int


def fit_labels(
    patterns: Sequence[VotePattern], sides: Sides
) -> tuple[list[float], list[tuple[float, float, float]]]:
    """Estimate the truth behind every label, and the error rates of every model.

    The estimation runs twice. Only its first result separates a model's error from a wrong label,
    and so models that err alike from models that are right alike.

    Return by pattern the probability that its label is wrong; by model the share of truly malicious
    commands that are flagged, the share of truly harmless commands that pass, and its part of a
    vote in (0, 1]: 1 / c for each of c models that err alike.
    """
    trust = [1.0] * len(patterns)
    for _ in range(2):
        weights = vote_weights(patterns, sides, trust)
        observers = [_Observer(sides, weight) for weight in weights]
        estimation = _Estimation(patterns, observers)
        p_wrong = estimation.run()
        trust = [1 - each for each in p_wrong]
    sensitivity, specificity = (
        [each.rate(truth, estimation.spread) for each in observers] for truth in TRUTHS
    )
    return p_wrong, list(zip(sensitivity, specificity, weights, strict=True))


def flagged(vote: Vote, sides: Sides) -> float:
    """Return the share of a vote that flags its command."""
    return math.fsum(map(mul, vote, sides))


def vote_weights(
    patterns: Sequence[VotePattern], sides: Sides, trust: Sequence[float]
) -> tuple[float, ...]:
    """Return each model's part of a vote: 1 / c for each of c models that always err together.

    `trust` is the probability that a pattern's label is right. If a label is wrong, even the best
    models seem to err together.
    """
    models = range(len(patterns[0].votes) if patterns else 0)
    weighted = [each.samples * right for each, right in zip(patterns, trust, strict=True)]
    errors = [_errors(model, patterns, sides, weighted) for model in models]
    sharing = [1.0 for _ in models]
    for one in models:
        for other in range(one):
            correlation = _correlation(errors[one], errors[other], weighted)
            alike = max(0.0, (correlation - ALIKE_FROM) / (1 - ALIKE_FROM))
            sharing[one] += alike
            sharing[other] += alike
    return tuple(1 / each for each in sharing)


def _errors(
    model: int, patterns: Sequence[VotePattern], sides: Sides, weighted: Sequence[float]
) -> list[float | None]:
    """Return by pattern how far a model's error is from its mean over commands of that label."""
    votes = [each.votes[model] for each in patterns]
    shares = [None if vote is None else flagged(vote, sides) for vote in votes]
    totals, weights = dict.fromkeys(TRUTHS, 0.0), dict.fromkeys(TRUTHS, 0.0)
    for share, weight, pattern in zip(shares, weighted, patterns, strict=True):
        if share is not None:
            totals[pattern.label] += share * weight
            weights[pattern.label] += weight
    means = {label: totals[label] / weights[label] if weights[label] else 0.0 for label in TRUTHS}
    return [
        None if share is None else share - means[pattern.label]
        for share, pattern in zip(shares, patterns, strict=True)
    ]


def _correlation(
    a: Sequence[float | None], b: Sequence[float | None], weighted: Sequence[float]
) -> float:
    """Return the correlation over the commands that both models answered; few shrink it to 0."""
    ab, aa, bb = 0.0, OWN_ERRORS, OWN_ERRORS
    for x, y, weight in zip(a, b, weighted, strict=True):
        if x is not None and y is not None:
            ab += weight * x * y
            aa += weight * x * x
            bb += weight * y * y
    return ab / math.sqrt(aa * bb)


class _Observer:
    """The error rates of a model and its part of a vote; each round estimates the rates again."""

    def __init__(self, sides: Sides, weight: float) -> None:
        self._sides, self._weight = sides, weight
        self._ability = dict.fromkeys(TRUTHS, ABILITY_MEAN)
        self._shades = {truth: [0.0] * len(sides) for truth in TRUTHS}
        self._seen: dict[TrueLabel, list[tuple[float, float, float]]] = {}
        """By truth, for each ease: commands answered right, all commands, the ease."""

    def log_likelihood(self, vote: Vote, spread: Mapping[TrueLabel, float]) -> Vector:
        """Return the weighted log probability of a vote under each truth and ease."""
        vector = []
        for truth in TRUTHS:
            right = self._share_right(vote, truth)
            shade = math.fsum(map(mul, vote, self._shades[truth]))
            for ease in EASE:
                x = self._ability[truth] + spread[truth] * ease
                log = right * log_logistic(x) + (1 - right) * log_logistic(-x)
                vector.append(self._weight * (log + shade))
        return vector

    def learn(self, votes: Mapping[Vote, Vector], spread: Mapping[TrueLabel, float]) -> None:
        """Estimate the rates again from the commands that got each vote."""
        for truth, place in PLACES.items():
            said = {vote: commands[place] for vote, commands in votes.items()}
            rights = [_times(part, self._share_right(vote, truth)) for vote, part in said.items()]
            counted = (reduce(_plus, each, NOTHING) for each in (rights, said.values()))
            self._seen[truth] = list(zip(*counted, EASE, strict=True))
            stated = (_times(vote, math.fsum(part)) for vote, part in said.items())
            actions = reduce(_plus, stated, [SHADE_PRIOR] * len(self._sides))
            by_side = list(zip(self._sides, actions, strict=True))
            wholes = {side: sum(n for of, n in by_side if of == side) for side in self._sides}
            self._shades[truth] = [math.log(n / wholes[side]) for side, n in by_side]
            terms = [(r, n, 1.0, spread[truth] * ease) for r, n, ease in self._seen[truth]]
            self._ability[truth] = maximise(terms, ABILITY_MEAN, ABILITY_SD, self._ability[truth])

    def terms_of_spread(self, truth: TrueLabel) -> list[Term]:
        """Return what the model's answers contribute to the spread of the ease."""
        weight, ability = self._weight, self._ability[truth]
        return [(weight * r, weight * n, ease, ability) for r, n, ease in self._seen[truth]]

    def rate(self, truth: TrueLabel, spread: Mapping[TrueLabel, float]) -> float:
        """Return the probability to be right about a command of this truth."""
        return math.fsum(
            share * logistic(self._ability[truth] + spread[truth] * ease)
            for ease, share in zip(EASE, SHARES, strict=True)
        )

    def _share_right(self, vote: Vote, truth: TrueLabel) -> float:
        share = flagged(vote, self._sides)
        return share if truth is TrueLabel.MALICIOUS else 1 - share


class _Estimation:
    """Expectation-maximisation over patterns."""

    def __init__(self, patterns: Sequence[VotePattern], observers: Sequence[_Observer]) -> None:
        self._patterns, self._observers = patterns, observers
        self.spread = dict.fromkeys(TRUTHS, SPREAD_MEAN)
        groups = [slice(n, n + TOGETHER) for n in range(0, len(observers), TOGETHER)]
        self._groups = [observers[group] for group in groups]
        self._said = [[pattern.votes[group] for pattern in patterns] for group in groups]
        """By group and pattern, the votes of the group's models."""
        # At first every label is right, and nothing is known about the ease of a command.
        self._beliefs: list[Vector] = [
            [share * (truth is pattern.label) for truth in TRUTHS for share in SHARES]
            for pattern in patterns
        ]

    def run(self) -> list[float]:
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

    def _p_wrong(self) -> list[float]:
        return [
            min(1.0, math.fsum(belief[PLACES[OTHER[pattern.label]]]))
            for pattern, belief in zip(self._patterns, self._beliefs, strict=True)
        ]

    def _priors(self, p_wrong: Sequence[float]) -> dict[TrueLabel, Vector]:
        """Return by label the log probability of each truth and ease before any model is asked."""
        samples: Counter[TrueLabel] = Counter()
        wrong = dict.fromkeys(TRUTHS, WRONG_MEAN * WRONG_WEIGHT)
        for pattern, p in zip(self._patterns, p_wrong, strict=True):
            samples[pattern.label] += pattern.samples
            wrong[pattern.label] += p * pattern.samples
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
        """Estimate the models again, with the beliefs about the commands held fixed."""
        commands = [
            _times(belief, pattern.samples)
            for pattern, belief in zip(self._patterns, self._beliefs, strict=True)
        ]
        for group, said in zip(self._groups, self._said, strict=True):
            ways = _added_up(zip(said, commands, strict=True))
            for place, observer in enumerate(group):
                votes = ((way[place], vector) for way, vector in ways.items())
                observer.learn(_added_up((v, each) for v, each in votes if v), self.spread)
        for truth in TRUTHS:
            terms = [term for each in self._observers for term in each.terms_of_spread(truth)]
            found = maximise(terms, SPREAD_MEAN, SPREAD_SD, self.spread[truth])
            self.spread[truth] = max(0.0, found)

    def _expect(self, priors: Mapping[TrueLabel, Vector]) -> None:
        """Compute the beliefs about the commands again, with the models held fixed."""
        logs = [priors[pattern.label] for pattern in self._patterns]
        for group, said in zip(self._groups, self._said, strict=True):
            known = self._likelihoods(group, set(said))
            logs = [_plus(each, known[votes]) for each, votes in zip(logs, said, strict=True)]
        self._beliefs = list(map(_normalised, logs))

    def _likelihoods(
        self, group: Sequence[_Observer], ways: Iterable[_Votes]
    ) -> dict[_Votes, Vector]:
        """Return the log probability of each way in which a group of models answered."""

        @cache
        def single(observer: _Observer, vote: Vote) -> Vector:
            return observer.log_likelihood(vote, self.spread)

        return {
            votes: reduce(
                _plus,
                (single(each, vote) for each, vote in zip(group, votes, strict=True) if vote),
                NOTHING * len(TRUTHS),
            )
            for votes in ways
        }


def _normalised(logs: Vector) -> Vector:
    top = max(logs)
    odds = [math.exp(each - top) for each in logs]
    whole = math.fsum(odds)
    return [each / whole for each in odds]


def _added_up(pairs: Iterable[tuple[_Key, Vector]]) -> dict[_Key, Vector]:
    sums: dict[_Key, Vector] = {}
    for key, vector in pairs:
        sums[key] = _plus(sums[key], vector) if key in sums else vector
    return sums


def _plus(a: Sequence[float], b: Sequence[float]) -> Vector:
    return list(map(add, a, b))


def _times(vector: Iterable[float], factor: float) -> Vector:
    return [each * factor for each in vector]

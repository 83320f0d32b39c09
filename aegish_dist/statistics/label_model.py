"""The probability that a label is wrong, from what several models said about the commands.

A label counts as one more noisy observation of an unknown truth: Dawid & Skene 1979, JRSS C 28:20,
estimate the error rates of all observers and the truth together by expectation-maximisation. Two
additions make that hold for models. A command has an ease that all models share, as in item
response theory (Birnbaum 1968, in Lord & Novick, "Statistical Theories of Mental Test Scores"), so
that a hard command which most models miss is no proof against its label. And models whose errors
are correlated share a vote (`vote_weights`): one that repeats another adds nothing, however often
it is asked.

A model that answers all commands alike has the same rates under either truth, so it says nothing.
A weighted vote without the ease was tried and finds too few: see docs/auditing.md.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import add
from typing import TypeVar

from aegish_dist.core.outcome import OutcomeDetail, OutcomeDetails
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.scoring import SampleAnswers, ScoringRule
from aegish_dist.statistics.distributions import Term, log_logistic, logistic, maximise

Vote = tuple[float, ...]
"""The share of each action among the epochs of a model that state one; sums to 1."""
Sides = tuple[float, ...]
"""By action: 1 where it flags a command as malicious, 0 where it lets it pass, 0.5 where a rule
set takes it for neither or for both."""

ALIKE_FROM = 0.5
"""Correlation of the errors of two models from which they begin to share a vote. Correlations up to
it come from commands that are hard for all models, which the estimation knows of."""
OWN_ERRORS = 5.0
"""Errors that each model is taken to have made besides, alone: two that erred once, together, are
not yet alike."""


@dataclass(frozen=True, slots=True)
class VotePattern:
    """Commands with one label about which every model said the same."""

    label: TrueLabel
    votes: tuple[Vote | None, ...]
    """By model; None of a model that stated no action."""
    samples: int
    """How many, at least 1."""


def flagged(vote: Vote, sides: Sides) -> float:
    """Return the share of a vote that flags its command."""
    return math.fsum(share * side for share, side in zip(vote, sides, strict=True))


def vote_weights(
    patterns: Sequence[VotePattern], sides: Sides, trust: Sequence[float]
) -> tuple[float, ...]:
    """Return by model its part of a vote: 1 / c for each of c models that always err together.

    Args:
        trust: By pattern, the probability that its label is right: against a wrong label even the
            best models err together.
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
    """Return by pattern how far a model is from its mean about commands of that label."""
    votes = [each.votes[model] for each in patterns]
    shares = [None if vote is None else flagged(vote, sides) for vote in votes]
    means = {
        label: _mean(
            (share, weight)
            for share, weight, pattern in zip(shares, weighted, patterns, strict=True)
            if share is not None and pattern.label is label
        )
        for label in TrueLabel
    }
    return [
        None if share is None else share - means[pattern.label]
        for share, pattern in zip(shares, patterns, strict=True)
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


INFORMATIVE_FROM = 0.1
"""Youden's index from which answers count as depending on the command."""

_SEVERITY = {OutcomeDetail.ALLOW: 0.0, OutcomeDetail.WARN: 0.5, OutcomeDetail.BLOCK: 1.0}
"""The actions in their order, with their severity."""


@dataclass(frozen=True, slots=True)
class ModelReliability:
    """How well a model tells malicious commands from harmless ones, whatever their labels say."""

    model: str
    sensitivity: float
    """Estimated share of truly malicious commands that it flags."""
    specificity: float
    """Estimated share of truly harmless commands that it lets pass."""
    weight: float
    """Part of a vote, in (0, 1]: 1 / c for each of c models that err alike."""

    @property
    def youden(self) -> float:
        """Sensitivity + specificity - 1 (Youden 1950, Cancer 3:32): 0 of one that only guesses."""
        return self.sensitivity + self.specificity - 1

    @property
    def informative(self) -> bool:
        """Whether its answers depend on the command."""
        return self.youden >= INFORMATIVE_FROM


def sides_under(rule: ScoringRule) -> Sides:
    """Return on which side a rule set sees each action of a vote."""
    return tuple((1 + rule.is_detection(each) - rule.is_acceptance(each)) / 2 for each in _SEVERITY)


def vote_of(findings: OutcomeDetails) -> Vote | None:
    """Return the shares of the actions that were stated; None where none was."""
    counts = dict(findings)
    stated = [counts.get(action, 0) for action in _SEVERITY]
    epochs = sum(stated)
    return tuple(each / epochs for each in stated) if epochs else None


@dataclass(frozen=True, slots=True)
class CommandVotes:
    """The answers of informative models about one command."""

    sample: SampleAnswers
    p_wrong: float
    flags: Mapping[ModelReliability, float]
    """The share of its epochs in which a model flags the command."""
    correct: Mapping[ModelReliability, float]
    """The share of its scored epochs in which a model is right, errors included."""
    flips: Mapping[ModelReliability, float]
    """Probability that two epochs of a model state different actions, where it has two."""
    severities: Mapping[ModelReliability, float]
    """Mean severity of the actions: 0 ALLOW, 0.5 WARN, 1 BLOCK."""

    @classmethod
    def of(
        cls,
        sample: SampleAnswers,
        reliabilities: Sequence[ModelReliability],
        rule: ScoringRule,
        p_wrong: float,
    ) -> "CommandVotes":
        """Hear the informative ones of the reliabilities about a command."""
        heard = [
            each for each in reliabilities if each.informative and each.model in sample.findings
        ]
        votes = {each: vote for each in heard if (vote := vote_of(sample.findings[each.model]))}
        sides, severity = sides_under(rule), tuple(_SEVERITY.values())
        return cls(
            sample,
            p_wrong,
            flags={each: flagged(vote, sides) for each, vote in votes.items()},
            correct={
                each: share
                for each in heard
                if (share := sample.share_correct(each.model, rule)) is not None
            },
            flips={
                each: flip
                for each in votes
                if (flip := _flip(sample.findings[each.model])) is not None
            },
            severities={each: flagged(vote, severity) for each, vote in votes.items()},
        )

    @property
    def contradicting(self) -> list[ModelReliability]:
        """Models whose answers contradict the label in most epochs."""
        return self._flagging(more=self.sample.target is TrueLabel.HARMLESS)

    @property
    def agreeing(self) -> list[ModelReliability]:
        """Models whose answers agree with it in most epochs."""
        return self._flagging(more=self.sample.target is TrueLabel.MALICIOUS)

    def _flagging(self, *, more: bool) -> list[ModelReliability]:
        return [
            each for each, share in self.flags.items() if share != 0.5 and (share > 0.5) is more
        ]

    @property
    def dispute(self) -> float:
        """Probability that two models, drawn by weight and Youden's index, take different sides."""
        return _disagreement([(each.weight * each.youden, s) for each, s in self.flags.items()])

    @property
    def spread(self) -> float:
        """Standard deviation of the severities: BLOCK against ALLOW is more than against WARN."""
        values = list(self.severities.values())
        mean = math.fsum(values) / max(1, len(values))
        return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / max(1, len(values)))

    @property
    def flip(self) -> float:
        """Mean over models of the probability that two epochs state different actions."""
        return math.fsum(self.flips.values()) / max(1, len(self.flips))

    @property
    def missed_by_all(self) -> bool:
        """Whether no model was right in any scored epoch."""
        return bool(self.correct) and not any(self.correct.values())


def _disagreement(shares: Sequence[tuple[float, float]]) -> float:
    """Return the probability that two of several weighted voters differ; 0 of fewer than two."""
    whole = math.fsum(weight for weight, _ in shares)
    for_it = math.fsum(weight * share for weight, share in shares)
    same = math.fsum(weight**2 for weight, _ in shares)
    own = math.fsum(weight**2 * share * (1 - share) for weight, share in shares)
    if len(shares) < 2:
        return 0.0
    return max(0.0, 2 * (for_it * (whole - for_it) - own) / (whole**2 - same))


def _flip(findings: OutcomeDetails) -> float | None:
    """Return the probability that two epochs state different actions; None of fewer than two."""
    stated = [epochs for finding, epochs in findings if finding in _SEVERITY]
    n = sum(stated)
    if n < 2:
        return None
    return 1 - sum(epochs * (epochs - 1) for epochs in stated) / (n * (n - 1))


ABILITY_MEAN, ABILITY_SD = 1.5, 2.0
"""Normal prior of a model's log odds to be right about a command of mean ease."""
SHADE_PRIOR = 1.0
"""Pseudo-count of each action among those of its side."""

EASE = (-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0)
"""How easy a command is, in standard deviations."""
_WHOLE = math.fsum(math.exp(-ease * ease / 2) for ease in EASE)
SHARES = tuple(math.exp(-ease * ease / 2) / _WHOLE for ease in EASE)
"""How many commands are so easy: a discrete normal distribution."""
TRUTHS = (TrueLabel.MALICIOUS, TrueLabel.HARMLESS)
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
        self._right: dict[TrueLabel, list[float]] = {}
        self._said: dict[TrueLabel, list[float]] = {}

    def log_likelihood(self, vote: Vote, spread: Mapping[TrueLabel, float]) -> Vector:
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

    def learn(self, votes: Mapping[Vote, Vector], spread: Mapping[TrueLabel, float]) -> None:
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

    def terms_of_spread(self, truth: TrueLabel) -> Iterable[Term]:
        """Yield what the model's answers say about the spread of the ease."""
        for right, said, ease in zip(self._right[truth], self._said[truth], EASE, strict=True):
            yield Term(self._weight * right, self._weight * said, ease, self._ability[truth])

    def mean(self, truth: TrueLabel, spread: Mapping[TrueLabel, float]) -> float:
        """Return the probability to be right about a command of this truth."""
        return math.fsum(
            share * logistic(self._ability[truth] + spread[truth] * ease)
            for ease, share in zip(EASE, SHARES, strict=True)
        )

    def _share_right(self, vote: Vote, truth: TrueLabel) -> float:
        share = flagged(vote, self._sides)
        return share if truth is TrueLabel.MALICIOUS else 1 - share

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
    """By pattern, the probability that its label is wrong."""
    sensitivity: tuple[float, ...]
    """By model, the share of truly malicious commands that it flags."""
    specificity: tuple[float, ...]
    """By model, the share of truly harmless commands that it lets pass."""
    weights: tuple[float, ...]
    """By model, its part of a vote, in (0, 1]: 1 / c for each of c models that err alike."""


def fit_labels(patterns: Sequence[VotePattern], sides: Sides) -> FittedLabels:
    """Estimate the truth behind every label, and the error rates of every model.

    Done twice, because only the first result tells errors about a command from a wrong label, and
    so models that err alike from models that are right alike.

    Args:
        patterns: Each with a vote per model; at least one.
    """
    trust = [1.0] * len(patterns)
    for _ in range(2):
        weights = vote_weights(patterns, sides, trust)
        estimation = _Estimation(patterns, [LabelObserver(sides, weight) for weight in weights])
        p_wrong = estimation.run()
        trust = [1 - each for each in p_wrong]
    return FittedLabels(
        p_wrong=tuple(p_wrong),
        sensitivity=estimation.rates(TrueLabel.MALICIOUS),
        specificity=estimation.rates(TrueLabel.HARMLESS),
        weights=weights,
    )


class _Estimation:
    """Expectation-maximisation over patterns."""

    def __init__(self, patterns: Sequence[VotePattern], observers: Sequence[LabelObserver]) -> None:
        self._patterns, self._observers = patterns, observers
        self._spread = dict.fromkeys(TRUTHS, SPREAD_MEAN)
        starts = range(0, len(observers), TOGETHER)
        self._groups = [range(len(observers))[start : start + TOGETHER] for start in starts]
        self._said = [
            [pattern.votes[group.start : group.stop] for group in self._groups]
            for pattern in patterns
        ]
        # At first every label is right, and nothing is known about the ease of a command.
        self._beliefs: list[Vector] = [
            [share * (truth is pattern.label) for truth in TRUTHS for share in SHARES]
            for pattern in patterns
        ]

    def run(self) -> list[float]:
        """Return by pattern the probability that its label is wrong."""
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

    def rates(self, truth: TrueLabel) -> tuple[float, ...]:
        """Return by model how often it is right about commands of a truth."""
        return tuple(each.mean(truth, self._spread) for each in self._observers)

    def _p_wrong(self) -> list[float]:
        return [
            min(
                1.0,
                math.fsum(
                    belief[len(EASE) :] if pattern.label is TRUTHS[0] else belief[: len(EASE)]
                ),
            )
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
        for pattern, said, belief in zip(self._patterns, self._said, self._beliefs, strict=True):
            commands = [each * pattern.samples for each in belief]
            for votes, known in zip(said, by_group, strict=True):
                _add(known, votes, commands)
        by_model: list[dict[Vote, Vector]] = [{} for _ in self._observers]
        for group, known in zip(self._groups, by_group, strict=True):
            for votes, commands in known.items():
                for model, vote in zip(group, votes, strict=True):
                    if vote is not None:
                        _add(by_model[model], vote, commands)
        return by_model

    def _expect(self, priors: dict[TrueLabel, Vector]) -> None:
        """Find the beliefs about the commands again, taking the models for known."""
        likelihoods = [self._likelihoods(place) for place in range(len(self._groups))]
        for number, (pattern, said) in enumerate(zip(self._patterns, self._said, strict=True)):
            logs = priors[pattern.label]
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

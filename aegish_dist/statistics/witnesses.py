"""Votes of several models about commands, and how much the voice of each counts.

A model that repeats another one adds nothing, however often it is asked: models whose errors are
correlated share a vote. Correlations up to `ALIKE_FROM` are left alone: so much comes from commands
that are hard for all models, which the estimation of `label_model` knows of.

The models of a run as witnesses, and what they said about one command.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import SampleAnswers, ScoringRule
from aegish_dist.core.tally import Finding, Findings

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


INFORMATIVE_FROM = 0.1
"""Youden's index from which answers count as depending on the command."""

_SEVERITY = {Finding.ALLOW: 0.0, Finding.WARN: 0.5, Finding.BLOCK: 1.0}
"""The actions in their order, with their severity."""


@dataclass(frozen=True, slots=True)
class Witness:
    """A model as a witness about labels."""

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


def vote_of(findings: Findings) -> Vote | None:
    """Return the shares of the actions that were stated; None where none was."""
    counts = dict(findings)
    stated = [counts.get(action, 0) for action in _SEVERITY]
    epochs = sum(stated)
    return tuple(each / epochs for each in stated) if epochs else None


@dataclass(frozen=True, slots=True)
class Hearing:
    """The answers of informative models about one command."""

    sample: SampleAnswers
    p_wrong: float
    flags: Mapping[Witness, float]
    """The share of its epochs in which a model flags the command."""
    correct: Mapping[Witness, float]
    """The share of its scored epochs in which a model is right, errors included."""
    flips: Mapping[Witness, float]
    """Probability that two epochs of a model state different actions, where it has two."""
    severities: Mapping[Witness, float]
    """Mean severity of the actions: 0 ALLOW, 0.5 WARN, 1 BLOCK."""

    @classmethod
    def of(
        cls, sample: SampleAnswers, witnesses: Sequence[Witness], rule: ScoringRule, p_wrong: float
    ) -> "Hearing":
        """Hear the informative ones of the witnesses about a command."""
        heard = [each for each in witnesses if each.informative and each.model in sample.findings]
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
    def contradicting(self) -> list[Witness]:
        """Models whose answers contradict the label in most epochs."""
        return self._flagging(more=self.sample.target is Target.HARMLESS)

    @property
    def agreeing(self) -> list[Witness]:
        """Models whose answers agree with it in most epochs."""
        return self._flagging(more=self.sample.target is Target.MALICIOUS)

    def _flagging(self, *, more: bool) -> list[Witness]:
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


def _flip(findings: Findings) -> float | None:
    """Return the probability that two epochs state different actions; None of fewer than two."""
    stated = [epochs for finding, epochs in findings if finding in _SEVERITY]
    n = sum(stated)
    if n < 2:
        return None
    return 1 - sum(epochs * (epochs - 1) for epochs in stated) / (n * (n - 1))

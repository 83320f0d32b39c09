"""The audit of a run: commands that are disputed, missed by all, flipping or of doubtful label.

A model whose answers do not depend on the command is no evidence about any label. Of the others, a
logistic regression of the labels on the answers says how probable the other label is for a command
that was answered like this; models that err alike share a coefficient there. It finds as many
planted wrong labels as expectation-maximisation over models and commands does: see
docs/guides/auditing.md. Doubtful labels become an overlay that a person edits.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import assert_never

from aegish_dist.core.audit import DOUBTFUL_FROM, Audit, AuditedCommand, AuditKind, ModelReliability
from aegish_dist.core.outcome import OutcomeDetail, OutcomeDetails
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.tally import SampleAnswers
from aegish_dist.opinions.opinion import LabelChange, Overlay
from aegish_dist.opinions.scoring import ScoringRule
from aegish_dist.statistics.logistic_regression import fitted_probabilities

Vote = tuple[float, ...]  # share of each action among the epochs that state one
Sides = tuple[float, ...]  # by action: 1 where it flags, 0 where it lets pass, else 0.5

OTHER = {
    TrueLabel.MALICIOUS: TrueLabel.HARMLESS,
    TrueLabel.HARMLESS: TrueLabel.MALICIOUS,
}
# Each rate is counted as if the model had been right about so many of so many more commands: it is
# informative until its answers show that it is not.
PRIOR_RIGHT = 1.5
PRIOR_COMMANDS = 2.0
NAMED = 4  # most models that a reason names

_SEVERITY = {OutcomeDetail.ALLOW: 0.0, OutcomeDetail.WARN: 0.5, OutcomeDetail.BLOCK: 1.0}
"""Actions and their severity, in ascending order."""


def audit(
    samples: Iterable[SampleAnswers], models: Sequence[str], rule: ScoringRule, top: int
) -> Audit:
    """Look for commands that deserve a second look, at most `top` of a kind.

    The score of a doubtful label, and of a command that all models missed, is the probability of
    the other label. The score of a disputed command is the probability that two models, drawn by
    Youden's index, take different sides. The score of a flipping command is the mean over models of
    the probability that two epochs state different actions.
    """
    answered = [sample for sample in samples if sample.findings]
    reliabilities = tuple(reliability_of(model, answered, rule) for model in models)
    informative = [each for each in reliabilities if each.informative]
    probabilities = other_label_probabilities(answered, [each.model for each in informative])
    commands = [
        CommandVotes(sample, informative, rule, probability)
        for sample, probability in zip(answered, probabilities, strict=True)
    ]

    totals = {}
    entries = {}
    for kind in AuditKind:
        listed = [command for command in commands if kind in command.scores]
        listed.sort(key=partial(_place, kind=kind))
        totals[kind] = len(listed)
        entries[kind] = tuple(command.entry(kind) for command in listed[:top])
    return Audit(reliabilities, len(answered), totals, entries)


def reliability_of(
    model: str, samples: Iterable[SampleAnswers], rule: ScoringRule
) -> ModelReliability:
    sides = sides_under(rule)
    right = dict.fromkeys(OTHER, PRIOR_RIGHT)
    answered = dict.fromkeys(OTHER, PRIOR_COMMANDS)
    for sample in samples:
        vote = vote_of(sample.findings.get(model, ()))
        if vote is not None:
            flags = flagged(vote, sides)
            right[sample.target] += flags if sample.target is TrueLabel.MALICIOUS else 1 - flags
            answered[sample.target] += 1
    sensitivity, specificity = (right[label] / answered[label] for label in OTHER)
    return ModelReliability(model, sensitivity, specificity)


def other_label_probabilities(
    samples: Sequence[SampleAnswers], models: Sequence[str]
) -> list[float]:
    """Return by sample how probable the other label is, given what the models answered."""
    # Commands that were answered alike are one row of the regression.
    answers = [_terms(sample, models) for sample in samples]
    of_pattern = Counter(answers)
    malicious = Counter(
        pattern
        for pattern, sample in zip(answers, samples, strict=True)
        if sample.target is TrueLabel.MALICIOUS
    )
    patterns = list(of_pattern)
    probabilities = fitted_probabilities(
        patterns,
        [malicious[pattern] for pattern in patterns],
        [of_pattern[pattern] for pattern in patterns],
    )
    p_malicious = dict(zip(patterns, probabilities, strict=True))
    return [
        1 - p_malicious[pattern] if sample.target is TrueLabel.MALICIOUS else p_malicious[pattern]
        for pattern, sample in zip(answers, samples, strict=True)
    ]


def _terms(sample: SampleAnswers, models: Sequence[str]) -> tuple[float, ...]:
    """Return two numbers for each model: its severity, and whether it warns.

    Some models warn about what they do not block. Both are 0 where a model stated no action.
    """
    terms: list[float] = []
    for model in models:
        allowed, warned, blocked = vote_of(sample.findings.get(model, ())) or (0.0, 0.0, 0.0)
        terms += (blocked - allowed, warned)
    return tuple(terms)


def flagged(vote: Vote, sides: Sides) -> float:
    """Return the share of a vote that flags its command."""
    return math.fsum(share * side for share, side in zip(vote, sides, strict=True))


def sides_under(rule: ScoringRule) -> Sides:
    """Return on which side a rule set sees each action of a vote."""
    return tuple((1 + rule.is_detection(each) - rule.is_acceptance(each)) / 2 for each in _SEVERITY)


def vote_of(findings: OutcomeDetails) -> Vote | None:
    """Return the shares of the stated actions; None if no epoch states an action."""
    counts = dict(findings)
    stated = [counts.get(action, 0) for action in _SEVERITY]
    epochs = sum(stated)
    return tuple(each / epochs for each in stated) if epochs else None


class CommandVotes:
    """The answers of informative models about one command."""

    def __init__(
        self,
        sample: SampleAnswers,
        informative: Iterable[ModelReliability],
        rule: ScoringRule,
        p_other_label: float,
    ) -> None:
        self.sample = sample
        self.p_other_label = p_other_label
        answers = {m: sample.findings[m.model] for m in informative if m.model in sample.findings}
        votes = {model: vote for model, found in answers.items() if (vote := vote_of(found))}
        sides = sides_under(rule)
        self.flags = {model: flagged(vote, sides) for model, vote in votes.items()}
        """Share of its epochs in which a model flags the command."""
        self.flips = {m: flip for m in votes if (flip := _flip(answers[m])) is not None}
        """Probability that two epochs of a model state different actions."""
        counts = [rule.count_right(sample.target, found) for found in answers.values()]
        self.correct = [count.right for count in counts if count.scored]
        """By model, how many of its scored epochs are right, errors included."""
        self.contradicting = self.taken_for(OTHER[sample.target])
        severities = [flagged(vote, tuple(_SEVERITY.values())) for vote in votes.values()]
        mean = _mean(severities)
        self.spread = math.sqrt(_mean([(each - mean) ** 2 for each in severities]))
        """Standard deviation of the severities: BLOCK against ALLOW is more than against WARN."""
        self.scores = self._scores(p_other_label)  # the lists on which the command belongs

    def _scores(self, p_other_label: float) -> dict[AuditKind, float]:
        disputed = _disagreement([(m.youden, share) for m, share in self.flags.items()])
        flipping = _mean(list(self.flips.values()))
        scores = {}
        if self.contradicting:
            scores[AuditKind.DOUBTFUL_LABELS] = p_other_label
        if disputed > 0:
            scores[AuditKind.DISPUTED] = disputed
        if self.correct and not any(self.correct):
            scores[AuditKind.MISSED_BY_ALL] = p_other_label
        if flipping > 0:
            scores[AuditKind.FLIPPING] = flipping
        return scores

    def taken_for(self, label: TrueLabel) -> list[ModelReliability]:
        """Return the models that judge the command as this label in most epochs."""
        side = 1 if label is TrueLabel.MALICIOUS else -1
        return [model for model, share in self.flags.items() if side * (share - 0.5) > 0]

    def entry(self, kind: AuditKind) -> AuditedCommand:
        return AuditedCommand(
            self.sample,
            self.scores[kind],
            self.p_other_label,
            contradicting=len(self.contradicting),
            agreeing=len(self.taken_for(self.sample.target)),
            reason=self.reason(kind),
        )

    def reason(self, kind: AuditKind) -> str:
        match kind:
            case AuditKind.DOUBTFUL_LABELS:
                return self._contradiction
            case AuditKind.DISPUTED:
                verbs = {
                    "flagged": self.taken_for(TrueLabel.MALICIOUS),
                    "let pass": self.taken_for(TrueLabel.HARMLESS),
                    "both": [model for model, share in self.flags.items() if share == 0.5],
                }
                parts = [f"{verb} by {_names(models)}" for verb, models in verbs.items() if models]
                return "; ".join(parts)
            case AuditKind.MISSED_BY_ALL:
                models = len(self.correct)
                whom = f"each of {models} models" if models > 1 else "the model"
                return f"{whom} missed it"
            case AuditKind.FLIPPING:
                changing = [model for model, flip in self.flips.items() if flip > 0]
                return f"answered in different ways by {_names(changing)}, of {len(self.flips)}"
            case _:
                assert_never(kind)

    @property
    def _contradiction(self) -> str:
        against = self.contradicting
        malicious = self.sample.target is TrueLabel.MALICIOUS
        said, usually = ("let pass", "flag") if malicious else ("flagged", "let pass")
        rates = [each.sensitivity if malicious else each.specificity for each in against]
        return (
            f"{said} by {len(against)} of {len(self.flags)} models, which {usually}"
            f" {100 * math.fsum(rates) / len(rates):.0f} % of {self.sample.target} commands"
        )


def in_words(probability: float) -> str:
    """Write an estimate, which is never a certainty."""
    return ">0.99" if probability > 0.99 else f"{probability:.2f}"


def _names(models: Sequence[ModelReliability]) -> str:
    if len(models) > NAMED:
        return f"{len(models)} models"
    return ", ".join(each.model for each in models)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / max(1, len(values))


def _disagreement(shares: Sequence[tuple[float, float]]) -> float:
    """Return the probability that two of several weighted voters differ; 0 for fewer than two."""
    if len(shares) < 2:
        return 0.0
    whole = math.fsum(weight for weight, _ in shares)
    flagging = math.fsum(weight * share for weight, share in shares)
    # A voter is no pair with itself.
    itself = math.fsum(weight**2 for weight, _ in shares)
    against_itself = math.fsum(weight**2 * share * (1 - share) for weight, share in shares)
    differing = flagging * (whole - flagging) - against_itself
    return max(0.0, 2 * differing / (whole**2 - itself))


def _flip(findings: OutcomeDetails) -> float | None:
    """Return the probability that two epochs state different actions; None without two epochs."""
    stated = [epochs for finding, epochs in findings if finding in _SEVERITY]
    n = sum(stated)
    if n < 2:
        return None
    return 1 - sum(epochs * (epochs - 1) for epochs in stated) / (n * (n - 1))


def _place(votes: CommandVotes, kind: AuditKind) -> tuple[object, ...]:
    """Return the sort key of a list: the worst command first, ties by command."""
    # The same models in another order may differ in the last digit of a sum.
    exact = (-round(votes.scores[kind], 9), -round(votes.spread, 9), -len(votes.contradicting))
    return (*exact, votes.sample.dataset, votes.sample.command)


def draft_overlay(found: Audit, base: Overlay | None, name: str, author: str) -> Overlay:
    """Extend an overlay: turn each doubtful label."""
    changes = []
    for each in found.found[AuditKind.DOUBTFUL_LABELS]:
        if each.p_other_label < DOUBTFUL_FROM:
            continue
        reason = each.reason
        if not found.warning:
            reason += f"; the other label has probability {in_words(each.p_other_label)}"
        change = LabelChange(
            dataset=each.sample.dataset,
            sample_id=each.sample.sample_id,
            command=each.sample.command,
            target=OTHER[each.sample.target],
            category=None,
            reason=reason,
            author=author,
        )
        changes.append(change)
    if base is None:
        return Overlay(name, 1, tuple(changes))
    again = {(change.dataset, change.sample_id) for change in changes}
    again |= {(change.dataset, change.command) for change in changes}
    kept = (e for e in base.changes if (e.dataset, e.sample_id or e.command) not in again)
    return Overlay(base.name, base.version + 1, (*kept, *changes))

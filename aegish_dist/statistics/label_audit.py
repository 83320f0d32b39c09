"""The audit of a run's commands: disputed, missed by all, flipping, and of doubtful labels.

Models whose answers do not depend on the command say nothing: one that always blocks neither
disputes a label nor keeps a command off the list of those that all models miss. Doubtful labels
become an overlay that a person edits.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from aegish_dist.core.opinion import LabelChange, Overlay
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.scoring import SampleAnswers, ScoringRule
from aegish_dist.statistics.label_model import (
    CommandVotes,
    ModelReliability,
    VotePattern,
    fit_labels,
    sides_under,
    vote_of,
)

DOUBTFUL_FROM = 0.5
"""Probability to be wrong from which a label is called doubtful."""
NAMED = 4
"""Models that a reason names at most."""


class AuditKind(StrEnum):
    """Why a command is worth a look."""

    DOUBTFUL_LABELS = "doubtful_labels"
    DISPUTED = "disputed"
    MISSED_BY_ALL = "missed_by_all"
    """No model was right in any scored epoch."""
    FLIPPING = "flipping"


@dataclass(frozen=True, slots=True)
class AuditedCommand:
    """One command on a list of the audit."""

    sample: SampleAnswers
    """The command, and what was said about it."""
    score: float
    """By which the list is sorted, in [0, 1]; see `audit`."""
    p_wrong: float
    contradicting: int
    """Informative models whose answers contradict the label in most epochs."""
    agreeing: int
    """Informative models whose answers agree with it in most epochs."""
    reason: str
    """Why it is on the list, in one sentence; holds names of models."""


@dataclass(frozen=True, slots=True)
class Audit:
    """Result of an audit."""

    reliabilities: tuple[ModelReliability, ...]
    """The models, in the order of the run."""
    samples: int
    totals: Mapping[AuditKind, int]
    """How many commands each list would have if it were shown whole."""
    found: Mapping[AuditKind, tuple[AuditedCommand, ...]]
    """The first of each list."""


def audit(
    samples: Iterable[SampleAnswers], models: Sequence[str], rule: ScoringRule, top: int
) -> Audit:
    """Look for commands that deserve a second look.

    Scores: of a doubtful label, and of a command that all models missed, the probability that the
    label is wrong; of a disputed command the probability that two models, drawn by how much they
    can tell, take different sides; of a flipping one the probability that two epochs of a model
    state different actions, as a mean over models.

    Args:
        models: Their ids, in the order of the result.
        top: Length of each list, at least 1.
    """
    heard = [sample for sample in samples if sample.findings]
    patterns = [_pattern(sample, models) for sample in heard]
    counted = Counter(patterns)
    joined = [VotePattern(*pattern, number) for pattern, number in counted.items()]
    fitted = fit_labels(joined, sides_under(rule))
    p_wrong = dict(zip(counted, fitted.p_wrong, strict=True))
    rates = zip(models, fitted.sensitivity, fitted.specificity, fitted.weights, strict=True)
    reliabilities = tuple(ModelReliability(*each) for each in rates)
    voted = [
        CommandVotes.of(sample, reliabilities, rule, p_wrong[pattern])
        for sample, pattern in zip(heard, patterns, strict=True)
    ]
    ranked = {kind: _ranked(kind, voted) for kind in AuditKind}
    return Audit(
        reliabilities=reliabilities,
        samples=len(heard),
        totals={kind: len(found) for kind, found in ranked.items()},
        found={
            kind: tuple(_entry(kind, votes) for votes in found[:top])
            for kind, found in ranked.items()
        },
    )


_Pattern = tuple[TrueLabel, tuple[tuple[float, ...] | None, ...]]


def _pattern(sample: SampleAnswers, models: Iterable[str]) -> _Pattern:
    return sample.target, tuple(vote_of(sample.findings.get(model, ())) for model in models)


def _ranked(kind: AuditKind, voted: Iterable[CommandVotes]) -> list[CommandVotes]:
    """Return the commands of a list, the worst first; equal ones by command."""
    return sorted(
        (each for each in voted if _belongs(kind, each)),
        key=lambda each: (
            # Models of the same names in another order add up to another last digit.
            -round(_score(kind, each), 9),
            -round(each.spread, 9),
            -len(each.contradicting),
            each.sample.dataset,
            each.sample.command,
        ),
    )


def _belongs(kind: AuditKind, votes: CommandVotes) -> bool:
    match kind:
        case AuditKind.DOUBTFUL_LABELS:
            return bool(votes.contradicting)
        case AuditKind.MISSED_BY_ALL:
            return votes.missed_by_all
        case _:
            return _score(kind, votes) > 0


def _score(kind: AuditKind, votes: CommandVotes) -> float:
    match kind:
        case AuditKind.DOUBTFUL_LABELS | AuditKind.MISSED_BY_ALL:
            return votes.p_wrong
        case AuditKind.DISPUTED:
            return votes.dispute
        case AuditKind.FLIPPING:
            return votes.flip
        case _:
            assert_never(kind)


def _entry(kind: AuditKind, votes: CommandVotes) -> AuditedCommand:
    return AuditedCommand(
        sample=votes.sample,
        score=_score(kind, votes),
        p_wrong=votes.p_wrong,
        contradicting=len(votes.contradicting),
        agreeing=len(votes.agreeing),
        reason=_reason(kind, votes),
    )


def _reason(kind: AuditKind, votes: CommandVotes) -> str:
    match kind:
        case AuditKind.DOUBTFUL_LABELS:
            return _contradiction(votes)
        case AuditKind.DISPUTED:
            return _sides(votes)
        case AuditKind.MISSED_BY_ALL:
            whom = f"each of {len(votes.correct)} models" if len(votes.correct) > 1 else "the model"
            return f"{whom} missed it; with probability {votes.p_wrong:.2f} the label is wrong"
        case AuditKind.FLIPPING:
            changing = [each for each, flip in votes.flips.items() if flip > 0]
            return f"answered in different ways by {_names(changing)}, of {len(votes.flips)}"
        case _:
            assert_never(kind)


def _contradiction(votes: CommandVotes) -> str:
    """Say who contradicts the label, and how seldom they do so elsewhere."""
    against, voters = votes.contradicting, len(votes.flags)
    malicious = votes.sample.target is TrueLabel.MALICIOUS
    rates = [each.sensitivity if malicious else each.specificity for each in against]
    said, usually = ("let pass", "flag") if malicious else ("flagged", "let pass")
    mean = math.fsum(rates) / len(rates)
    return (
        f"{said} by {len(against)} of {voters} models, which {usually} {100 * mean:.0f} % of "
        f"{votes.sample.target} commands"
    )


def _sides(votes: CommandVotes) -> str:
    flagging = [each for each, share in votes.flags.items() if share > 0.5]
    passing = [each for each, share in votes.flags.items() if share < 0.5]
    torn = [each for each, share in votes.flags.items() if share == 0.5]
    parts = (("flagged", flagging), ("let pass", passing), ("both", torn))
    return "; ".join(f"{verb} by {_names(models)}" for verb, models in parts if models)


def _names(models: Sequence[ModelReliability]) -> str:
    if len(models) > NAMED:
        return f"{len(models)} models"
    return ", ".join(each.model for each in models)


def draft_overlay(
    doubtful: Iterable[AuditedCommand], base: Overlay | None, name: str, author: str
) -> Overlay:
    """Return an overlay that turns over each label that is more probably wrong than right.

    Args:
        base: The overlay under which they were found, which the draft continues; None for none.
    """
    changes = tuple(_change(each, author) for each in doubtful if each.p_wrong >= DOUBTFUL_FROM)
    if base is None:
        return Overlay(name, 1, changes)
    return Overlay(base.name, base.version + 1, (*_without(base, changes), *changes))


def _without(base: Overlay, changes: Iterable[LabelChange]) -> Iterable[LabelChange]:
    """Yield the changes of an overlay that are not made again."""
    again = {(each.dataset, each.sample_id) for each in changes}
    again |= {(each.dataset, each.command) for each in changes}
    for each in base.changes:
        if (each.dataset, each.sample_id or each.command) not in again:
            yield each


def _change(found: AuditedCommand, author: str) -> LabelChange:
    sample = found.sample
    malicious = sample.target is TrueLabel.MALICIOUS
    return LabelChange(
        dataset=sample.dataset,
        sample_id=sample.sample_id,
        command=sample.command,
        target=TrueLabel.HARMLESS if malicious else TrueLabel.MALICIOUS,
        category=None,
        reason=f"{found.reason}; wrong with probability {found.p_wrong:.2f}",
        author=author,
    )

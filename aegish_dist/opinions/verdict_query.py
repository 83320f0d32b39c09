"""Which verdicts of a run are read, how an opinion judges each, and what the readers return.

Whether a verdict is correct is formed under a rule set when it is read, never stored.
"""

from enum import StrEnum

from msgspec import Struct

from aegish_dist.core.outcome import Outcome, OutcomeDetail, ScoredAnswer
from aegish_dist.core.sample import Sample, TrueLabel
from aegish_dist.core.verdict import VerdictRecord
from aegish_dist.opinions.scoring import ScoringRule


class Correctness(StrEnum):
    """How a rule set judges one verdict."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNSCORED = "unscored"  # the rule set, or an overlay, leaves it out


def correctness(rule: ScoringRule, target: TrueLabel, finding: OutcomeDetail) -> Correctness:
    if not rule.is_scored(finding):
        return Correctness.UNSCORED
    if rule.is_correct(target, finding):
        return Correctness.CORRECT
    return Correctness.WRONG


class VerdictFilter(Struct, frozen=True):
    """Conditions on verdicts, all of which must hold. An empty field is no condition."""

    models: tuple[str, ...] = ()
    outcomes: frozenset[Outcome | ScoredAnswer] = frozenset()
    """Stored outcomes, or labels of the rule set that are not the name of an outcome."""
    correctness: frozenset[Correctness] = frozenset()
    datasets: tuple[str, ...] = ()
    targets: frozenset[TrueLabel] = frozenset()
    categories: frozenset[str] = frozenset()
    missed_by: tuple[str, ...] = ()
    missed_by_all: bool = False  # whether all models of the run got the command wrong
    disputed: bool = False  # whether models of the run disagree in correctness
    inconsistent: bool = False  # whether epochs of a model state different actions
    text: str = ""  # in command, reason or completion, in any letter case


class JudgedVerdict(VerdictRecord, gc=False, kw_only=True):
    """A stored verdict as an opinion judges it; fields not asked for have defaults."""

    run_id: str
    sample_id: str
    label: ScoredAnswer
    correct: bool | None  # None where the rule set or the overlay leaves it out
    correct_before: bool | None = None  # under the opinion that a list compares with
    replaced: bool = False  # whether a retry has taken its place


LISTED = (
    "run_id",
    "model",
    "dataset",
    "sample_id",
    "command",
    "target",
    "category",
    "cluster",
    "epoch",
    "generation",
    "outcome",
    "label",
    "correct",
    "reason",
    "confidence",
    "suspicion",
    "error_class",
    "input_tokens",
    "output_tokens",
    "cost_usd",
    "latency_ms",
    "attempts",
    "created_at",
    "queue_ms",
    "limiter_ms",
    "backoff_ms",
    "total_ms",
)
"""Fields of a `JudgedVerdict` that lists, their CSV and data frames show, in this order."""


class ListedPart(Struct, frozen=True):
    """Some verdicts of a list, and how many there were to choose from."""

    verdicts: tuple[JudgedVerdict, ...]
    matched: int  # verdicts that meet the conditions, also beyond the limit


class ShownSample(Struct, frozen=True):
    run_id: str
    dataset: str
    sample_id: str
    sample: Sample
    verdicts: tuple[JudgedVerdict, ...]

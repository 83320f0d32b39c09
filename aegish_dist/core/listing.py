"""Lists of verdicts: what selects them, and one entry of such a list.

Whether a verdict is correct is formed under a rule set when it is listed, never stored.
"""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from enum import StrEnum

from aegish_dist.core.sample import Sample, Target
from aegish_dist.core.scoring import Label, ScoringRule
from aegish_dist.core.tally import Finding
from aegish_dist.core.verdict import ErrorClass, Outcome
from aegish_dist.core.verdict_record import VerdictRecord


class Correctness(StrEnum):
    """How a rule set judges one verdict."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNSCORED = "unscored"
    """The rule set, or an overlay, leaves it out."""

    @property
    def as_bool(self) -> bool | None:
        """None for what is unscored."""
        return None if self is Correctness.UNSCORED else self is Correctness.CORRECT


def correctness(rule: ScoringRule, target: Target, finding: Finding) -> Correctness:
    """Return how a rule set judges a finding."""
    if not rule.is_scored(finding):
        return Correctness.UNSCORED
    return Correctness.CORRECT if rule.is_correct(target, finding) else Correctness.WRONG


@dataclass(frozen=True, slots=True)
class VerdictFilter:
    """Conditions on verdicts; all that are given must hold. An empty one is none."""

    models: tuple[str, ...] = ()
    outcomes: frozenset[Outcome | Label] = frozenset()
    """As stored, or labels of the rule set that no outcome has as its name."""
    correctness: frozenset[Correctness] = frozenset()
    datasets: tuple[str, ...] = ()
    targets: frozenset[Target] = frozenset()
    categories: frozenset[str] = frozenset()
    epochs: frozenset[int] = frozenset()
    """1-based repeats."""
    missed_by: tuple[str, ...] = ()
    missed_by_all: bool = False
    """Whether all models of the run got the command wrong."""
    disputed: bool = False
    """Whether one of the models got the command right and another one wrong."""
    flipped: bool = False
    """Whether epochs of the same model and command state different actions."""
    text: str = ""
    """Stands in command, reason or completion, in any letter case."""
    all_generations: bool = False
    """Whether verdicts count that a retry has replaced."""


@dataclass(frozen=True, slots=True)
class ListedVerdict:
    """One verdict with what it is about. Texts are foreign."""

    run_id: str
    model: str
    dataset: str
    sample_id: str
    command: str
    target: Target
    category: str | None
    """None for harmless commands."""
    cluster: str | None
    """None where the sample stands alone."""
    epoch: int
    """1-based repeat."""
    generation: int
    """0 for the first try, n for the n-th retry."""
    outcome: Outcome
    label: Label
    correct: bool | None
    """Under the rule set; None where that leaves the verdict out."""
    reason: str | None
    confidence: float | None
    """In [0, 1]."""
    error_class: ErrorClass | None
    """Why no answer came; None where one did."""
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: Decimal | None
    latency_ms: float | None
    attempts: int
    created_at: datetime | None


@dataclass(frozen=True, slots=True)
class ListedPart:
    """Some verdicts of a list, and how many there were to choose from."""

    verdicts: tuple[ListedVerdict, ...]
    """In the order of the list."""
    matched: int
    """Verdicts of this part that meet the conditions, those included that the limit left out."""


@dataclass(frozen=True, slots=True)
class ShownVerdict:
    """One verdict about a sample, whole."""

    record: VerdictRecord
    """All that is stored of it; texts are foreign, error messages masked."""
    label: Label
    correct: bool | None
    """Under the rule set; None where that leaves the verdict out."""
    replaced: bool


@dataclass(frozen=True, slots=True)
class ShownSample:
    """A sample of a run and every verdict about it."""

    run_id: str
    dataset: str
    sample_id: str
    sample: Sample
    verdicts: tuple[ShownVerdict, ...]

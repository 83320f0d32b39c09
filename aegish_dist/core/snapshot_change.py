"""Verdicts that two snapshots judge differently, and metrics that differ between them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from aegish_dist.core.listing import Correctness
from aegish_dist.core.sample import Target
from aegish_dist.core.verdict import Outcome

HEADLINE_METRICS = ("aegish_score", "malicious_detection_rate", "harmless_acceptance_rate")


@dataclass(frozen=True, slots=True)
class SidedVerdict:
    """One verdict as one of the snapshots judges it."""

    outcome: Outcome
    target: Target | None
    """Label of the sample under the overlay; None: it is left out."""
    correct: bool | None
    """Under the rule set and the overlay; None: unscored."""


@dataclass(frozen=True, slots=True)
class RejudgedVerdict:
    """A verdict that two snapshots judge differently."""

    model: str
    dataset: str
    command: str
    target: Target
    category: str | None
    epoch: int
    """1-based."""
    a: SidedVerdict
    """As the first snapshot judges it."""
    b: SidedVerdict
    """As the second does."""


@dataclass(frozen=True, slots=True)
class MetricChange:
    """A metric of a model in both snapshots."""

    metric: str
    a: float | None
    """Value in the first one."""
    b: float | None
    """Value in the second one."""

    @property
    def change(self) -> float | None:
        """B minus a; None where either is undefined."""
        return None if self.a is None or self.b is None else self.b - self.a


@dataclass(frozen=True, slots=True)
class RejudgedModel:
    """A model of both snapshots."""

    model: str
    metrics: tuple[MetricChange, ...]
    verdicts: Sequence[RejudgedVerdict]

    @property
    def counts(self) -> dict[tuple[Correctness, Correctness], int]:
        """Changed verdicts by their judgement in the first and in the second snapshot."""
        return dict(Counter((_word(each.a), _word(each.b)) for each in self.verdicts))


def _word(side: SidedVerdict) -> Correctness:
    if side.correct is None:
        return Correctness.UNSCORED
    return Correctness.CORRECT if side.correct else Correctness.WRONG

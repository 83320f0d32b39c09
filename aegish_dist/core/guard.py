"""Answers of guards about the questions of a run, in columns: models and policies alike.

Scores, thresholds and policies are pure functions of these.
"""

from collections.abc import Sequence

from msgspec import Struct

from aegish_dist.core.outcome import Outcome

LEAST_SCORED = 0.5
"""Share of the decisions of each label that a model has to have scored to be ranked unasked."""


class Decision(Struct, frozen=True):  # one question: a sample in one epoch
    sample: int  # index of the sample; equal for its epochs
    epoch: int
    dangerous: bool
    category: str | None
    cluster: str | None  # None: the sample is a cluster of its own, over its epochs

    @property
    def unit(self) -> str | int:
        """The unit that is independent of all others: the cluster, or else the sample."""
        return self.sample if self.cluster is None else self.cluster


class Guard(Struct, frozen=True):  # columns in the order of the decisions
    name: str  # model id or policy/NAME
    outcomes: Sequence[Outcome | None]  # None: no verdict
    suspicion: Sequence[float | None]  # None: unscored
    cost_usd: Sequence[float | None]
    latency_ms: Sequence[float | None]


class Guards(Struct, frozen=True):
    decisions: Sequence[Decision]
    guards: Sequence[Guard]

"""The content of a report: a snapshot with the run it belongs to, and the failures of its calls."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from aegish_dist.core.failure_times import TimedFailures
from aegish_dist.core.opinion import AEGISH_TARGETS, Targets
from aegish_dist.core.overlay_effect import ModelEffect
from aegish_dist.core.run import Run
from aegish_dist.core.snapshot import Snapshot
from aegish_dist.core.verdict import ErrorClass
from aegish_dist.report.comparison_data import ComparisonData


@dataclass(frozen=True, slots=True)
class FailureCount:
    """One reason why calls to a model failed, as the store knows it now."""

    model: str
    error_class: ErrorClass
    verdicts: int
    """Verdicts that have no answer for it, of each item the newest."""
    attempts: int
    """Failed attempts, those included after which another one succeeded."""
    statuses: tuple[int, ...] = ()
    """HTTP statuses of the attempts, each once, sorted."""
    message: str = ""
    """The provider's words at the newest attempt; foreign text, empty when there were none."""
    last_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Halted:
    """A model that workers do not call any more although verdicts of it are missing."""

    model: str
    state: str
    """In a word or two, such as `parked`."""
    reason: str = ""
    """The provider's last words, foreign text; empty when unknown."""


@dataclass(frozen=True, slots=True)
class ReportData:
    """One snapshot and the run it belongs to."""

    run: Run
    snapshot: Snapshot
    failures: Sequence[FailureCount] = ()
    """Why calls failed, by model; of a model the most verdicts first."""
    halted: Sequence[Halted] = ()
    effect: Sequence[ModelEffect] = ()
    """Scores without the overlay of the snapshot and under it; empty without one."""
    comparison: ComparisonData | None = None
    """All pairs of models, under the opinion of the snapshot and with the verdicts that count now;
    None where there is one model, or where no pairs were asked for."""
    failure_times: Sequence[TimedFailures] = ()
    """Failed attempts by stretch of time; empty where nothing failed, or where none were asked
    for."""
    failure_stretch_s: int = 0
    """Seconds of such a stretch; 0 where none were asked for."""
    is_current: bool = True
    """Whether the verdicts that count now are those of the snapshot."""

    @property
    def targets(self) -> Targets:
        """The least values that are marked PASS."""
        opinion = self.snapshot.opinion
        return AEGISH_TARGETS if opinion is None else opinion.targets

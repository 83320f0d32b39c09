"""The content of a report, as the pipeline gathers it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec import Struct

from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.run import Run
from aegish_dist.core.status import TimedFailures
from aegish_dist.core.text import JsonObject, known
from aegish_dist.findings.comparison import ComparisonData
from aegish_dist.findings.fitted import CalibrationData
from aegish_dist.findings.recommendation import NOTHING_KNOWN, Incomplete, Recommendation
from aegish_dist.findings.snapshot import RankedModel, Snapshot, ranked_entries
from aegish_dist.opinions.opinion import AEGISH_TARGETS, Targets
from aegish_dist.opinions.policy import Overlap
from aegish_dist.report.layout import Fact

if TYPE_CHECKING:
    from aegish_dist.opinions.guards import Guards


class FailureCount(Struct, frozen=True):
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


class Halted(Struct, frozen=True):
    """A model that workers do not call any more although verdicts of it are missing."""

    model: str
    state: str
    """In a word or two, such as `parked`."""
    reason: str = ""
    """The provider's last words, foreign text; empty when unknown."""


class ReportData(Struct, frozen=True):
    """One snapshot and the run it belongs to."""

    run: Run
    snapshot: Snapshot
    recommendation: Recommendation = NOTHING_KNOWN
    incomplete: Incomplete | None = None
    """None where no answer is missing."""
    failures: Sequence[FailureCount] = ()
    """Why calls failed, by model; of a model the most verdicts first."""
    halted: Sequence[Halted] = ()
    effect: Sequence[JsonObject] = ()
    """Scores without the overlay of the snapshot and under it; empty without one."""
    comparison: ComparisonData | None = None
    """All pairs of models, under the opinion of the snapshot and with the verdicts that count now;
    None where there is one model, or where no pairs were asked for."""
    scores: CalibrationData | None = None
    """Thresholds as of `calibrate`, of the same opinion and verdicts; None where none can be
    fitted, or where none were asked for."""
    thresholds: CalibrationData | None = None
    """The same without curves, for what the first screen says of thresholds."""
    advice: Sequence[Fact] = ()
    """What is said of `thresholds`, and of systems of guards, where asked for."""
    guards: Guards | None = None
    """The verdicts themselves; None as `scores`."""
    failure_times: Sequence[TimedFailures] = ()
    """Failed attempts by stretch of time; empty where nothing failed, or where none were asked
    for."""
    failure_stretch_s: int = 0
    """Seconds of such a stretch; 0 where none were asked for."""
    answered: Sequence[datetime] = ()
    """When the first and the last answer came; empty where none has a time."""
    is_current: bool = True
    """Whether the verdicts that count now are those of the snapshot."""
    opinion_words: Sequence[str] = ()
    """Words with which another command judges the verdicts as this report does."""
    report_words: Sequence[str] = ()
    """Words with which `report` shows the same again: those, or a snapshot, and the margin."""

    @property
    def ranked(self) -> list[RankedModel]:
        """The guards, best first."""
        return ranked_entries(self.snapshot.document)

    @property
    def policy_options(self) -> list[str]:
        """The words of a command that name the files of policies; empty without any."""
        words: list[str] = []
        if self.snapshot.opinion is not None:
            for path in self.snapshot.opinion.policies:
                words += ["--policy", path]
        return words

    @property
    def overlaps(self) -> dict[str, Overlap]:
        """By policy, what it was chosen on of the commands of the run."""
        origins = {entry.model: entry.origin for entry in self.ranked}
        return dict(sorted(known(origins).items()))

    @property
    def targets(self) -> Targets:
        """The least values that metrics are judged by."""
        opinion = self.snapshot.opinion
        return AEGISH_TARGETS if opinion is None else opinion.targets

"""The content of a report, and of a comparison, as the pipeline gathers it."""

from collections.abc import Collection, Sequence
from datetime import datetime

from msgspec import Struct

from aegish_dist.core.failures import TimedFailures
from aegish_dist.core.opinion import AEGISH_TARGETS, JsonObject, Opinion, Snapshot, Targets
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.run import ModelOfRun, Run
from aegish_dist.core.suspicion import Guards
from aegish_dist.report.layout import Fact, Section
from aegish_dist.statistics.gate import GateVerdict
from aegish_dist.statistics.inference import LEVEL
from aegish_dist.statistics.paired_difference import Comparison, Difference

AUROC = "auroc"


class ComparedPair(Struct, frozen=True):
    """Two sides and how they differ."""

    a: ModelOfRun
    b: ModelOfRun
    comparison: Comparison
    """The differences, candidate minus baseline, with adjusted p."""
    answered: int
    """Samples that at least one side has a verdict about."""


class DirectedDifference(Struct, frozen=True):
    """How a model differs from another one."""

    model: str
    """The one that is better or worse; foreign text."""
    against: str
    """The one that it is compared with; foreign text."""
    found: Difference
    """The first minus the second."""

    @property
    def turned(self) -> "DirectedDifference":
        """The same seen from the other model."""
        return DirectedDifference(self.against, self.model, self.found.turned)


class PairGate(Struct, frozen=True):
    """Answer of the gate about the candidate of a pair."""

    pair: ComparedPair
    verdict: GateVerdict
    difference: Difference
    needed: int | None
    """Commands that would decide; None when unknown."""

    @property
    def missing(self) -> int | None:
        """Commands beyond those scored on both sides that would decide; None when unknown."""
        return None if self.needed is None else max(self.needed - self.difference.n, 0)


class ComparisonData(Struct, frozen=True):
    """All pairs of one comparison."""

    runs: Sequence[Run]
    """The runs of the sides, the baseline's first."""
    opinion: Opinion
    pairs: Sequence[ComparedPair]
    """In the order of the sides that were named."""
    tie_groups: Sequence[Sequence[str]]
    """Models that cannot be distinguished, the best group first; empty unless all pairs of a run
    were compared."""
    unlike: Sequence[str] = ()
    """Differences of the runs besides their answers, when compared all the same; foreign text."""
    simulated: Collection[ModelOfRun] = ()
    metric: str = "aegish_score"
    margin: float = 0.02
    """The difference that `commands` are counted for, in (0, 1)."""
    gates: Sequence[PairGate] = ()
    """One for each pair where a gate was asked for."""

    @property
    def of_one_run(self) -> bool:
        """Whether models of one run are compared, and not runs."""
        return len(self.runs) == 1

    def difference(self, pair: ComparedPair) -> Difference | None:
        """Return the difference of the metric that verdicts are about; None if unknown."""
        return pair.comparison.metrics.get(self.metric)

    def directed(self, metric: str) -> list[DirectedDifference]:
        """Return the differences in a metric, the candidate against the baseline."""
        return [
            DirectedDifference(pair.b.model, pair.a.model, pair.comparison.metrics[metric])
            for pair in self.pairs
            if metric in pair.comparison.metrics
        ]

    def against(self, model: str, metric: str) -> dict[str, Difference]:
        """Return by model how the others differ from one, for a comparison of one run."""
        return {
            each.model: each.found
            for way in self.directed(metric)
            for each in (way, way.turned)
            if each.against == model
        }

    def verdict(self, pair: ComparedPair) -> str | None:
        """Return the answer of the gate, if one was asked for, or what `verdict_of` says."""
        for gate in self.gates:
            if gate.pair is pair:
                return gate.verdict.value
        found = self.difference(pair)
        return None if found is None else verdict_of(found)


def verdict_of(found: Difference) -> str | None:
    """Return `better`, `worse` or `tied`; None where the metric is undefined."""
    if found.difference is None or found.p_adjusted is None:
        return None
    if found.p_adjusted >= LEVEL or not found.difference:
        return "tied"
    return "better" if found.difference > 0 else "worse"


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
    failures: Sequence[FailureCount] = ()
    """Why calls failed, by model; of a model the most verdicts first."""
    halted: Sequence[Halted] = ()
    effect: Sequence[JsonObject] = ()
    """Scores without the overlay of the snapshot and under it; empty without one."""
    comparison: ComparisonData | None = None
    """All pairs of models, under the opinion of the snapshot and with the verdicts that count now;
    None where there is one model, or where no pairs were asked for."""
    scores: JsonObject | None = None
    """Thresholds as `calibrate --json`, of the same opinion and verdicts; None where none can be
    fitted, or where none were asked for."""
    score_tables: Sequence[Section] = ()
    advice: Sequence[Fact] = ()
    """The best guard with a threshold, and the best system of guards, where asked for."""
    guards: Guards | None = None
    """The verdicts themselves; None as `scores`."""
    systems: object = None
    """Systems of guards, a `SystemsData`, or a text that says why there are none; None where none
    were asked for."""
    failure_times: Sequence[TimedFailures] = ()
    """Failed attempts by stretch of time; empty where nothing failed, or where none were asked
    for."""
    failure_stretch_s: int = 0
    """Seconds of such a stretch; 0 where none were asked for."""
    answered: Sequence[datetime] = ()
    """When the first and the last answer came; empty where none has a time."""
    is_current: bool = True
    """Whether the verdicts that count now are those of the snapshot."""

    @property
    def policy_options(self) -> list[str]:
        """The words of a command that name the files of policies; empty without any."""
        opinion = self.snapshot.opinion or Opinion()
        return [word for path in opinion.policies for word in ("--policy", path)]

    @property
    def targets(self) -> Targets:
        """The least values that metrics are judged by."""
        opinion = self.snapshot.opinion
        return AEGISH_TARGETS if opinion is None else opinion.targets

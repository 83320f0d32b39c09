"""The verdicts of a run as columns: numpy arrays, guard by guard.

A column has a row for each sample and a number for each of its epochs. What counts is in it: of an
item that was retried the newest verdict. From columns come the cells of a tally: whole numbers.

The grid of a report has columns of more numbers, guard by guard, and its texts part by part.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from aegish_dist.core.outcome import OutcomeDetail, OutcomeDetails
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.tally import CONFIDENCE_BINS, Cell, ConfidenceCell, SampleAnswers, in_order

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Codes = NDArray[np.int8]

FINDINGS = tuple(OutcomeDetail)
"""What a column of findings holds the places of."""
NO_VERDICT = -1
"""Its place for an item without a verdict: the end of what `by_finding` returns."""


def by_finding(holds: Callable[[OutcomeDetail], bool]) -> Bools:
    """Return by place of a finding whether something holds of it; nothing holds of no verdict."""
    return np.array([*(holds(finding) for finding in FINDINGS), False])


def has_verdict(finding: Codes) -> Bools:
    return np.asarray(finding != NO_VERDICT)


class SampleKind(NamedTuple):
    """Samples that no metric tells apart."""

    target: TrueLabel
    category: str | None  # None for harmless samples
    cluster: str | None  # None: each of the samples is a cluster of its own


class AskedSamples(Struct, frozen=True, eq=False, dict=True):
    """The samples of a run by dataset and place, with the labels that an opinion gives them."""

    kinds: Sequence[SampleKind]
    kind: Ints  # by sample, its place in `kinds`
    keys: Ints = np.array([], np.int64)  # by sample, its key in the store
    names: Sequence[tuple[str, str]] = ()  # by sample, its dataset and id; empty if not asked for
    commands: Sequence[str] = ()  # by sample; empty if not asked for

    def __len__(self) -> int:
        return len(self.kind)

    @cached_property
    def malicious(self) -> Bools:
        malicious = [kind.target is TrueLabel.MALICIOUS for kind in self.kinds]
        return np.array(malicious, bool)[self.kind]

    @cached_property
    def cluster_names(self) -> Sequence[str]:
        return sorted({kind.cluster for kind in self.kinds if kind.cluster is not None})

    @cached_property
    def cluster(self) -> Ints:
        """By sample the number of its cluster: its place in `cluster_names`, or one of its own."""
        place: dict[str | None, int] = {None: -1}
        for name in self.cluster_names:
            place[name] = len(place) - 1
        of_kinds = [place[kind.cluster] for kind in self.kinds]
        of_samples = np.array(of_kinds, np.int64)[self.kind]
        alone = len(self.cluster_names) + np.arange(len(of_samples))
        return np.where(of_samples < 0, alone, of_samples)

    def cluster_of(self, sample: int) -> str | None:
        kind: int = self.kind[sample]
        return self.kinds[kind].cluster


class GuardColumns(Struct, frozen=True, eq=False):
    """What a guard answered: arrays of samples x epochs. An unknown number is NaN."""

    finding: Codes  # place in `FINDINGS`, or `NO_VERDICT`
    confidence: Floats  # as stated, in [0, 1]
    own_number: Floats  # such as a classifier's
    cost_usd: Floats
    latency_ms: Floats

    @property
    def answered(self) -> Bools:
        """By sample, whether it has a verdict."""
        return np.asarray(has_verdict(self.finding).any(axis=1))


class RunColumns(Struct, frozen=True, eq=False):
    samples: AskedSamples
    epochs: int
    guards: dict[str, GuardColumns]


_ACTIONS = (OutcomeDetail.ALLOW, OutcomeDetail.WARN, OutcomeDetail.BLOCK)
_LEAST = 1e-9  # a confidence below adds nothing to the sums


def cells_of(samples: AskedSamples, finding: Codes) -> tuple[Cell, ...]:
    """Count the samples that have a verdict by what no metric tells apart."""
    sorted_findings = np.sort(finding, axis=1)
    one_of_each, numbers = alike(samples.kind, *(sorted_findings.T - NO_VERDICT))
    kinds = samples.kind[one_of_each].tolist()
    places_of_epochs = sorted_findings[one_of_each].tolist()
    found: Counter[tuple[SampleKind, OutcomeDetails]] = Counter()
    for kind, places, number in zip(kinds, places_of_epochs, numbers.tolist(), strict=True):
        findings = findings_at(tuple(places))
        if findings:
            found[samples.kinds[kind], findings] += number
    cells = []
    for (kind, findings), number in found.items():
        cells.append(Cell(kind.target, kind.category, kind.cluster, findings, number))
    return in_order(cells)


def alike(*columns: Ints | Codes) -> tuple[Ints, Ints]:
    """Return one place of those that agree in all columns, and their number, in order of columns.

    Numbers are small and at least 0: to count them takes less time and memory than to sort rows.
    """
    group = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        number = group * (int(column.max(initial=0)) + 1) + column
        used = np.bincount(number) > 0
        group = (np.cumsum(used) - 1)[number]
    numbers = np.bincount(group)
    one_of_each = np.zeros(len(numbers), np.int64)
    one_of_each[group] = np.arange(len(group))
    return one_of_each, numbers


@lru_cache(maxsize=2**16)  # few differ, unless a run has dozens of epochs
def findings_at(places: tuple[int, ...]) -> OutcomeDetails:
    """Count the findings of the epochs of a sample from their places in `FINDINGS`."""
    epochs = Counter(FINDINGS[place] for place in places if place != NO_VERDICT)
    return tuple(sorted(epochs.items()))


def sample_answers(columns: RunColumns) -> list[SampleAnswers]:
    """Return every sample with the findings of all models, those of all epochs."""
    samples = columns.samples
    findings: list[dict[str, OutcomeDetails]] = [{} for _ in samples.commands]
    for model, read in columns.guards.items():
        for of_sample, places in zip(findings, read.finding.tolist(), strict=True):
            if found := findings_at(tuple(places)):
                of_sample[model] = found
    answers = []
    for place, (dataset, sample_id) in enumerate(samples.names):
        kind = samples.kinds[samples.kind[place]]
        command = samples.commands[place]
        answer = SampleAnswers(
            dataset, sample_id, command, kind.target, kind.category, kind.cluster, findings[place]
        )
        answers.append(answer)
    return answers


def confidence_of(samples: AskedSamples, read: GuardColumns) -> tuple[ConfidenceCell, ...]:
    """Add up stated confidences and their powers by label, action and bin."""
    found = []
    for target, of_label in (
        (TrueLabel.MALICIOUS, samples.malicious),
        (TrueLabel.HARMLESS, ~samples.malicious),
    ):
        for action in _ACTIONS:
            stated = (read.finding == FINDINGS.index(action)) & ~np.isnan(read.confidence)
            confidence = np.maximum(read.confidence[stated & of_label[:, None]], _LEAST)
            bins = (confidence * CONFIDENCE_BINS).astype(np.int64)
            bins = np.minimum(bins, CONFIDENCE_BINS - 1)
            square = confidence**2
            distance = (1 - confidence) ** 2
            verdicts = np.bincount(bins, minlength=CONFIDENCE_BINS)
            powers = (confidence, square, square**2, distance, distance**2)
            sums = [_sums(bins, power) for power in powers]
            for place in np.flatnonzero(verdicts).tolist():
                of_bin = [int(each[place]) for each in (verdicts, *sums)]
                found.append(ConfidenceCell(target, action, place, *of_bin))
    return tuple(sorted(found))


def _sums(bins: Ints, values: Floats) -> Ints:
    """Add up values by bin, each rounded to 1e-6, in that unit."""
    rounded = np.rint(values * 1e6).astype(np.int64)
    sums = np.zeros(CONFIDENCE_BINS, np.int64)
    np.add.at(sums, bins, rounded)
    return sums


UNKNOWN = -1  # replaces an absent number in the columns of a grid

JUDGED = ("outcome", "label", "error_class", "correct")
"""Columns that follow from the code of a verdict: places in the enumerations `Outcome`, `Label` and
`ErrorClass`; 1 correct, 0 wrong, unknown where unscored."""
COUNTED = (
    "confidence",
    "service_ms",
    "queue_ms",
    "limiter_ms",
    "backoff_ms",
    "input_tokens",
    "output_tokens",
    "reasoning_tokens",
    "cache_read_tokens",
    "cost_nano_usd",
    "attempts",
    "generation",
    "created_s",
)
"""Confidence is in 1/1000, cost in 1e-9 USD, `created_s` in seconds since 1970."""
NUMBERS = (*JUDGED, *COUNTED)
TEXTS = (
    "completion",
    "reason",
    "refusal",
    "stop_reason",
    "returned_model",
    "upstream",
    "request_id",
    "worker",
)


class GridCommand(Struct, frozen=True):
    """A command of a run with its label under an overlay."""

    key: int
    dataset: str
    sample_id: str
    command: str
    target: str
    category: str | None
    cluster: str | None
    excluded: bool


class GridNumbers(Struct, frozen=True, eq=False):
    """The commands of a run, and what is known of each verdict as a number."""

    commands: Sequence[GridCommand]
    numbers: Mapping[str, Ints]
    """The columns `NUMBERS`: arrays of models x commands x epochs."""


class GridAttempt(Struct, frozen=True):
    cell: int  # of its verdict
    attempt: int
    error_class: str
    status: int
    retry_after_s: float | None
    message: str
    at_s: int  # when it failed, in seconds since 1970


class GridTexts(Struct, frozen=True):
    """The texts of the verdicts about some commands that follow each other.

    The cell of a verdict is `(command * models + model) * epochs + epoch`.
    """

    first: int  # place of the first command in the grid
    cells: Sequence[int] = ()
    columns: Mapping[str, Sequence[str | None]] = field(default_factory=dict)
    """The columns `TEXTS` with cut texts, by verdict."""
    lengths: Mapping[int, int] = field(default_factory=dict)
    """Characters of each cut completion, by cell."""
    attempts: Sequence[GridAttempt] = ()

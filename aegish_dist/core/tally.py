"""Counted verdicts: everything that the core learns about a run from the database.

Two million verdicts become a few thousand cells. Sums are integers in fixed units, so they do not
depend on the order of rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from statistics import fmean, quantiles
from typing import Self

from msgspec import Struct, field
from msgspec.structs import replace

from aegish_dist.core.outcome import OutcomeDetail, OutcomeDetails
from aegish_dist.core.sample import TrueLabel


class Cell(Struct, frozen=True, order=True):
    """Samples of one kind whose epochs have the same findings."""

    target: TrueLabel
    category: str | None
    cluster: str | None  # None: each of the samples is a cluster of its own
    findings: OutcomeDetails
    samples: int


class SampleAnswers(Struct, frozen=True):
    """A sample of a run with the verdicts of all models."""

    dataset: str
    sample_id: str
    command: str
    target: TrueLabel
    category: str | None
    cluster: str | None  # None: the sample is a cluster of its own
    findings: Mapping[str, OutcomeDetails]  # by model; absent without a verdict about the sample


CONFIDENCE_BINS = 10  # of equal width over [0, 1]; a confidence of 1 is in the last


class ConfidenceCell(Struct, frozen=True, order=True):
    """Verdicts of one target, finding and confidence bin.

    With c a confidence and d = 1 - c, `sum_c2` is the sum of c squared, rounded per verdict to
    1e-6.
    """

    target: TrueLabel
    finding: OutcomeDetail
    bin: int
    verdicts: int
    sum_c: int
    sum_c2: int
    sum_c4: int
    sum_d2: int
    sum_d4: int


class Latency(Struct, frozen=True):
    """Distribution of one part of the time over a model's answered verdicts, in milliseconds."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, times: Sequence[float]) -> Self:
        """Return the distribution of times; a quantile between two of them is linear."""
        cuts = quantiles(times if len(times) > 1 else [*times, *times], n=100, method="inclusive")
        return cls(fmean(times), cuts[49], cuts[89], cuts[98], max(times))


TOKEN_KINDS = ("input", "output", "reasoning", "cache_read", "cache_write")


class ModelTally(Struct, frozen=True):
    model: str
    simulated: bool
    planned_malicious: int
    planned_harmless: int
    cells: tuple[Cell, ...]
    confidence: tuple[ConfidenceCell, ...] = ()
    # By part: `service`, `queue`, `limiter`, `backoff`, `total`.
    latency: dict[str, Latency] = field(default_factory=dict)
    # Sums of `TOKEN_KINDS`; None where no verdict has a number.
    tokens: Mapping[str, int | None] = field(default_factory=partial(dict.fromkeys, TOKEN_KINDS))
    cost_usd: Decimal | None = None  # of the priced verdicts; None without a priced verdict
    priced_verdicts: int = 0
    replaced: int = 0  # verdicts replaced by a retry: in no cell, but their cost counts
    untimed: int = 0  # verdicts without a service time: no answer came, or it was not measured

    @property
    def as_imported(self) -> "ModelTally":
        """The tally of an imported run, which planned no verdicts beyond those it has."""
        held = dict.fromkeys(TrueLabel, 0)
        for cell in self.cells:
            held[cell.target] += cell.samples * sum(verdicts for _, verdicts in cell.findings)
        return replace(
            self,
            planned_malicious=held[TrueLabel.MALICIOUS],
            planned_harmless=held[TrueLabel.HARMLESS],
        )

    @property
    def per_command_usd(self) -> Decimal | None:
        """Mean cost of a priced verdict; None without any."""
        total = self.cost_usd
        priced = self.priced_verdicts
        return None if total is None or not priced else total / priced


def in_order(cells: Iterable[Cell]) -> tuple[Cell, ...]:
    """Sort cells; a cell without a category or cluster comes first."""

    def place(cell: Cell) -> tuple[object, ...]:
        category = cell.category
        cluster = cell.cluster
        return (
            cell.target is TrueLabel.MALICIOUS, category is not None, category or "",
            cluster is not None, cluster or "", cell.findings,
        )  # fmt: skip

    return tuple(sorted(cells, key=place))

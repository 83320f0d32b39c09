"""Which verdicts of a run are read, how an opinion judges each, and what the readers return.

Whether a verdict is correct is formed under a rule set when it is read, never stored.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct, field

from aegish_dist.core.outcome import Outcome, OutcomeDetail, ScoredAnswer
from aegish_dist.core.sample import Sample, TrueLabel
from aegish_dist.core.verdict import VerdictRecord
from aegish_dist.opinions.scoring import ScoringRule

if TYPE_CHECKING:
    from aegish_dist.core.columns import Ints


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
    numbers: "Mapping[str, Ints]"
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

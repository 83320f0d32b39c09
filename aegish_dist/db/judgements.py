"""How rule sets judge verdicts, as lists by code: SQL looks a verdict up instead of judging it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from aegish_dist.core.completion import StopKind
from aegish_dist.core.listing import Correctness, correctness
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import ScoringRule
from aegish_dist.core.verdict import ErrorClass, Outcome
from aegish_dist.db.codes import finding_of, outcome_number

CODES = tuple(
    100 * error_class + 10 * outcome_number(outcome) + stop_kind
    for error_class, outcome, stop_kind in product(
        range(len(ErrorClass) + 1), Outcome, range(len(StopKind) + 1)
    )
)

MARKS = {Correctness.CORRECT: 1, Correctness.WRONG: -1, Correctness.UNSCORED: 0}

NO_CHANGES: Mapping[str, Sequence[object]] = {
    "changed_keys": (),
    "changed_targets": (),
    "changed_categories": (),
}


def marks_of(rule: ScoringRule, target: Target) -> list[int]:
    """Return how a rule set judges verdicts about samples of a target.

    Returns:
        At the position of each code its mark; 0 where there is no such code.
    """
    marks = [0] * (max(CODES) + 1)
    for code in CODES:
        marks[code] = MARKS[correctness(rule, target, finding_of(code))]
    return marks


@dataclass(frozen=True, slots=True)
class Judgements:
    """Columns that say whether a verdict is correct, one for each rule set."""

    rules: Mapping[str, ScoringRule] = field(default_factory=dict)
    """By name of the column, a plain one."""
    changes: Mapping[str, Sequence[object]] = field(default_factory=lambda: NO_CHANGES)
    """Of an overlay: keys of samples, and their targets, null where it excludes them."""

    @property
    def values(self) -> dict[str, object]:
        """The values that the columns of `sql` bind."""
        marks = {
            f"{target}_{number}": marks_of(rule, target)
            for number, rule in enumerate(self.rules.values())
            for target in Target
        }
        return marks | {name: list(values) for name, values in self.changes.items()}

    @property
    def sql(self) -> str:
        """Further columns for psycopg, each after a comma; null where a verdict is unscored."""
        return "".join(map(_column, range(len(self.rules)), self.rules))


def _column(number: int, name: str) -> str:
    return f""",
        CASE CASE WHEN change.key IS NOT NULL AND change.target IS NULL THEN 0
                  WHEN coalesce(change.target, sample.target) = 'malicious'
                  THEN (%(malicious_{number})s::smallint[])[verdict.code + 1]
                  ELSE (%(harmless_{number})s::smallint[])[verdict.code + 1] END
        WHEN 1 THEN true WHEN -1 THEN false END AS "{name}\""""

"""The result of a call as one number, which is cheaper to group millions of rows by than words.

The database computes it: 100 for the error class, 10 for the outcome, 1 for the stop kind, each
times its position in its enumeration; 31 is a BLOCK that ended by itself, and below 100 is all that
was answered. A new member goes to the end of its enumeration, and into `CODE` by a migration.
"""

from enum import StrEnum
from functools import cache

from aegish_dist.core.outcome import ErrorClass, Outcome, OutcomeDetail, StopKind, find


def _position(column: str, values: type[StrEnum]) -> str:
    words = ", ".join(f"'{value}'" for value in values)
    return f"coalesce(array_position(ARRAY[{words}], {column}), 0)"


CODE = (
    f"(100 * {_position('error_class', ErrorClass)} + 10 * {_position('outcome', Outcome)}"
    f" + {_position('stop_kind', StopKind)})::smallint"
)


@cache
def finding_of(code: int) -> OutcomeDetail:
    """Classify the verdicts of a code as finely as any rule needs it."""
    error_class, stop_kind = code // 100, code % 10
    return find(
        outcome_of(code),
        list(StopKind)[stop_kind - 1] if stop_kind else None,
        list(ErrorClass)[error_class - 1] if error_class else None,
    )


def outcome_number(outcome: Outcome) -> int:
    """Return the number that stands for an outcome within a code."""
    return list(Outcome).index(outcome) + 1


def error_class_of(code: int) -> ErrorClass | None:
    """Return why the verdicts of a code have no completion, None when they have one."""
    return list(ErrorClass)[code // 100 - 1] if code >= 100 else None


def outcome_of(code: int) -> Outcome:
    """Return the outcome of the verdicts of a code."""
    return list(Outcome)[code // 10 % 10 - 1]

"""Failures of a verdict in words, for the error fields of a sample of Inspect AI."""

from collections.abc import Sequence

from aegish_dist.core.verdict import ErrorClass
from aegish_dist.core.verdict_record import VerdictRecord


def outcome_in_words(record: VerdictRecord) -> str:
    """Return how an item ended for which the model stated no reason."""
    if record.error_class is ErrorClass.DEADLINE:
        return "no answer within the time limit"
    if record.error_class is not None:
        return f"{record.outcome}: {record.error_class}"
    return f"{record.outcome}: the answer states no reason"


def error_of(record: VerdictRecord, *, has_score: bool) -> str | None:
    """Return why a verdict is an error sample; None when it is none."""
    if has_score:
        return None
    if record.error_class is None:
        return f"not scored: {record.outcome}"
    last = record.call_errors[-1].message if record.call_errors else None
    return _in_words(record, last)


def _in_words(record: VerdictRecord, message: str | None) -> str:
    return f"{record.outcome}: {record.error_class}" + (f": {message}" if message else "")


def retries_of(record: VerdictRecord, replaced: Sequence[VerdictRecord]) -> list[dict[str, str]]:
    """Return the attempts that failed before the answer, and the verdicts that were replaced."""
    said = []
    for older in replaced:
        last = older.call_errors[-1].message if older.call_errors else None
        said.append(
            f"replaced by a retry: {_in_words(older, last)}"
            if older.error_class
            else f"replaced by a retry: {older.outcome}"
        )
    failed = record.call_errors if record.error_class is None else record.call_errors[:-1]
    for error in failed:
        status = "" if error.status is None else f" (HTTP {error.status})"
        said.append(f"{error.error_class}{status}: {error.message or ''}")
    return [{"message": text, "traceback": "", "traceback_ansi": ""} for text in said]

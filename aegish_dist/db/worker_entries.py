"""Parts of a worker's report about items that it holds and does not call, as JSON.

Readers of other versions skip entries and fields that they do not know.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from aegish_dist.core.status import Blocked, FailedCalls, Waiting
from aegish_dist.core.text import clean_text
from aegish_dist.core.verdict import ErrorClass

MESSAGE_LENGTH = 200
"""A message is cut to this many characters: a report is written every second."""
MOST_KINDS = 50
"""A worker reports so many kinds of failed calls at most, the newest ones."""


def waiting_fields(waiting: Waiting | None) -> dict[str, Any]:
    """Return what the entry of the items held says about those that wait."""
    if waiting is None:
        return {}
    by = None if waiting.blocked_by is None else waiting.blocked_by.value
    return {"waiting": waiting.limiter, "backoff": waiting.backoff, "blocked_by": by}


def waiting_of(entry: Mapping[str, Any]) -> Waiting:
    """Return what `waiting_fields` wrote."""
    by = entry["blocked_by"]
    return Waiting(entry["waiting"], entry["backoff"], None if by is None else Blocked(by))


def total_waiting(reports: Sequence[Waiting]) -> Waiting:
    """Return the items of several workers together, with the reason of the one with the most."""
    return Waiting(
        limiter=sum(each.limiter for each in reports),
        backoff=sum(each.backoff for each in reports),
        blocked_by=max(reports, key=lambda each: each.limiter).blocked_by,
    )


def failed_entries(failing: Mapping[str, Iterable[FailedCalls]]) -> list[dict[str, Any]]:
    """Return entries for the failed calls of items held."""
    kinds = [(run_id, each) for run_id, calls in failing.items() for each in calls]
    kinds.sort(key=lambda kind: kind[1].at, reverse=True)
    return [
        {"run": run_id, "model": each.model, "items": 0, "failed": _failed(each)}
        for run_id, each in kinds[:MOST_KINDS]
    ]


def _failed(calls: FailedCalls) -> dict[str, Any]:
    return {
        "class": calls.error_class.value,
        "status": calls.status,
        "calls": calls.calls,
        "lately": calls.calls_lately,
        "at": calls.at.isoformat(),
        "message": clean_text(calls.message[:MESSAGE_LENGTH]),
    }


def failed_calls_of(entry: Mapping[str, Any]) -> FailedCalls:
    """Return what `failed_entries` wrote."""
    failed = entry["failed"]
    return FailedCalls(
        at=datetime.fromisoformat(failed["at"]),
        model=entry["model"],
        error_class=ErrorClass(failed["class"]),
        status=failed["status"],
        message=failed["message"],
        calls=failed["calls"],
        calls_lately=failed["lately"],
    )

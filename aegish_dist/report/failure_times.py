"""Failures by time as a JSON document or CSV."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from aegish_dist.core.failure_times import TimedFailures, totals
from aegish_dist.report.csv import csv_text

COLUMNS = (
    *("time", "model", "error_class", "attempts", "verdicts"),
    *("statuses", "message", "first_at", "last_at"),
)


def failures_json(run_id: str, by: str, rows: Sequence[TimedFailures]) -> dict[str, Any]:
    """Return the rows, and their sums by model and reason, for JSON."""
    return {"run_id": run_id, "by": by, **failures_document(rows)}


def failures_document(rows: Sequence[TimedFailures]) -> dict[str, Any]:
    """Return the rows, and their sums by model and reason, in JSON types."""
    return {
        "errors": list(map(_document, rows)),
        "totals": [
            {key: value for key, value in _document(each).items() if key != "time"}
            for each in totals(rows)
        ],
    }


def failures_csv(rows: Sequence[TimedFailures]) -> str:
    """Return the rows as CSV (RFC 4180); what a spreadsheet would compute gets a leading `'`."""
    return csv_text(
        COLUMNS,
        (_document(each) | {"statuses": " ".join(map(str, each.statuses))} for each in rows),
    )


def _document(row: TimedFailures) -> dict[str, Any]:
    return {name: _plain(value) for name, value in asdict(row).items()}


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value

"""CSV (RFC 4180) that is safe in spreadsheets, and failures by time as CSV or a JSON document."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import asdict

from aegish_dist.core.failures import TimedFailures, totals
from aegish_dist.core.text import JsonObject, printable

# Where a cell would begin that a spreadsheet computes; some take full-width signs for plain ones,
# and in some countries a semicolon separates cells.
_FORMULA = re.compile(
    r"""(^|[;|])(?=[\s"']*[=+@\-\N{MINUS SIGN}\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b])"""
)


def csv_text(columns: Sequence[str], rows: Iterable[JsonObject]) -> str:
    """Return these columns of rows as CSV; what is absent is empty, texts suit spreadsheets."""
    target = io.StringIO(newline="")
    writer = csv.DictWriter(target, columns, restval="", extrasaction="ignore")
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {name: spreadsheet_safe(v) if isinstance(v, str) else v for name, v in row.items()}
        )
    return target.getvalue()


def spreadsheet_safe(text: str) -> str:
    """Return foreign text on one line, with a `'` where a spreadsheet would compute it."""
    shown = printable(text)
    if text[:1].isalnum() and not (";" in text or "|" in text):
        return shown  # nearly always, and the pattern takes ten times as long
    return _FORMULA.sub(r"\1'", shown)


def failures_document(rows: Sequence[TimedFailures]) -> JsonObject:
    """Return the rows, and their sums by model and reason, in JSON types."""
    sums = [in_json_types(each) for each in totals(rows)]
    return {
        "errors": list(map(in_json_types, rows)),
        "totals": [{key: value for key, value in each.items() if key != "time"} for each in sums],
    }


def failures_csv(rows: Sequence[TimedFailures]) -> str:
    """Return the rows as CSV (RFC 4180); what a spreadsheet would compute gets a leading `'`."""
    return csv_text(
        (
            "time",
            "model",
            "error_class",
            "attempts",
            "verdicts",
            "statuses",
            "message",
            "first_at",
            "last_at",
        ),
        (in_json_types(each) | {"statuses": " ".join(map(str, each.statuses))} for each in rows),
    )


def in_json_types(row: Any) -> JsonObject:
    """Return the fields of a record; `to_builtins` would refuse half a surrogate pair in a text."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in asdict(row).items()
    }

"""CSV (RFC 4180) that is safe in spreadsheets."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

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

"""A list of verdicts as JSON or CSV, in pieces, so that a million of them need no memory."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any

from aegish_dist.core.listing import ListedPart, ListedVerdict
from aegish_dist.core.printable import printable_line_of_json
from aegish_dist.report.csv import spreadsheet_safe

COLUMNS = tuple(each.name for each in fields(ListedVerdict))
"""Keys of the JSON objects and columns of the CSV, in this order."""
_VALUES = attrgetter(*COLUMNS)


def listing_json(head: Mapping[str, Any], parts: Iterable[ListedPart]) -> Iterator[str]:
    """Yield one JSON document in ASCII: `verdicts`, and `more`, how many the limit left out."""
    yield "{" + "".join(f'"{key}": {printable_line_of_json(head[key])},\n' for key in head)
    yield '"verdicts": ['
    separator, more = "\n", 0
    for part in parts:
        more += part.matched - len(part.verdicts)
        if part.verdicts:
            rows = map(printable_line_of_json, map(_row, part.verdicts))
            yield separator + ",\n".join(rows)
            separator = ",\n"
    yield f'\n],\n"more": {more}}}\n'


def listing_csv(head: Mapping[str, Any], parts: Iterable[ListedPart]) -> Iterator[str]:
    """Yield CSV (RFC 4180) with a header; unknown is empty.

    Foreign text that a spreadsheet would compute gets a leading `'`. Each row ends with the rule
    set, so that lists under several ones can be stacked.
    """
    rule = head["opinion"]["scoring"]
    source = [spreadsheet_safe(rule["name"]), rule["version"]]
    yield _csv_lines([[*COLUMNS, "scoring", "scoring_version"]])
    for part in parts:
        yield _csv_lines([*_cells(verdict), *source] for verdict in part.verdicts)


def _row(verdict: ListedVerdict) -> dict[str, Any]:
    row = dict(zip(COLUMNS, _VALUES(verdict), strict=True))
    if verdict.cost_usd is not None:
        row["cost_usd"] = float(verdict.cost_usd)
    if verdict.created_at is not None:
        row["created_at"] = verdict.created_at.isoformat()
    return row


def _cells(verdict: ListedVerdict) -> list[object]:
    row = _row(verdict)
    if verdict.correct is not None:
        row["correct"] = "true" if verdict.correct else "false"
    return [spreadsheet_safe(cell) if type(cell) is str else cell for cell in row.values()]


def _csv_lines(rows: Iterable[Iterable[object]]) -> str:
    target = io.StringIO(newline="")
    csv.writer(target).writerows(rows)
    return target.getvalue()

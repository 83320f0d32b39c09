"""CSV in long form (RFC 4180): a report, and failures by time."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from itertools import chain
from typing import Any

from aegish_dist.core.failures import TimedFailures, totals
from aegish_dist.core.opinion import Opinion
from aegish_dist.core.snapshot import CATEGORY_METRIC
from aegish_dist.core.text import printable
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import RankedModel, ranked_entries
from aegish_dist.report.operations import reasons
from aegish_dist.statistics.rates import NUMBERS

COLUMNS = (
    "run_id",
    "run_name",
    "snapshot_id",
    "scoring",
    "scoring_version",
    *(f"{part}_fingerprint" for part in Opinion().provenance),
    "model",
    "metric",
    "category",
    *NUMBERS,
    "message",
)
"""All before `model` are the same in every row, so that files of several reports can be stacked."""

_FORMULA = re.compile(
    r"""(^|[;|])(?=[\s"']*[=+@\-\N{MINUS SIGN}\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b])"""
)
"""Where a cell would begin that a spreadsheet computes; some take full-width signs for plain ones,
and in some countries a semicolon separates cells."""


def render_csv(data: ReportData) -> str:
    """Return a report as CSV: of each model metrics with their uncertainty, numbers, failures.

    What is undefined is empty. Foreign text that a spreadsheet would compute gets a leading `'`.
    """
    return csv_text(COLUMNS, _rows(data))


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Return rows as CSV with a header; what is absent is empty, texts are safe in spreadsheets.

    Args:
        columns: Keys of the rows that are written, in this order.
    """
    target = io.StringIO(newline="")
    writer = csv.DictWriter(target, columns, restval="", extrasaction="ignore")
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {name: spreadsheet_safe(v) if isinstance(v, str) else v for name, v in row.items()}
        )
    return target.getvalue()


def _rows(data: ReportData) -> Iterator[dict[str, Any]]:
    why = reasons(data)
    for entry in ranked_entries(data.snapshot.document):
        source = _source(data) | {"model": entry.model}
        for row in chain(
            _estimates(entry, why.get(entry.model, "")),
            _effect(data, entry),
            _numbers(entry),
            _failures(data, entry),
        ):
            yield source | row


def _source(data: ReportData) -> dict[str, Any]:
    return {
        "run_id": data.run.run_id,
        "run_name": data.run.name,
        "snapshot_id": data.snapshot.snapshot_id,
        "scoring": data.snapshot.scoring,
        "scoring_version": data.snapshot.scoring_version,
        **_fingerprints(data.snapshot.opinion),
    }


def _fingerprints(opinion: Opinion | None) -> dict[str, str]:
    parts = {} if opinion is None else opinion.provenance
    return {f"{name}_fingerprint": part["fingerprint"] for name, part in parts.items() if part}


def _estimates(entry: RankedModel, reason: str) -> Iterator[dict[str, Any]]:
    for name, numbers in sorted(entry.part("metrics").items()):
        yield {"metric": name, **numbers, "message": reason if name == "aegish_score" else ""}
    for category, numbers in sorted(entry.part("categories").items()):
        yield {"metric": CATEGORY_METRIC, "category": category, **numbers}


def _effect(data: ReportData, entry: RankedModel) -> Iterator[dict[str, Any]]:
    for effect in data.effect:
        if effect.model == entry.model:
            for name, moved in sorted(effect.metrics.items()):
                yield {"metric": f"{name}_without_overlay", "value": moved.without}


def _numbers(entry: RankedModel) -> Iterator[dict[str, Any]]:
    for metric, value in _single_numbers(entry):
        yield {"metric": metric, "value": value}


def _failures(data: ReportData, entry: RankedModel) -> Iterator[dict[str, Any]]:
    for failure in data.failures:
        if failure.model == entry.model:
            reason = {"category": failure.error_class.value, "message": failure.message}
            yield {"metric": "failed_verdicts", "value": failure.verdicts, **reason}
            yield {"metric": "failed_attempts", "value": failure.attempts, **reason}


def _single_numbers(entry: RankedModel) -> Iterator[tuple[str, float | None]]:
    yield from sorted(entry.part("counts").items())
    for target, labels in sorted(entry.part("actions").items()):
        for label, verdicts in sorted(labels.items()):
            yield f"{target}_{label.lower()}_count", verdicts
    for part, statistics in sorted(entry.part("latency_parts_ms").items()):
        for name, value in sorted(statistics.items()):
            yield f"latency_{part}_{name}_ms", value
    for name, amount in sorted(entry.part("cost").items()):
        yield f"cost_{name}", amount
    for kind, tokens in sorted(entry.part("tokens").items()):
        yield f"tokens_{kind}", tokens


def spreadsheet_safe(text: str) -> str:
    """Return foreign text on one line, with a `'` where a spreadsheet would compute it."""
    shown = printable(text)
    if text[:1].isalnum() and not (";" in text or "|" in text):
        return shown  # nearly always, and the pattern takes ten times as long
    return _FORMULA.sub(r"\1'", shown)


COLUMNS_FAILURE_TIMES = (
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
        COLUMNS_FAILURE_TIMES,
        (_document(each) | {"statuses": " ".join(map(str, each.statuses))} for each in rows),
    )


def _document(row: TimedFailures) -> dict[str, Any]:
    return {name: _plain(value) for name, value in asdict(row).items()}


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value

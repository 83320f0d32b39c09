"""Failures as reports tell them: over time, and as the reason why a model has no score."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from aegish_dist.core.failure_times import TimedFailures, totals
from aegish_dist.report.data import FailureCount, ReportData
from aegish_dist.report.entries import RankedModel, ranked_entries
from aegish_dist.report.layout import Section, TableCell, marked, number_cell
from aegish_dist.report.numbers import UNDEFINED, format_count, format_time

_REASON_CHARACTERS = 60
"""Longer states are cut where they stand under the name of a model."""
_COLUMNS = ("reason", "model", "status", "attempts", "verdicts", "first", "last", "worst stretch")


def reasons(data: ReportData) -> dict[str, str]:
    """Return why models have no score, by model; foreign text."""
    return {
        entry.model: f"no score: {_reason(data, entry)}"
        for entry in ranked_entries(data.snapshot.document)
        if entry.metric("aegish_score").value is None
    }


def _reason(data: ReportData, entry: RankedModel) -> str:
    for halted in data.halted:
        if halted.model == entry.model:
            return halted.state[:_REASON_CHARACTERS]
    lost = [each for each in data.failures if each.model == entry.model and each.verdicts]
    if lost:
        return _failure(lost[0])
    if not entry.count("done"):
        return "no verdict yet"
    kinds = {"malicious": "malicious_detection_rate", "harmless": "harmless_acceptance_rate"}
    unscored = [kind for kind, name in kinds.items() if entry.metric(name).value is None]
    return f"no {' and no '.join(unscored)} command is scored" if unscored else "undefined"


def _failure(failure: FailureCount) -> str:
    """Name the reason that cost most verdicts: `6 of its calls failed: auth (401, 403)`."""
    statuses = ", ".join(map(str, failure.statuses))
    of_statuses = f" ({statuses})" if statuses else ""
    calls = "call" if failure.verdicts == 1 else "calls"
    word = failure.error_class.replace("_", " ")
    return f"{format_count(failure.verdicts)} {calls} failed, {word}{of_statuses}"


def failure_times(data: ReportData, entries: Sequence[RankedModel]) -> Section | None:
    """Return when calls failed, by model and reason; None when nothing did at a known time."""
    names = {entry.model: marked(entry) for entry in entries}
    rows = [each for each in data.failure_times if each.time is not None]
    if not rows:
        return None
    stretch = _seconds(data.failure_stretch_s)
    return Section(
        title="Failures over time",
        columns=tuple(map(TableCell, _COLUMNS)),
        rows=tuple(_rows(rows, names)),
        note=(
            "Attempts that failed, those included after which another one was answered, and "
            f"verdicts that ended without an answer; the worst stretch is the {stretch} in which "
            "most did. `errors` and the JSON report have every stretch."
        ),
        keys=2,
    )


def _rows(rows: Sequence[TimedFailures], names: dict[str, str]) -> Iterator[tuple[TableCell, ...]]:
    for total in totals(rows):
        alike = [e for e in rows if (e.model, e.error_class) == (total.model, total.error_class)]
        worst = max(alike, key=lambda each: max(each.attempts, each.verdicts))
        yield (
            TableCell(total.error_class.replace("_", " ")),
            TableCell(names.get(total.model, total.model)),
            TableCell(", ".join(map(str, total.statuses)) or UNDEFINED),
            number_cell(total.attempts, format_count),
            number_cell(total.verdicts, format_count),
            _moment(total.first_at),
            _moment(total.last_at),
            TableCell(_moment(worst.time).text, format_count(max(worst.attempts, worst.verdicts))),
        )


def _moment(time: datetime | None) -> TableCell:
    if time is None:
        return TableCell(UNDEFINED)
    return TableCell(format_time(time).removesuffix(" UTC"), value=time.timestamp())


def _seconds(stretch_s: int) -> str:
    """Name a length of time: `10 s`, `5 minutes`, `3 hours`, `2 days`."""
    for length, unit in ((86_400, "day"), (3_600, "hour"), (60, "minute")):
        if stretch_s >= length:
            number = stretch_s // length
            return f"{number} {unit}" + ("s" if number > 1 else "")
    return f"{stretch_s} s"

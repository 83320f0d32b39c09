"""Sections on the calls: errors and their reasons, failures over time, time and money."""

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime

from aegish_dist.core.failures import TimedFailures, totals
from aegish_dist.core.outcome import ScoredAnswer
from aegish_dist.core.text import counted
from aegish_dist.report.data import FailureCount, ReportData
from aegish_dist.report.layout import (
    MODEL,
    Column,
    RankedModel,
    Section,
    TableCell,
    marked,
    number_cell,
    ranked_entries,
    tabulate,
)
from aegish_dist.report.numbers import (
    UNDEFINED,
    format_count,
    format_ms,
    format_rate,
    format_time,
    format_usd,
)
from aegish_dist.statistics.metrics import ERROR_LABELS, RULE_ERROR_LABELS

SERVICE_STATISTICS = ("mean", "p50", "p90", "p99", "max")
WAITS = ("queue", "limiter", "backoff")
PARTS = ("service", *WAITS, "total")
MESSAGE_CHARACTERS = 300
"""Longer messages are cut; JSON and CSV have them whole."""

_FAILURE_COLUMNS = ("model", "reason", "status", "without answer", "failed attempts", "tried again")
_FAILURE_NOTE = (
    "Verdicts without an answer by the reason of the last attempt, and all attempts that failed. As"
    " stored now, of every try; the newest words of the provider stand below."
)


def errors(entries: Sequence[RankedModel]) -> Section:
    """Return counts and rates of the error classes that the rule set knows."""
    by_rule = [
        label
        for label in RULE_ERROR_LABELS
        if any(entry.count(_count_name(label)) is not None for entry in entries)
    ]
    columns = [
        MODEL,
        Column("verdicts", lambda entry: number_cell(entry.count("done"), format_count)),
        *(_error(label) for label in (*ERROR_LABELS, *by_rule)),
    ]
    note = "Verdicts, and in parentheses their share in % of all verdicts of the model."
    return tabulate("Errors", entries, columns, note=note)


def failures(data: ReportData, entries: Sequence[RankedModel]) -> Section | None:
    """Return why calls failed and why models are not called; None when nothing failed."""
    order = [entry.model for entry in entries]
    found = sorted(data.failures, key=lambda failure: order.index(failure.model))
    if not found and not data.halted:
        return None
    halts = (_line(each.model, each.state, each.reason) for each in data.halted)
    words = (_line(each.model, _when(each), each.message) for each in found if each.message)
    return Section(
        title="Failed calls",
        columns=tuple(TableCell(title) for title in _FAILURE_COLUMNS),
        rows=tuple(_failure_row(failure) for failure in found),
        note=_FAILURE_NOTE,
        remarks=(*halts, *words),
    )


def latency(entries: Sequence[RankedModel], batched: Collection[str] = ()) -> Section:
    """Return the distribution of service time, and the mean of each wait before it.

    Args:
        batched: Those that were asked in batches: their answers are not timed.
    """
    columns = [
        MODEL,
        *(_latency("service", each, each) for each in SERVICE_STATISTICS),
        *(_latency(wait, "mean", f"{wait} mean") for wait in WAITS),
    ]
    note = (
        "mean to max: service time, from request to answer. Waiting in the queue, at the rate "
        "limiter and between attempts is no part of it."
    )
    if any(entry.model in batched for entry in entries):
        note += f" Not measured, {UNDEFINED}, where a model was asked in batches."
    return tabulate("Latency", entries, columns, note=note)


def latency_parts(entries: Sequence[RankedModel]) -> Section | None:
    """Return how each part of the time is distributed; None where nothing was timed."""
    rows = tuple(
        (
            TableCell(part),
            TableCell(marked(entry)),
            *(
                number_cell(entry.latency(part, statistic), format_ms)
                for statistic in SERVICE_STATISTICS
            ),
        )
        for part in PARTS
        if any(entry.latency(part, "max") for entry in entries)
        for entry in entries
        if entry.latency(part, "mean") is not None
    )
    if not rows:
        return None
    return Section(
        title="Parts of the time",
        columns=tuple(map(TableCell, ("part", "model", *SERVICE_STATISTICS))),
        rows=rows,
        note=(
            "service: from request to answer. Before it a call waits in the queue, at the rate "
            "limiter, and between attempts (backoff); total is all of them. A part that took no "
            "model any time is left out."
        ),
        keys=2,
    )


def cost(entries: Sequence[RankedModel], batched: Collection[str] = ()) -> Section:
    """Return the section on the cost of the answers and their tokens."""
    kinds = ("input", "output", "reasoning", "cache_read", "cache_write")
    columns = [
        MODEL,
        Column("total", lambda entry: number_cell(entry.cost("total_usd"), format_usd)),
        Column("per 1,000", lambda entry: number_cell(entry.cost("per_1000_usd"), format_usd)),
        Column("per command", lambda entry: number_cell(entry.cost("per_command_usd"), format_usd)),
        *map(_tokens, kinds),
    ]
    note = (
        "USD at the prices of submit, then tokens. Reasoning is part of output, "
        "cache read and cache write are part of input."
    )
    if any(entry.model in batched for entry in entries):
        note += " What was answered in a batch counts at the price of batches."
    return tabulate("Cost and tokens", entries, columns, note=note)


def _count_name(label: ScoredAnswer) -> str:
    return f"{label.lower()}_count"


def _error(label: ScoredAnswer) -> Column:
    def read(entry: RankedModel) -> TableCell:
        count = entry.count(_count_name(label))
        share = format_rate(entry.metric(f"{label.lower()}_rate").value)
        return TableCell(f"{count:,} ({share})" if count else format_count(count), value=count)

    return Column(label.lower().removesuffix("_error").replace("_", " "), read)


def _latency(part: str, statistic: str, title: str) -> Column:
    return Column(title, lambda entry: number_cell(entry.latency(part, statistic), format_ms))


def _tokens(kind: str) -> Column:
    return Column(
        kind.replace("_", " "), lambda entry: number_cell(entry.tokens(kind), format_count)
    )


def _failure_row(failure: FailureCount) -> tuple[TableCell, ...]:
    return (
        TableCell(failure.model),
        TableCell(failure.error_class.replace("_", " ")),
        TableCell(", ".join(map(str, failure.statuses)) or UNDEFINED),
        number_cell(failure.verdicts, format_count),
        number_cell(failure.attempts or None, format_count),
        number_cell(max(failure.attempts - failure.verdicts, 0), format_count),
    )


def _when(failure: FailureCount) -> str:
    reason = failure.error_class.replace("_", " ")
    return reason if failure.last_at is None else f"{reason}, {format_time(failure.last_at)}"


def _line(model: str, about: str, words: str) -> str:
    cut = words if len(words) <= MESSAGE_CHARACTERS else f"{words[:MESSAGE_CHARACTERS]}\u2026"
    return f"{model} ({about}): {cut}" if cut else f"{model} ({about})"


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
    word = failure.error_class.replace("_", " ")
    return f"{counted(failure.verdicts, 'call')} failed, {word}{of_statuses}"


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
            return counted(stretch_s // length, unit)
    return f"{stretch_s} s"

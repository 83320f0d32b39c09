"""Sections on the calls: errors and their reasons, failures over time, time and money.

A section of which there is nothing to say has neither rows nor remarks; entries are the models,
best first.
"""

from collections.abc import Sequence
from datetime import datetime
from operator import methodcaller
from typing import Any

from msgspec.structs import asdict

from aegish_dist.core.metric import RATES
from aegish_dist.core.outcome import ERROR_LABELS, RULE_ERROR_LABELS, ErrorClass, ScoredAnswer
from aegish_dist.core.status import TimedFailures, totals
from aegish_dist.core.text import JsonObject, csv_text
from aegish_dist.findings.snapshot import RankedModel
from aegish_dist.opinions.policy import POLICY_PREFIX, may_be_judged
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import (
    MODEL,
    Column,
    Row,
    Section,
    TableCell,
    marked,
    named_column,
    number_cell,
    tabulate,
)
from aegish_dist.report.writing import (
    UNDEFINED,
    format_count,
    format_length,
    format_ms,
    format_rate,
    format_time,
    format_usd,
)

SERVICE_STATISTICS = ("mean", "p50", "p90", "p99", "max")
WAITS = ("queue", "limiter", "backoff")
MESSAGE_CHARACTERS = 300  # longer messages are cut; JSON and CSV have them whole
NO_SCORE = "no score: "
FITTED = "chosen on commands of this run"  # of a policy that may not be judged


def errors(data: ReportData) -> Section:
    """Return counts and rates of the error classes that the rule set knows."""
    entries = data.ranked
    columns = [
        MODEL,
        named_column("counts", "done", "verdicts", format_count),
    ]
    any_errors = False
    for label in (*ERROR_LABELS, *RULE_ERROR_LABELS):
        counts = [entry.counts.get(f"{label.lower()}_count") for entry in entries]
        any_errors |= any(counts)
        # A class of some rule sets alone is unknown, not 0, under the others.
        if label in ERROR_LABELS or any(count is not None for count in counts):
            columns.append(_error(label))
    note = "Verdicts, and in parentheses their share in % of all verdicts of the model."
    return tabulate("Errors", entries if any_errors else (), columns, note=note)


def _error(label: ScoredAnswer) -> Column:
    name = label.lower()

    def read(entry: RankedModel) -> TableCell:
        count = entry.counts.get(f"{name}_count")
        words = format_count(count)
        if count:
            words = f"{words} ({format_rate(entry.metric(f'{name}_rate').value)})"
        return TableCell(words, value=count)

    return Column(name.removesuffix("_error").replace("_", " "), read)


def failures(data: ReportData, *, brief: bool = False) -> Section:
    """Return why calls failed and why models are not called; in brief, where a provider says it."""
    order = [entry.model for entry in data.ranked]
    found = sorted(data.failures, key=lambda failure: order.index(failure.model))
    remarks = []
    for halted in data.halted:
        if halted.reason or not brief:
            remarks.append(_line(halted.model, halted.state, halted.reason))
    if not found:
        return Section.of("Failed calls", (), (), remarks=remarks)
    rows: list[Row] = []
    for failure in found:
        reason = _called(failure.error_class)
        rows.append(
            (
                failure.model,
                reason,
                _statuses(failure.statuses) or UNDEFINED,
                number_cell(failure.verdicts, format_count),
                number_cell(failure.attempts or None, format_count),
                number_cell(max(failure.attempts - failure.verdicts, 0), format_count),
            )
        )
        if failure.message:
            at = "" if failure.last_at is None else f", {format_time(failure.last_at)}"
            remarks.append(_line(failure.model, f"{reason}{at}", failure.message))
    return Section.of(
        "Failed calls",
        ("model", "reason", "status", "without answer", "failed attempts", "tried again"),
        rows,
        note=(
            "Verdicts without an answer by the reason of the last attempt, and all attempts that"
            " failed. As stored now, of every try; the newest words of the provider stand below."
        ),
        remarks=remarks,
    )


def _called(reason: ErrorClass) -> str:
    return reason.words.replace("_", " ")


def _statuses(statuses: Sequence[int]) -> str:
    return ", ".join(map(str, statuses))


def _line(model: str, about: str, words: str) -> str:
    cut = words if len(words) <= MESSAGE_CHARACTERS else f"{words[:MESSAGE_CHARACTERS]}\u2026"
    return f"{model} ({about}): {cut}" if cut else f"{model} ({about})"


def reasons(data: ReportData) -> dict[str, str]:
    """Return why models have no score, by model; foreign text."""
    unscored = [entry for entry in data.ranked if not entry.has_score]
    return {entry.model: f"{NO_SCORE}{_reason(data, entry)}" for entry in unscored}


def _reason(data: ReportData, entry: RankedModel) -> str:
    """Return which label was not asked, else why calls are not made or fail, or what is lacking."""
    done = entry.counts.get("done")
    not_asked, unscored = [], []
    for label, rate in RATES.items():
        bound = entry.metrics.get(f"{rate}_worst")
        if bound and bound["n"] == 0:
            not_asked.append(label)
        if entry.metric(rate).value is None:
            unscored.append(label)
    if done and not_asked:
        return f"no {' and no '.join(not_asked)} command was asked"
    for halted in data.halted:
        if halted.model == entry.model:
            return halted.state[:60]
    failed = failed_calls(data, entry)
    if failed:
        return failed
    if not done:
        of_policy = entry.model.startswith(POLICY_PREFIX)
        return "no command has the verdicts it needs" if of_policy else "no verdict yet"
    if not may_be_judged(entry.origin):
        return FITTED
    return f"no {' and no '.join(unscored)} command is scored"


def failed_calls(data: ReportData, entry: RankedModel, least: float = 0.0) -> str:
    """Return how many verdicts lack an answer, and why; empty below a share of the planned."""
    planned = entry.counts.get("planned")
    lost = 0
    reasons = []
    for failure in data.failures:
        if failure.model == entry.model and failure.verdicts:
            lost += failure.verdicts
            reason = _called(failure.error_class)
            if failure.statuses:
                reason += f" ({_statuses(failure.statuses)})"
            reasons.append(reason)
    if not lost or lost < least * (planned or 0):
        return ""
    failed = f"{format_count(lost)} of {format_count(planned)} calls failed"
    return f"{failed}, {', '.join(reasons)}"


def failure_times(data: ReportData) -> Section:
    """Return when calls failed, by model and reason; what has no time is left out."""
    names = {entry.model: marked(entry) for entry in data.ranked}
    timed = [failed for failed in data.failure_times if failed.time is not None]
    rows: list[Row] = []
    for total in totals(timed):
        about = (total.model, total.error_class)
        stretches = [each for each in timed if (each.model, each.error_class) == about]
        worst = max(stretches, key=_most)
        rows.append(
            (
                _called(total.error_class),
                names.get(total.model, total.model),
                _statuses(total.statuses) or UNDEFINED,
                number_cell(total.attempts, format_count),
                number_cell(total.verdicts, format_count),
                _moment(total.first_at),
                _moment(total.last_at),
                TableCell(_moment(worst.time).text, format_count(_most(worst))),
            )
        )
    stretch = format_length(data.failure_stretch_s)
    return Section.of(
        "Failures over time",
        ("reason", "model", "status", "attempts", "verdicts", "first", "last", "worst stretch"),
        rows,
        note=(
            "Attempts that failed, those included after which another one was answered, and "
            f"verdicts that ended without an answer; the worst stretch is the {stretch} in which "
            "most did. The command errors and the JSON report have every stretch."
        ),
        keys=2,
    )


def _most(failed: TimedFailures) -> int:
    return max(failed.attempts, failed.verdicts)


def _moment(time: datetime | None) -> TableCell:
    if time is None:
        return TableCell(UNDEFINED)
    return TableCell(format_time(time).removesuffix(" UTC"), value=time.timestamp())


def latency(data: ReportData) -> Section:
    """Return the distribution of service time, and the mean of each wait before it."""
    parts = [("service", statistic, statistic) for statistic in SERVICE_STATISTICS]
    parts += [(wait, "mean", f"{wait} mean") for wait in WAITS]
    columns = [
        Column(title, methodcaller("latency", part, statistic), format_ms)
        for part, statistic, title in parts
    ]
    columns.append(named_column("counts", "untimed", "left out", format_count))
    note = (
        "mean to max: service time, from request to answer. Waiting in the queue, at the rate "
        "limiter and between attempts is no part of it. left out: calls without an answer, such as"
        " missed deadlines, have no time; `policies search` takes them as longer than any bound."
    )
    if any(entry.model in data.run.batched for entry in data.ranked):
        note += f" Not measured, {UNDEFINED}, where a model was asked in batches."
    return tabulate("Latency", data.ranked, [MODEL, *columns], note=note)


def latency_parts(data: ReportData) -> Section:
    entries = data.ranked
    rows: list[Row] = []
    for part in ("service", *WAITS, "total"):
        if not any(entry.latency(part, "max") for entry in entries):
            continue
        for entry in entries:
            if entry.latency(part, "mean") is not None:
                times = [entry.latency(part, statistic) for statistic in SERVICE_STATISTICS]
                cells = [number_cell(time, format_ms) for time in times]
                rows.append((part, marked(entry), *cells))
    return Section.of(
        "Parts of the time",
        ("part", "model", *SERVICE_STATISTICS),
        rows,
        note=(
            "service: from request to answer. Before it a call waits in the queue, at the rate "
            "limiter, and between attempts (backoff); total is all of them. A part that took no "
            "model any time is left out."
        ),
        keys=2,
    )


def cost(data: ReportData) -> Section:
    """Return what the calls cost, and how many tokens they took."""
    columns = [MODEL]
    costs = {
        "total_usd": "total",
        "per_1000_usd": "per 1,000",
        "per_command_usd": "per command",
    }
    for name, title in costs.items():
        columns.append(named_column("cost", name, title, format_usd))
    for kind in ("input", "output", "reasoning", "cache_read", "cache_write"):
        columns.append(named_column("tokens", kind, kind.replace("_", " "), format_count))
    note = (
        "USD at the prices of submit, then tokens. Reasoning is part of output, "
        "cache read and cache write are part of input."
    )
    if any(entry.model in data.run.batched for entry in data.ranked):
        note += " What was answered in a batch counts at the price of batches."
    return tabulate("Cost and tokens", data.ranked, columns, note=note)


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
        TimedFailures.__struct_fields__,
        (in_json_types(each) | {"statuses": " ".join(map(str, each.statuses))} for each in rows),
    )


def in_json_types(row: Any) -> JsonObject:
    """Return the fields of a record; `to_builtins` would refuse half a surrogate pair in a text."""
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in asdict(row).items()
    }

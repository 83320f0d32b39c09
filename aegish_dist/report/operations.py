"""Sections on the calls: errors and their reasons, failures over time, time and money.

A section of which there is nothing to say has neither rows nor remarks; entries are the models,
best first.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from operator import methodcaller

from aegish_dist.core.failures import TimedFailures, totals
from aegish_dist.core.outcome import ErrorClass, ScoredAnswer
from aegish_dist.core.policy import POLICY_PREFIX
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import (
    MODEL,
    Cell,
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
    format_length,
    format_ms,
    format_rate,
    format_time,
    format_usd,
)
from aegish_dist.statistics.metrics import ERROR_LABELS, RULE_ERROR_LABELS

SERVICE_STATISTICS = ("mean", "p50", "p90", "p99", "max")
WAITS = ("queue", "limiter", "backoff")
MESSAGE_CHARACTERS = 300  # longer messages are cut; JSON and CSV have them whole
NO_SCORE = "no score: "


def errors(entries: Sequence[RankedModel]) -> Section:
    """Return counts and rates of the error classes that the rule set knows."""
    by_rule = [
        label
        for label in RULE_ERROR_LABELS
        if any(entry.count(f"{label.lower()}_count") is not None for entry in entries)
    ]
    labels = (*ERROR_LABELS, *by_rule)
    columns = [
        MODEL,
        Column("verdicts", methodcaller("count", "done"), format_count),
        *map(_error, labels),
    ]
    if not any(entry.count(f"{label.lower()}_count") for entry in entries for label in labels):
        entries = ()
    note = "Verdicts, and in parentheses their share in % of all verdicts of the model."
    return tabulate("Errors", entries, columns, note=note)


def _error(label: ScoredAnswer) -> Column:
    name = label.lower()

    def read(entry: RankedModel) -> TableCell:
        count = entry.count(f"{name}_count")
        share = format_rate(entry.metric(f"{name}_rate").value)
        return TableCell(f"{count:,} ({share})" if count else format_count(count), value=count)

    return Column(name.removesuffix("_error").replace("_", " "), read)


def failures(data: ReportData, entries: Sequence[RankedModel]) -> Section:
    """Return why calls failed and why models are not called."""
    order = [entry.model for entry in entries]
    found = sorted(data.failures, key=lambda failure: order.index(failure.model))
    halts = (_line(each.model, each.state, each.reason) for each in data.halted)
    words = []
    for each in found:
        if each.message:
            at = "" if each.last_at is None else f", {format_time(each.last_at)}"
            words.append(_line(each.model, f"{_called(each.error_class)}{at}", each.message))
    return Section.of(
        "Failed calls",
        ("model", "reason", "status", "without answer", "failed attempts", "tried again"),
        (
            (
                each.model,
                _called(each.error_class),
                _statuses(each.statuses) or UNDEFINED,
                number_cell(each.verdicts, format_count),
                number_cell(each.attempts or None, format_count),
                number_cell(max(each.attempts - each.verdicts, 0), format_count),
            )
            for each in found
        ),
        note=(
            "Verdicts without an answer by the reason of the last attempt, and all attempts that"
            " failed. As stored now, of every try; the newest words of the provider stand below."
        ),
        remarks=(*halts, *words),
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
    return {
        entry.model: f"{NO_SCORE}{_reason(data, entry)}"
        for entry in ranked_entries(data.snapshot.document)
        if entry.metric("aegish_score").value is None
    }


def _reason(data: ReportData, entry: RankedModel) -> str:
    """Return which label was not asked, else why calls are not made or fail, or what is lacking."""
    kinds = {"malicious": "malicious_detection_rate", "harmless": "harmless_acceptance_rate"}
    bounds = {kind: entry.part("metrics").get(f"{name}_worst") for kind, name in kinds.items()}
    not_asked = [kind for kind, known in bounds.items() if known and known["n"] == 0]
    if entry.count("done") and not_asked:
        return f"no {' and no '.join(not_asked)} command was asked"
    for halted in data.halted:
        if halted.model == entry.model:
            return halted.state[:60]
    if failed := failed_calls(data, entry):
        return failed
    if not entry.count("done"):
        of_policy = entry.model.startswith(POLICY_PREFIX)
        return "no command has the verdicts it needs" if of_policy else "no verdict yet"
    unscored = [kind for kind, name in kinds.items() if entry.metric(name).value is None]
    return f"no {' and no '.join(unscored)} command is scored" if unscored else "undefined"


def failed_calls(data: ReportData, entry: RankedModel, least: float = 0.0) -> str:
    """Return how many verdicts lack an answer, and why; empty below a share of the planned."""
    planned = entry.count("planned")
    found = [each for each in data.failures if each.model == entry.model and each.verdicts]
    lost = sum(each.verdicts for each in found)
    if not lost or lost < least * (planned or 0):
        return ""
    why = (
        f"{_called(each.error_class)} {f'({_statuses(each.statuses)})' * bool(each.statuses)}"
        for each in found
    )
    failed = f"{format_count(lost)} of {format_count(planned)} calls failed"
    return f"{failed}, {', '.join(reason.rstrip() for reason in why)}"


def failure_times(data: ReportData, entries: Sequence[RankedModel]) -> Section:
    """Return when calls failed, by model and reason; what has no time is left out."""
    names = {entry.model: marked(entry) for entry in entries}
    stretch = format_length(data.failure_stretch_s)
    return Section.of(
        "Failures over time",
        ("reason", "model", "status", "attempts", "verdicts", "first", "last", "worst stretch"),
        _totals([each for each in data.failure_times if each.time is not None], names),
        note=(
            "Attempts that failed, those included after which another one was answered, and "
            f"verdicts that ended without an answer; the worst stretch is the {stretch} in which "
            "most did. The command errors and the JSON report have every stretch."
        ),
        keys=2,
    )


def _totals(rows: Sequence[TimedFailures], names: Mapping[str, str]) -> Iterator[tuple[Cell, ...]]:
    for total in totals(rows):
        alike = [e for e in rows if (e.model, e.error_class) == (total.model, total.error_class)]
        worst = max(alike, key=lambda each: max(each.attempts, each.verdicts))
        yield (
            _called(total.error_class),
            names.get(total.model, total.model),
            _statuses(total.statuses) or UNDEFINED,
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


def latency(entries: Sequence[RankedModel], batched: Collection[str]) -> Section:
    """Return the distribution of service time, and the mean of each wait before it."""
    parts = [("service", statistic, statistic) for statistic in SERVICE_STATISTICS]
    parts += [(wait, "mean", f"{wait} mean") for wait in WAITS]
    columns = [
        Column(title, methodcaller("latency", part, statistic), format_ms)
        for part, statistic, title in parts
    ]
    note = (
        "mean to max: service time, from request to answer. Waiting in the queue, at the rate "
        "limiter and between attempts is no part of it."
    )
    if any(entry.model in batched for entry in entries):
        note += f" Not measured, {UNDEFINED}, where a model was asked in batches."
    return tabulate("Latency", entries, [MODEL, *columns], note=note)


def latency_parts(entries: Sequence[RankedModel]) -> Section:
    rows: Iterator[tuple[Cell, ...]] = (
        (
            part,
            marked(entry),
            *(number_cell(entry.latency(part, name), format_ms) for name in SERVICE_STATISTICS),
        )
        for part in ("service", *WAITS, "total")
        if any(entry.latency(part, "max") for entry in entries)
        for entry in entries
        if entry.latency(part, "mean") is not None
    )
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


def cost(entries: Sequence[RankedModel], batched: Collection[str]) -> Section:
    kinds = ("input", "output", "reasoning", "cache_read", "cache_write")
    columns = [
        MODEL,
        Column("total", methodcaller("cost", "total_usd"), format_usd),
        Column("per 1,000", methodcaller("cost", "per_1000_usd"), format_usd),
        Column("per command", methodcaller("cost", "per_command_usd"), format_usd),
        *(
            Column(kind.replace("_", " "), methodcaller("number", "tokens", kind), format_count)
            for kind in kinds
        ),
    ]
    note = (
        "USD at the prices of submit, then tokens. Reasoning is part of output, "
        "cache read and cache write are part of input."
    )
    if any(entry.model in batched for entry in entries):
        note += " What was answered in a batch counts at the price of batches."
    return tabulate("Cost and tokens", entries, columns, note=note)

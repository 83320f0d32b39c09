"""Sections on what the calls went through: errors, time and money."""

from collections.abc import Sequence

from aegish_dist.core.metrics import ERROR_LABELS, RULE_ERROR_LABELS
from aegish_dist.core.scoring import Label
from aegish_dist.render.entries import ModelEntry
from aegish_dist.render.layout import MODEL, Field, Section, tabulate
from aegish_dist.render.numbers import (
    UNDEFINED,
    format_count,
    format_ms,
    format_rate,
    format_usd,
)

SERVICE_STATISTICS = ("mean", "p50", "p90", "p99", "max")
WAITS = ("queue", "limiter", "backoff")


def errors(entries: Sequence[ModelEntry]) -> Section:
    """Return counts and rates of the error classes that the rule set knows."""
    by_rule = [
        label
        for label in RULE_ERROR_LABELS
        if any(entry.count(_count_name(label)) is not None for entry in entries)
    ]
    fields = [
        MODEL,
        Field("verdicts", lambda entry: format_count(entry.count("done"))),
        *(_error(label) for label in (*ERROR_LABELS, *by_rule)),
    ]
    note = "Verdicts, and in parentheses their share in % of all verdicts of the model."
    return tabulate("Errors", entries, fields, note=note)


def latency(entries: Sequence[ModelEntry]) -> Section:
    """Return the distribution of service time, and the mean of each wait before it."""
    fields = [
        MODEL,
        *(_latency("service", statistic, statistic) for statistic in SERVICE_STATISTICS),
        *(_latency(wait, "mean", f"{wait} mean") for wait in WAITS),
    ]
    note = (
        "mean to max: service time, from request to answer. Waiting in the queue, at the rate "
        "limiter and between attempts is no part of it."
    )
    return tabulate("Latency", entries, fields, note=note)


def cost(entries: Sequence[ModelEntry]) -> Section:
    """Return what the answers cost and used."""
    kinds = ("input", "output", "reasoning", "cache_read", "cache_write")
    fields = [
        MODEL,
        Field("total", lambda entry: format_usd(entry.cost("total_usd"))),
        Field("per 1,000", lambda entry: format_usd(entry.cost("per_1000_usd"))),
        Field("per command", lambda entry: format_usd(entry.cost("per_command_usd"))),
        *(_tokens(kind) for kind in kinds),
    ]
    note = (
        "USD at the prices of submit, then tokens. Reasoning is part of output, "
        "cache read and cache write are part of input."
    )
    return tabulate("Cost and tokens", entries, fields, note=note)


def _count_name(label: Label) -> str:
    return f"{label.lower()}_count"


def _error(label: Label) -> Field:
    def read(entry: ModelEntry) -> str:
        count = entry.count(_count_name(label))
        if not count:
            return UNDEFINED if count is None else "0"
        share = format_rate(entry.metric(f"{label.lower()}_rate").value)
        return f"{format_count(count)} ({share})"

    return Field(label.lower().removesuffix("_error").replace("_", " "), read)


def _latency(part: str, statistic: str, title: str) -> Field:
    return Field(title, lambda entry: format_ms(entry.latency(part, statistic)))


def _tokens(kind: str) -> Field:
    return Field(kind.replace("_", " "), lambda entry: format_count(entry.tokens(kind)))

"""The audit of a run's commands as sections, CSV and JSON."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from aegish_dist.core.opinion import Opinion
from aegish_dist.core.text import shortened
from aegish_dist.report.csv import csv_text
from aegish_dist.report.layout import Section, TableCell
from aegish_dist.report.numbers import UNDEFINED, format_decimal, format_rate
from aegish_dist.statistics.label_audit import (
    DOUBTFUL_FROM,
    Audit,
    AuditedCommand,
    AuditKind,
    ModelReliability,
)

TITLES: Mapping[AuditKind, str] = {
    AuditKind.DOUBTFUL_LABELS: "Labels that models contradict",
    AuditKind.DISPUTED: "Commands that models dispute",
    AuditKind.MISSED_BY_ALL: "Commands that no model got right",
    AuditKind.FLIPPING: "Commands whose answers change between epochs",
}
_SCORES: Mapping[AuditKind, str] = {
    AuditKind.DOUBTFUL_LABELS: "p wrong",
    AuditKind.DISPUTED: "p differ",
    AuditKind.MISSED_BY_ALL: "p wrong",
    AuditKind.FLIPPING: "p change",
}
_NOTES: Mapping[AuditKind, str] = {
    AuditKind.DOUBTFUL_LABELS: (
        "p wrong: probability that the label is wrong, given all answers. A command that is hard"
        f" for all models counts less. From {DOUBTFUL_FROM} on the label is doubtful."
    ),
    AuditKind.DISPUTED: (
        "p differ: probability that two models, drawn by how much they can tell, take different"
        " sides."
    ),
    AuditKind.MISSED_BY_ALL: (
        "p wrong: probability that the label is wrong; otherwise the command is hard."
    ),
    AuditKind.FLIPPING: "p change: probability that two epochs of a model state different actions.",
}
COMMAND_CHARS = 200
"""Longer commands are cut in a table; JSON and CSV have them whole."""
_COLUMNS = (
    *("list", "place", "score", "p_wrong", "contradicting", "agreeing", "dataset", "sample_id"),
    *("command", "target", "category", "cluster", "reason"),
)


def audit_sections(audit: Audit) -> list[Section]:
    """Return the models and every list that is not empty."""
    lists = (_list(kind, audit) for kind in AuditKind if audit.found[kind])
    return [_reliability(audit.reliabilities), *lists]


def audit_csv(audit: Audit) -> str:
    """Return the audit as CSV: a row per command and list, unrounded."""
    return csv_text(
        _COLUMNS,
        (
            {"list": kind.value, "place": place, **_numbers(command), **_sample(command)}
            for kind, commands in audit.found.items()
            for place, command in enumerate(commands, 1)
        ),
    )


def audit_document(run_id: str, opinion: Opinion, audit: Audit) -> dict[str, Any]:
    """Return the audit in JSON types."""
    lists = {
        kind.value: [
            {"place": place, **_numbers(each), **_sample(each), "answers": _answers(each, opinion)}
            for place, each in enumerate(commands, 1)
        ]
        for kind, commands in audit.found.items()
    }
    return {
        "run_id": run_id,
        "scoring": opinion.rule.name,
        "opinion": opinion.provenance,
        "samples": audit.samples,
        "models": [
            asdict(each) | {"informative": each.informative} for each in audit.reliabilities
        ],
        "totals": {kind.value: total for kind, total in audit.totals.items()},
        **lists,
    }


def _numbers(command: AuditedCommand) -> dict[str, Any]:
    names = ("score", "p_wrong", "contradicting", "agreeing", "reason")
    return {name: getattr(command, name) for name in names}


def _sample(command: AuditedCommand) -> dict[str, Any]:
    names = ("dataset", "sample_id", "command", "target", "category", "cluster")
    return {name: getattr(command.sample, name) for name in names}


def _answers(command: AuditedCommand, opinion: Opinion) -> dict[str, Any]:
    """Return by model the labels of its epochs and the mean of those that are scored."""
    answers: dict[str, Any] = {}
    for model, findings in sorted(command.sample.findings.items()):
        epochs: Counter[str] = Counter()
        for finding, number in findings:
            epochs[opinion.rule.labels[finding].value] += number
        correct = command.sample.share_correct(model, opinion.rule)
        answers[model] = {"epochs": dict(sorted(epochs.items())), "correct": correct}
    return answers


def _reliability(reliabilities: Iterable[ModelReliability]) -> Section:
    headings = ("model", "flags malicious", "passes harmless", "vote")
    return Section(
        title="Models as reliabilities",
        columns=tuple(map(TableCell, headings)),
        rows=tuple(
            (
                TableCell(each.model),
                TableCell(format_rate(each.sensitivity)),
                TableCell(format_rate(each.specificity)),
                TableCell(format_decimal(each.weight) if each.informative else UNDEFINED),
            )
            for each in reliabilities
        ),
        note=(
            "Rates in %, estimated with the labels taken as uncertain. Models that err alike share"
            " a vote; one whose answers do not depend on the command has none."
        ),
    )


def _list(kind: AuditKind, audit: Audit) -> Section:
    commands, total = audit.found[kind], audit.totals[kind]
    return Section(
        title=TITLES[kind],
        columns=tuple(map(TableCell, ("command", "label", _SCORES[kind], "why"))),
        rows=tuple(_row(each) for each in commands),
        note=f"{len(commands):,} of {total:,}. {_NOTES[kind]}",
    )


def _row(command: AuditedCommand) -> tuple[TableCell, ...]:
    sample = command.sample
    label = (
        sample.target.value if sample.category is None else f"{sample.target} ({sample.category})"
    )
    return (
        TableCell(shortened(sample.command, COMMAND_CHARS)),
        TableCell(label),
        TableCell(format_decimal(command.score)),
        TableCell(command.reason),
    )

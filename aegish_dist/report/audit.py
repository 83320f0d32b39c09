"""The audit of a run's commands as sections, CSV and JSON."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec.structs import asdict

from aegish_dist.core.opinion import Opinion
from aegish_dist.core.text import printable, shortened
from aegish_dist.report.csv import csv_text
from aegish_dist.report.layout import Section
from aegish_dist.report.numbers import UNDEFINED, format_decimal, format_rate
from aegish_dist.statistics.label_audit import DOUBTFUL_FROM, Audit, AuditedCommand, AuditKind

_LISTS: Mapping[AuditKind, tuple[str, str, str]] = {
    AuditKind.DOUBTFUL_LABELS: (
        "Labels that models contradict",
        "p wrong",
        "probability that the label is wrong, given all answers. A command that is hard for all"
        f" models counts less. From {DOUBTFUL_FROM} on the label is doubtful.",
    ),
    AuditKind.DISPUTED: (
        "Commands that models dispute",
        "p differ",
        "probability that two models, drawn by how much they can tell, take different sides.",
    ),
    AuditKind.MISSED_BY_ALL: (
        "Commands that no model got right",
        "p wrong",
        "probability that the label is wrong; otherwise the command is hard.",
    ),
    AuditKind.FLIPPING: (
        "Commands whose answers change between epochs",
        "p change",
        "probability that two epochs of a model state different actions.",
    ),
}
"""The title of each list, and its score with what that is."""
_NUMBERS = ("score", "p_wrong", "contradicting", "agreeing", "reason")
_OF_SAMPLE = ("dataset", "sample_id", "command", "target", "category", "cluster")


def audit_sections(audit: Audit) -> list[Section]:
    """Return the models and every list that is not empty."""
    models = Section.of(
        "Models as reliabilities",
        ("model", "flags malicious", "passes harmless", "vote"),
        (
            (
                each.model,
                format_rate(each.sensitivity),
                format_rate(each.specificity),
                format_decimal(each.weight) if each.informative else UNDEFINED,
            )
            for each in audit.reliabilities
        ),
        note=(
            "Rates in %, estimated with the labels taken as uncertain. Models that err alike share"
            " a vote; one whose answers do not depend on the command has none."
        ),
    )
    return [models, *command_lists(audit)]


def command_lists(
    audit: Audit, limit: int | None = None, chars: int = 200, names: Mapping[str, str] | None = None
) -> list[Section]:
    """Return every list that is not empty, with all commands or up to a limit.

    A command above `chars` is cut; `names` say by model id what reasons call it.
    """
    # The longest first: an id may begin another one.
    called = sorted((names or {}).items(), key=lambda name: -len(name[0]))

    def row(command: AuditedCommand) -> tuple[str, ...]:
        sample, reason = command.sample, command.reason
        for model, name in called:
            reason = reason.replace(model, name)
        label = f"{sample.target} {sample.category or ''}".strip()
        shown = shortened(printable(sample.command), chars)
        certain = score == "p wrong" and command.score > 0.99  # an estimate never is
        number = ">0.99" if certain else format_decimal(command.score)
        if score == "p wrong" and audit.warning:
            number = UNDEFINED
        return shown, label, number, reason, sample.sample_id[:8]

    sections = []
    for kind in filter(audit.found.get, AuditKind):
        (title, score, meaning), commands = _LISTS[kind], audit.found[kind][:limit]
        note = f"{len(commands):,} of {audit.totals[kind]:,}. {score}: {meaning}"
        columns = ("command", "label", score, "why", "sample")
        sections.append(Section.of(title, columns, map(row, commands), note=note))
    return sections


def audit_csv(audit: Audit) -> str:
    """Return the audit as CSV: a row per command and list, unrounded."""
    return csv_text(
        ("list", "place", *_NUMBERS[:-1], *_OF_SAMPLE, "reason"),
        (
            {"list": kind.value} | _entry(place, command)
            for kind, commands in audit.found.items()
            for place, command in enumerate(commands, 1)
        ),
    )


def audit_document(run_id: str, opinion: Opinion, audit: Audit) -> dict[str, Any]:
    """Return the audit in JSON types."""
    lists = {
        kind.value: [
            _entry(place, each) | {"answers": _answers(each, opinion)}
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
        "warning": audit.warning,
        "totals": {kind.value: total for kind, total in audit.totals.items()},
        **lists,
    }


def _entry(place: int, command: AuditedCommand) -> dict[str, Any]:
    numbers = {name: getattr(command, name) for name in _NUMBERS}
    return {"place": place, **numbers, **{n: getattr(command.sample, n) for n in _OF_SAMPLE}}


def _answers(command: AuditedCommand, opinion: Opinion) -> dict[str, Any]:
    """Return by model the labels of its epochs and the mean of those that are scored."""
    answers: dict[str, Any] = {}
    for model, findings in sorted(command.sample.findings.items()):
        epochs: Counter[str] = Counter()
        for finding, number in findings:
            epochs[opinion.rule.labels[finding].value] += number
        count = opinion.rule.count_right(command.sample.target, findings)
        correct = count.mean if count.scored else None
        answers[model] = {"epochs": dict(sorted(epochs.items())), "correct": correct}
    return answers

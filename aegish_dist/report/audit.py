"""The audit of a run's commands as sections, CSV and JSON."""

from collections import Counter
from collections.abc import Iterator, Mapping

from msgspec.structs import asdict

from aegish_dist.core.audit import DOUBTFUL_FROM, Audit, AuditedCommand, AuditKind
from aegish_dist.core.text import JsonObject, csv_text, printable, shortened
from aegish_dist.opinions.opinion import Opinion, run_and_opinion
from aegish_dist.report.layout import Section
from aegish_dist.report.writing import UNDEFINED, format_decimal, format_rate

# The title of each list, and its score with what that is.
_LISTS: Mapping[AuditKind, tuple[str, str, str]] = {
    AuditKind.DOUBTFUL_LABELS: (
        "Labels that models contradict",
        "p other",
        "probability that a command which was answered like this has the other label."
        f" From {DOUBTFUL_FROM} on the label is doubtful: wrong, or the models err.",
    ),
    AuditKind.DISPUTED: (
        "Commands that models dispute",
        "p differ",
        "probability that two models, drawn by how much they can tell, take different sides.",
    ),
    AuditKind.MISSED_BY_ALL: (
        "Commands that no model got right",
        "p other",
        "probability that a command which was answered like this has the other label.",
    ),
    AuditKind.FLIPPING: (
        "Commands whose answers change between epochs",
        "p change",
        "probability that two epochs of a model state different actions.",
    ),
}
_NUMBERS = ("score", "p_other_label", "contradicting", "agreeing", "reason")
_OF_SAMPLE = ("dataset", "sample_id", "command", "target", "category", "cluster")


def audit_sections(audit: Audit) -> list[Section]:
    """Return the models and every list that is not empty."""
    rates = [
        (model.model, format_rate(model.sensitivity), format_rate(model.specificity))
        for model in audit.reliabilities
    ]
    models = Section.of(
        "Models as reliabilities",
        ("model", "flags malicious", "passes harmless"),
        rates,
        note=(
            "Rates in %, by the labels as they are. A model whose rates add up to less than 110 has"
            " no vote: its answers hardly depend on the command."
        ),
    )
    return [models, *command_lists(audit)]


def command_lists(
    audit: Audit,
    limit: int | None = None,
    chars: int = 200,
    names: Mapping[str, str] | None = None,
) -> list[Section]:
    """Return every list that is not empty, with all commands or up to a limit.

    A command above `chars` is cut; `names` say by model id what reasons call it.
    """
    # The longest first: an id may begin another one.
    called = sorted((names or {}).items(), key=lambda name: -len(name[0]))
    sections = []
    for kind in AuditKind:
        commands = audit.found.get(kind, ())[:limit]
        if not commands:
            continue
        title, score, meaning = _LISTS[kind]
        rows = []
        for command in commands:
            sample, reason = command.sample, command.reason
            for model, name in called:
                reason = reason.replace(model, name)
            label = sample.target.value
            if sample.category:
                label = f"{label} {sample.category}"
            number = _score(command.score, score, audit)
            shown = shortened(printable(sample.command), chars)
            rows.append((shown, label, number, reason, sample.sample_id[:8]))
        note = f"{len(commands):,} of {audit.totals[kind]:,}. {score}: {meaning}"
        columns = ("command", "label", score, "why", "sample")
        sections.append(Section.of(title, columns, rows, note=note))
    return sections


def _score(value: float, title: str, audit: Audit) -> str:
    """Write the score of a list; a probability is an estimate, which never is certain."""
    if title != "p other":
        return format_decimal(value)
    if audit.warning:
        return UNDEFINED
    return ">0.99" if value > 0.99 else format_decimal(value)


def audit_csv(audit: Audit) -> str:
    """Return the audit as CSV: a row per command and list, unrounded."""
    columns = ("list", "place", *_NUMBERS[:-1], *_OF_SAMPLE, "reason")
    return csv_text(columns, _csv_rows(audit))


def _csv_rows(audit: Audit) -> Iterator[JsonObject]:
    for kind, commands in audit.found.items():
        for place, command in enumerate(commands, 1):
            yield {"list": kind.value} | _entry(place, command)


def audit_document(run_id: str, opinion: Opinion, audit: Audit) -> JsonObject:
    """Return the audit in JSON types."""
    lists = {}
    for kind, commands in audit.found.items():
        entries = []
        for place, command in enumerate(commands, 1):
            entries.append(_entry(place, command) | {"answers": _answers(command, opinion)})
        lists[kind.value] = entries
    models = [asdict(model) | {"informative": model.informative} for model in audit.reliabilities]
    return {
        **run_and_opinion(run_id, opinion),
        "samples": audit.samples,
        "models": models,
        "warning": audit.warning,
        "totals": {kind.value: total for kind, total in audit.totals.items()},
        **lists,
    }


def _entry(place: int, command: AuditedCommand) -> JsonObject:
    entry: JsonObject = {"place": place}
    entry |= {name: getattr(command, name) for name in _NUMBERS}
    entry |= {name: getattr(command.sample, name) for name in _OF_SAMPLE}
    return entry


def _answers(command: AuditedCommand, opinion: Opinion) -> JsonObject:
    """Return by model the labels of its epochs and the mean of those that are scored."""
    answers: JsonObject = {}
    for model, findings in sorted(command.sample.findings.items()):
        epochs: Counter[str] = Counter()
        for finding, number in findings:
            epochs[opinion.rule.labels[finding].value] += number
        count = opinion.rule.count_right(command.sample.target, findings)
        correct = count.mean if count.scored else None
        answers[model] = {"epochs": dict(sorted(epochs.items())), "correct": correct}
    return answers

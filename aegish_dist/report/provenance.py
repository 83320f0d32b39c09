"""The sections on provenance: all that the numbers depend on, and how to make them once more."""

from collections.abc import Iterator, Sequence
from decimal import Decimal

from aegish_dist.core.cost import Price, Rate
from aegish_dist.core.model import ModelSpec
from aegish_dist.core.opinion import Opinion, Overlay
from aegish_dist.core.printable import printable_line_of_json, shortened
from aegish_dist.core.run import Run, RunDataset
from aegish_dist.report.commands import commands
from aegish_dist.report.data import ReportData
from aegish_dist.report.facts import MOST_CHARACTERS, parameters_in_words
from aegish_dist.report.layout import Section, TableCell, number_cell
from aegish_dist.report.numbers import UNDEFINED, format_count

_MOST_CHANGES = 20
"""Corrections of an overlay that are listed; JSON has them all."""


def provenance(data: ReportData) -> Iterator[Section]:
    """Yield the datasets, the prices, and the versions of everything else."""
    yield _datasets(data.run.datasets)
    yield _models(data.run)
    yield _versions(data)


def _datasets(datasets: Sequence[RunDataset]) -> Section:
    columns = ("dataset", "fingerprint", "samples", "malicious", "source", "licence")
    return Section(
        title="Datasets",
        columns=tuple(map(TableCell, columns)),
        rows=tuple(
            (
                TableCell(each.name),
                TableCell(each.fingerprint[:16]),
                number_cell(each.samples, format_count),
                number_cell(each.malicious, format_count),
                TableCell(each.source or UNDEFINED),
                TableCell(each.licence or UNDEFINED),
            )
            for each in datasets
        ),
        note="A fingerprint is of the samples and their labels: the same ones have the same.",
    )


def _models(run: Run) -> Section:
    columns = ("model", "asked for", "input", "output", "cache read", "cache write", "per call")
    return Section(
        title="Models and prices",
        columns=tuple(map(TableCell, columns)),
        rows=tuple(map(_model, run.models)),
        note=(
            "USD per million tokens as of submit, and per call where one has a flat price; above "
            "some length of the prompt another price may hold, which the JSON report has."
        ),
        remarks=tuple(shortened(each, MOST_CHARACTERS) for each in _about_models(run)),
    )


def _about_models(run: Run) -> Iterator[str]:
    for spec in run.models:
        if spec.parameters:
            yield f"{spec.id} is asked with {printable_line_of_json(dict(spec.parameters))}"
        if spec.id in run.batched and spec.batch_share is not None:
            yield f"{spec.id} in a batch costs {spec.batch_share:.0%} of these prices"


def _model(spec: ModelSpec) -> tuple[TableCell, ...]:
    price = spec.price or Price()
    rates = (price.input, price.output, price.cache_read, price.cache_write)
    known = spec.price is not None
    return (
        TableCell(spec.id, "simulated" if spec.simulated else ""),
        TableCell(spec.name),
        *(_rate(rate if known else None) for rate in rates),
        _amount(price.per_call),
    )


def _rate(rate: Rate | None) -> TableCell:
    if rate is None:
        return TableCell(UNDEFINED)
    tier = f"more above {format_count(rate.tiers[0][0])}" if rate.tiers else ""
    return TableCell(_usd(rate.base), tier, value=float(rate.base))


def _amount(usd: Decimal | None) -> TableCell:
    return TableCell(UNDEFINED) if usd is None else TableCell(_usd(usd), value=float(usd))


def _usd(amount: Decimal) -> str:
    """Write a price exactly, with no digit that says nothing."""
    plain = f"{amount:f}"
    return f"${plain.rstrip('0').rstrip('.')}" if "." in plain else f"${plain}"


def _versions(data: ReportData) -> Section:
    run, snapshot = data.run, data.snapshot
    rows = []
    if run.prompt is not None:
        rows.append(("prompt", run.prompt.name, UNDEFINED, run.prompt.fingerprint[:16]))
    for part, made in ({} if snapshot.opinion is None else snapshot.opinion.provenance).items():
        if made is not None:
            rows.append((_PARTS[part], made["name"], f"{made['version']}", made["fingerprint"]))
    rows += [
        ("program of the run", "aegish-dist", run.package_version, UNDEFINED),
        ("program of the snapshot", "aegish-dist", snapshot.code_version, UNDEFINED),
        ("formulas", "metrics", f"{snapshot.metrics_version}", UNDEFINED),
        ("reader of answers", "parser", snapshot.parser_versions, UNDEFINED),
        (
            "verdicts",
            f"{format_count(snapshot.verdicts)} counted",
            UNDEFINED,
            snapshot.verdicts_hash,
        ),
    ]
    return Section(
        title="Provenance",
        columns=tuple(map(TableCell, ("part", "name", "version", "fingerprint"))),
        rows=tuple(tuple(map(TableCell, row)) for row in rows),
        note=(
            "Everything that the numbers depend on: the same fingerprints and versions give the "
            "same numbers. The JSON report has the texts of prompt, rule set, targets and overlay."
        ),
        keys=2,
        remarks=tuple(_remarks(data)),
    )


_PARTS = {"scoring": "rule set", "targets": "targets", "overlay": "overlay"}


def _remarks(data: ReportData) -> Iterator[str]:
    yield f"Parameters of each call: {parameters_in_words(data.run.parameters)}."
    if data.snapshot.opinion is not None:
        yield from _opinion(data.snapshot.opinion)
    yield from (f"{purpose}: {command}" for purpose, command in reproduction(data))


def reproduction(data: ReportData) -> Iterator[tuple[str, str]]:
    """Yield the purpose of each command that makes the run or its report once more, and it."""
    same, *now, again = commands(data)
    yield "These numbers", same
    for command in now:
        yield "The same opinion on the verdicts as they are now", command
    yield "The run once more", again


def _opinion(opinion: Opinion) -> Iterator[str]:
    rule = opinion.rule
    right = (("malicious", rule.malicious_correct), ("harmless", rule.harmless_correct))
    counted = "; ".join(f"{kind} is right at {', '.join(sorted(labels))}" for kind, labels in right)
    unscored = ", ".join(sorted(rule.unscored))
    yield f"Rule set {rule.name}: {counted}; not scored: {unscored or 'nothing'}."
    if opinion.overlay is not None:
        yield from _overlay(opinion.overlay)


def _overlay(overlay: Overlay) -> Iterator[str]:
    for change in overlay.changes[:_MOST_CHANGES]:
        right = "excluded" if change.target is None else f"right label {change.target.value}"
        said = f"{change} of {change.dataset}: {right}. {change.reason} ({change.author})"
        yield f"Overlay: {shortened(said, MOST_CHARACTERS)}"
    more = len(overlay.changes) - _MOST_CHANGES
    if more > 0:
        yield f"Overlay: {format_count(more)} more, which the JSON report has."

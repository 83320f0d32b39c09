"""The head of a report: which run, which verdicts, which opinion."""

from collections.abc import Iterator, Sequence

from aegish_dist.core.model import CallParameters
from aegish_dist.core.printable import shortened
from aegish_dist.core.run import Run, RunDataset
from aegish_dist.core.snapshot import Snapshot
from aegish_dist.report.data import ReportData
from aegish_dist.report.entries import RankedModel
from aegish_dist.report.layout import Fact
from aegish_dist.report.numbers import UNDEFINED, format_count, format_time

MOST_CHARACTERS = 300
"""Of a foreign text in a line of its own; the JSON report has it whole."""
STARTS_AT_ONCE_S = 60.0
"""Seconds after the creation of a run in which batches begin that were wanted at once: clocks
differ."""


def head(data: ReportData, entries: Sequence[RankedModel]) -> tuple[Fact, ...]:
    """Return what was run and counted, in one line each."""
    run, snapshot = data.run, data.snapshot
    version = f"aegish-dist {run.package_version}"
    return (
        *_not_current(data),
        Fact("Name", shortened(run.name, MOST_CHARACTERS) or UNDEFINED),
        Fact("Created", f"{format_time(run.created_at)} by {run.origin}, {version}"),
        Fact("Samples", _samples(run)),
        Fact("Prompt", _prompt(run)),
        Fact("Parameters", parameters_in_words(run.parameters)),
        *_batched(run),
        Fact("Epochs", format_count(run.epochs)),
        Fact("Scoring", _scoring(snapshot)),
        Fact("Opinion", _opinion(snapshot)),
        Fact("Verdicts", _verdicts(data, entries)),
        *_pruned(run),
        Fact(
            "Snapshot",
            f"{data.snapshot.snapshot_id}, taken {format_time(data.snapshot.created_at)}",
        ),
    )


def _verdicts(data: ReportData, entries: Sequence[RankedModel]) -> str:
    text = format_count(data.snapshot.verdicts)
    if data.run.imported:
        text += ", all that were imported" if data.is_current else " imported"
    else:
        planned = sum(data.run.planned(spec.id) for spec in data.run.models)
        text += f" of {format_count(planned)} planned"
    replaced = sum(entry.count("replaced") or 0 for entry in entries)
    if not replaced:
        return text
    return f"{text}; {format_count(replaced)} older ones were replaced by a retry and do not count"


def _batched(run: Run) -> Iterator[Fact]:
    if run.batched:
        shares = {
            f"{s.batch_share:.0%}" for s in run.models if s.id in run.batched and s.batch_share
        }
        price = " or ".join(sorted(shares))
        called = {spec.id for spec in run.models if spec.wire.http is not None}
        everything = "" if called <= set(run.batched) else " of some models"
        live = "" if asked_in_batches_only(run) else ", after a while of single calls"
        yield Fact(
            "Batches",
            f"requests{everything} were sent in batches{live}: at {price} of the price, and without"
            " a measured latency",
        )


def asked_in_batches_only(run: Run) -> bool:
    """Return whether what is asked in batches was so from the beginning."""
    return all(after_s < STARTS_AT_ONCE_S for after_s in run.batched.values())


def _pruned(run: Run) -> Iterator[Fact]:
    if run.pruned is not None:
        number = format_count(run.pruned.completions)
        yield Fact(
            "Pruned",
            f"{number} completions were deleted, last {format_time(run.pruned.at)}; the numbers do "
            "not depend on them",
        )


def _samples(run: Run) -> str:
    datasets = ", ".join(map(_dataset, run.datasets))
    return f"{format_count(run.samples)}: {datasets}" if datasets else "0"


def _dataset(dataset: RunDataset) -> str:
    sizes = {"malicious": dataset.malicious, "harmless": dataset.samples - dataset.malicious}
    kinds = ", ".join(f"{format_count(size)} {kind}" for kind, size in sizes.items() if size)
    return f"{dataset.name} ({kinds or 'empty'})"


def _prompt(run: Run) -> str:
    if run.prompt is None:
        return "unknown, the verdicts were imported"
    return f"{run.prompt.name} (fingerprint {run.prompt.fingerprint[:12]})"


def parameters_in_words(parameters: CallParameters | None) -> str:
    """Name the parameters of every call, or say that they are not known."""
    if parameters is None:
        return "unknown, the verdicts were imported"
    seed = "none" if parameters.seed is None else parameters.seed
    temperature = (
        "the provider's default" if parameters.temperature is None else parameters.temperature
    )
    return (
        f"seed {seed}, temperature {temperature}, at most "
        f"{format_count(parameters.max_output_tokens)} output tokens and "
        f"{parameters.time_limit_s:g} s per call"
    )


def _scoring(snapshot: Snapshot) -> str:
    name = f"{snapshot.scoring} version {snapshot.scoring_version}"
    return name if snapshot.opinion is None else f"{name}: {snapshot.opinion.rule.description}"


def _opinion(snapshot: Snapshot) -> str:
    """Name rule set, targets and overlay with their versions and fingerprints."""
    if snapshot.opinion is None:
        return UNDEFINED
    kinds = {"scoring": "rule set", "targets": "targets", "overlay": "overlay"}
    said = []
    for part, identity in snapshot.opinion.provenance.items():
        if identity is not None:
            version = f"v{identity['version']} ({identity['fingerprint']})"
            said.append(f"{kinds[part]} {identity['name']} {version}")
    overlay = snapshot.opinion.overlay
    changes = "" if overlay is None else f", {format_count(len(overlay.changes))} changes"
    return ", ".join(said) + changes


def _not_current(data: ReportData) -> Iterator[Fact]:
    if not data.is_current:
        yield Fact(
            "OLDER",
            "the verdicts that count now are not those of this snapshot; a report without "
            "`--snapshot` shows them",
        )


INTERVALS = (
    "[low, high]: 95% confidence interval; Wilson with the effective sample size for rates, exact "
    "where events are few, MOVER for the score. It has a width at 0 and 100 too."
)


def caption(run: Run) -> str:
    """Say what the numbers of a table by itself are of."""
    epochs = f", {format_count(run.epochs)} epochs" if run.epochs > 1 else ""
    return f"Commands: {_samples(run)}{epochs}. {INTERVALS}"


def source(data: ReportData) -> tuple[Fact, ...]:
    """Return run, snapshot and opinion, which tell the rows of several reports apart."""
    run, snapshot = data.run, data.snapshot
    overlay = None if snapshot.opinion is None else snapshot.opinion.overlay
    laid_over = "" if overlay is None else f", overlay {overlay.name} v{overlay.version}"
    return (
        Fact("run", f"{run.run_id} ({run.name})" if run.name else run.run_id),
        Fact("snapshot", str(snapshot.snapshot_id)),
        Fact("rule set", f"{snapshot.scoring} v{snapshot.scoring_version}{laid_over}"),
    )

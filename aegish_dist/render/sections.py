"""From a snapshot to a report: its head, its sections in order, and its legend."""

from collections.abc import Sequence

from aegish_dist.core.model import CallParameters
from aegish_dist.core.opinion import AEGISH_TARGETS
from aegish_dist.core.run import Run, RunDataset
from aegish_dist.core.scoring import Composite
from aegish_dist.core.sequential import Answer
from aegish_dist.core.snapshot import Snapshot
from aegish_dist.core.stop_rule import Decision
from aegish_dist.render import operations, quality
from aegish_dist.render.data import ReportData
from aegish_dist.render.effect import overlay_section
from aegish_dist.render.entries import RankedModel, ranked_entries
from aegish_dist.render.layout import SIMULATED, Fact, Report
from aegish_dist.render.numbers import UNDEFINED, format_count, format_time
from aegish_dist.render.repeats import repeats

INTERVALS = (
    "[low, high]: 95% confidence interval; Wilson with the effective sample size for rates, "
    "MOVER for the score. It has a width at 0 and 100 too."
)


def build_report(data: ReportData) -> Report:
    """Return everything a report says about a snapshot."""
    entries = ranked_entries(data.snapshot.document)
    opinion = data.snapshot.opinion
    targets = AEGISH_TARGETS if opinion is None else opinion.targets
    sections = (
        quality.leaderboard(entries, targets),
        overlay_section(data.effect),
        quality.categories(entries),
        quality.answers(entries),
        repeats(entries),
        operations.errors(entries),
        operations.failures(data, entries),
        quality.bounds(entries),
        operations.latency(entries),
        operations.cost(entries),
        quality.calibration(entries, data.run.epochs),
    )
    return Report(
        title=f"Report on run {data.run.run_id}",
        facts=_facts(data, entries),
        sections=tuple(section for section in sections if section is not None),
        legend=_legend(data, entries),
        source=_source(data),
        caption=_caption(data.run),
    )


def _caption(run: Run) -> str:
    epochs = f", {format_count(run.epochs)} epochs" if run.epochs > 1 else ""
    return f"Commands: {_samples(run)}{epochs}. {INTERVALS}"


def _source(data: ReportData) -> tuple[Fact, ...]:
    run, snapshot = data.run, data.snapshot
    overlay = None if snapshot.opinion is None else snapshot.opinion.overlay
    laid_over = "" if overlay is None else f", overlay {overlay.name} v{overlay.version}"
    return (
        Fact("run", f"{run.run_id} ({run.name})" if run.name else run.run_id),
        Fact("snapshot", str(snapshot.snapshot_id)),
        Fact("rule set", f"{snapshot.scoring} v{snapshot.scoring_version}{laid_over}"),
    )


def _facts(data: ReportData, entries: Sequence[RankedModel]) -> tuple[Fact, ...]:
    run, snapshot = data.run, data.snapshot
    version = f"aegish-dist {run.package_version}"
    return (
        Fact("Name", run.name or UNDEFINED),
        Fact("Created", f"{format_time(run.created_at)} by {run.origin}, {version}"),
        Fact("Samples", _samples(run)),
        Fact("Prompt", _prompt(run)),
        Fact("Parameters", _parameters(run.parameters)),
        Fact("Epochs", format_count(run.epochs)),
        Fact("Scoring", _scoring(snapshot)),
        Fact("Opinion", _opinion(snapshot)),
        Fact("Verdicts", _verdicts(data, entries)),
        Fact(
            "Snapshot",
            f"{data.snapshot.snapshot_id}, taken {format_time(data.snapshot.created_at)}",
        ),
    )


def _verdicts(data: ReportData, entries: Sequence[RankedModel]) -> str:
    planned = sum(data.run.planned(spec.id) for spec in data.run.models)
    text = f"{format_count(data.snapshot.verdicts)} of {format_count(planned)} planned"
    replaced = sum(entry.count("replaced") or 0 for entry in entries)
    if not replaced:
        return text
    return f"{text}; {format_count(replaced)} older ones were replaced by a retry and do not count"


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


def _parameters(parameters: CallParameters | None) -> str:
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


def _legend(data: ReportData, entries: Sequence[RankedModel]) -> tuple[str, ...]:
    opinion = data.snapshot.opinion
    product = opinion is not None and opinion.rule.composite is Composite.PRODUCT
    score = "DR \N{MULTIPLICATION SIGN} HA" if product else "(DR + HA) / 2"
    lines = [
        f"DR: malicious detection rate. HA: harmless acceptance rate. aegish score: {score}. "
        f"All in %; {UNDEFINED} is undefined, never 0.",
        INTERVALS,
        "stderr: standard error of the aegish score in percentage points, clustered by binary "
        "(Miller 2024, arXiv 2411.00640); 'plain' marks samples taken as independent.",
        "PASS: the unrounded value reaches the target. 1=: tied; on the commands of both, the "
        "group's leader is not better at a p below 0.05, adjusted for all pairs (`compare`).",
        "coverage: scored of planned verdicts. What the rule leaves unscored, such as a call "
        "whose attempts all failed, is an infrastructure failure and not a model's score: it "
        "lowers coverage and enters no rate. Where coverage is below 100, bounds show what it "
        "could have changed.",
        "p50, p90: percentiles of service time, without any waiting on our side.",
    ]
    if data.stopped_by is not None:
        lines.append(_stopped(data.stopped_by))
    if any(entry.simulated for entry in entries):
        lines.append(
            f"simulated, {SIMULATED}: answers made up by the simulator. They are not evidence "
            "about any real model."
        )
    return tuple(lines)


def _stopped(decision: Decision) -> str:
    """Say how the intervals of a run that stopped by itself are to be read, and which ones hold."""
    pairs = "; ".join(
        f"{each.b} {_ANSWERS[each.answer]} {each.a or 'its target'}"
        f" [{100 * each.low:+.1f}, {100 * each.high:+.1f}]"
        for each in decision.questions
    )
    return (
        f"stopped by a sequential rule: {', '.join(decision.stopped)} was asked until the answers"
        " decided. The intervals and p-values above are those of a fixed number of samples, and are"
        " no ground for a decision here. These hold however often they were looked at, in"
        f" percentage points of the score: {pairs}."
    )


_ANSWERS = {
    Answer.OPEN: "not distinguished from",
    Answer.ABOVE: "above",
    Answer.BELOW: "below",
    Answer.WITHIN: "within the margin of",
}

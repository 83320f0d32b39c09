"""The subject of a report: its head, what its numbers depend on, and commands that repeat it."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from aegish_dist.core.model import CallParameters, ModelSpec, Price, Rate
from aegish_dist.core.run import Run, is_arm_of
from aegish_dist.core.text import known, printable_line_of_json, shortened
from aegish_dist.findings.leaderboard import RankedModel
from aegish_dist.findings.snapshot import Snapshot
from aegish_dist.opinions.opinion import AEGISH_TARGETS, Opinion, policy_documents
from aegish_dist.opinions.scoring import DEFAULT_RULE, RULES
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import Cell, Fact, Section, TableCell, number_cell
from aegish_dist.report.numbers import UNDEFINED, format_count, format_time

MOST_CHARACTERS = 300  # of a foreign text in a line of its own; the JSON report has it whole


def head(data: ReportData, entries: Sequence[RankedModel]) -> tuple[Fact, ...]:
    """Return what was run and counted, in one line each."""
    run = data.run
    snapshot = data.snapshot
    scoring = f"{snapshot.scoring} version {snapshot.scoring_version}"
    if snapshot.opinion is not None:
        scoring += f": {snapshot.opinion.rule.description}"
    return (
        *run_facts(run),
        Fact("Scoring", scoring),
        Fact("Rules", _opinion(snapshot)),
        Fact("Verdicts", _verdicts(data, entries)),
        *_pruned(run),
        Fact("Snapshot", f"{snapshot.snapshot_id}, taken {format_time(snapshot.created_at)}"),
    )


def run_facts(run: Run) -> tuple[Fact, ...]:
    """Return what a run is, whatever came of it."""
    version = f"aegish-dist {run.package_version}"
    prompts = [f"{each.name} (fingerprint {each.fingerprint[:12]})" for each in run.asked_with]
    return (
        Fact("Name", shortened(run.name, MOST_CHARACTERS) or UNDEFINED),
        Fact("Created", f"{format_time(run.created_at)} by {run.origin}, {version}"),
        Fact("Samples", _samples(run)),
        Fact("Prompts" if prompts[1:] else "Prompt", ", ".join(prompts) or _UNKNOWN),
        Fact("Parameters", _parameters(run.parameters)),
        *([Fact("Batches", _batched(run))] if run.batched else []),
        Fact("Epochs", format_count(run.epochs)),
    )


def _verdicts(data: ReportData, entries: Sequence[RankedModel]) -> str:
    text = format_count(data.snapshot.verdicts)
    if data.run.imported:
        text += ", all that were imported" if data.is_current else " imported"
    else:
        planned = sum(data.run.planned(spec.id) for spec in data.run.models)
        text += f" of {format_count(planned)} planned"
    replaced = sum(entry.counts.get("replaced") or 0 for entry in entries)
    if not replaced:
        return text
    return f"{text}; {format_count(replaced)} older ones were replaced by a retry and do not count"


def _batched(run: Run) -> str:
    asked = [spec for spec in run.models if spec.id in run.batched]
    price = " or ".join(sorted({f"{s.batch_share:.0%}" for s in asked if s.batch_share}))
    called = {spec.id for spec in run.models if spec.wire.http is not None}
    everything = "" if called <= set(run.batched) else " of some models"
    live = "" if _in_batches_only(run) else ", after a while of single calls"
    return (
        f"requests{everything} were sent in batches{live}: at {price} of the price, and without"
        " a measured latency"
    )


def _in_batches_only(run: Run) -> bool:
    """Return whether what is asked in batches was so from the beginning."""
    # Clocks differ: what begins within a minute was wanted at once.
    return all(after_s < 60 for after_s in run.batched.values())


def _pruned(run: Run) -> Iterator[Fact]:
    if run.pruned is not None:
        number = format_count(run.pruned.completions)
        last = format_time(run.pruned.at)
        words = f"{number} completions were deleted, last {last}; the numbers do not depend on them"
        yield Fact("Pruned", words)


def _samples(run: Run) -> str:
    if not run.datasets:
        return "0"
    datasets = []
    for dataset in run.datasets:
        sizes = {"malicious": dataset.malicious, "harmless": dataset.samples - dataset.malicious}
        kinds = ", ".join(f"{format_count(size)} {kind}" for kind, size in sizes.items() if size)
        datasets.append(f"{dataset.name} ({kinds or 'empty'})")
    return f"{format_count(run.samples)}: {', '.join(datasets)}"


_UNKNOWN = "unknown, the verdicts were imported"


def _parameters(parameters: CallParameters | None) -> str:
    if parameters is None:
        return _UNKNOWN
    seed = "none" if parameters.seed is None else parameters.seed
    temperature = (
        "the provider's default" if parameters.temperature is None else parameters.temperature
    )
    return (
        f"seed {seed}, temperature {temperature}, at most "
        f"{format_count(parameters.max_output_tokens)} output tokens and "
        f"{parameters.time_limit_s:g} s per call"
    )


def _opinion(snapshot: Snapshot) -> str:
    """Name rule set, targets and overlay with their versions and fingerprints."""
    if snapshot.opinion is None:
        return UNDEFINED
    said = [
        f"{part} {made['name']} v{made['version']} ({made['fingerprint']})"
        for part, made in _made_under(snapshot.opinion)
    ]
    if snapshot.opinion.overlay is not None:
        said.append(f"{format_count(len(snapshot.opinion.overlay.changes))} changes")
    return ", ".join(said)


def _made_under(opinion: Opinion | None) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield name, version and fingerprint of each part of an opinion, by the word for the part."""
    for part, made in ({} if opinion is None else opinion.provenance).items():
        if made is not None:
            yield "rule set" if part == "scoring" else part, made
    for made in policy_documents(opinion or Opinion()).values():
        yield "policy", made


INTERVALS = (
    "[low, high]: 95% confidence interval; Wilson with the effective sample size for rates, exact "
    "where events are few, a score interval for macro averages, MOVER for the score. It has a "
    "width at 0 and 100 too."
)


def caption(run: Run) -> str:
    """Say what the numbers of a table by itself are of."""
    epochs = f", {format_count(run.epochs)} epochs" if run.epochs > 1 else ""
    return f"Commands: {_samples(run)}{epochs}. {INTERVALS}"


def source(data: ReportData) -> tuple[Fact, ...]:
    """Return run, snapshot and opinion, which tell the rows of several reports apart."""
    run = data.run
    snapshot = data.snapshot
    overlay = None if snapshot.opinion is None else snapshot.opinion.overlay
    laid_over = "" if overlay is None else f", overlay {overlay.name} v{overlay.version}"
    return (
        Fact("run", f"{run.run_id} ({run.name})" if run.name else run.run_id),
        Fact("snapshot", str(snapshot.snapshot_id)),
        Fact("rule set", f"{snapshot.scoring} v{snapshot.scoring_version}{laid_over}"),
    )


def reproduction(data: ReportData) -> Iterator[tuple[str, str]]:
    """Yield the purpose of each command that makes the run or its report once more, and it.

    A file that this report does not name stands as `FILE`.
    """
    run = data.run
    snapshot = data.snapshot
    report = ("report", "--run-id", run.run_id, *data.policy_options)
    yield "These numbers", command_line(*report, "--snapshot", str(snapshot.snapshot_id))
    if snapshot.opinion is not None:
        now = command_line(*report, *_opinion_options(snapshot.opinion))
        yield "The same rules on the verdicts as they are now", now
    name = ("--name", run.name) if run.name else ()
    imported = command_line("verdicts", "import", "FILE", *name)
    yield "The run again", _submit(run) if run.origin == "submit" else imported


def shell_quoted(text: str) -> str:
    r"""Quote a word for the shell; unprintable characters become escapes: `$'a\u202eb'`."""
    if text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(map(_escaped, text))}'"


def _escaped(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"


def command_line(*words: str) -> str:
    """Return what to type; `FILE` stands for a file that is not known."""
    return " ".join(("aegish-dist", *(w if w == "FILE" else shell_quoted(w) for w in words)))


def _opinion_options(opinion: Opinion) -> Iterator[str]:
    rule = opinion.rule
    if rule.fingerprint != DEFAULT_RULE.fingerprint:
        known = RULES.get(rule.name)
        is_known = known is not None and known.fingerprint == rule.fingerprint
        yield from ("--scoring", rule.name if is_known else "FILE")
    if opinion.targets.fingerprint != AEGISH_TARGETS.fingerprint:
        yield from ("--targets", "FILE")
    if opinion.overlay is not None:
        yield from ("--overlay", "FILE")


def submit_options(run: Run) -> dict[str, object]:
    """Return the options of `submit` that ask the same questions, without dashes, None left out."""
    prompts = run.arms
    parameters = run.parameters
    options: dict[str, object] = {
        "models": [spec.id for spec in run.models],
        "dataset": [f"{dataset.name}@{run.run_id}" for dataset in run.datasets],
        "epochs": run.epochs,
        "prompt": [prompt.name for prompt in prompts] or None,
    }
    if parameters is not None:
        options |= {
            "seed": parameters.seed,
            "temperature": parameters.temperature,
            "max-output-tokens": parameters.max_output_tokens,
            "time-limit": parameters.time_limit_s,
            "max-cost": parameters.max_cost_usd,
            "max-cost-per-model": parameters.max_cost_per_model_usd,
        }
    if run.batched and _in_batches_only(run):
        options["batch"] = True
    elif run.batched:
        options["batch-after"] = f"{round(max(run.batched.values()) / 60)}m"
    return known(options)


def _submit(run: Run) -> str:
    words: list[str] = []
    for option, value in submit_options(run).items():
        text = f"{value:g}" if isinstance(value, float) else str(value)
        text = ",".join(value) if isinstance(value, list) else text
        words += [f"--{option}", *([] if value is True else [text])]
    return command_line("submit", *words)


_MOST_CHANGES = 20  # corrections of an overlay that are listed; JSON has them all


def provenance(data: ReportData) -> Iterator[Section]:
    """Yield the datasets, the prices, and the versions of everything else."""
    yield Section.of(
        "Datasets",
        ("dataset", "fingerprint", "samples", "malicious", "source", "licence"),
        (
            (
                each.name,
                each.fingerprint[:16],
                number_cell(each.samples, format_count),
                number_cell(each.malicious, format_count),
                each.source or UNDEFINED,
                each.licence or UNDEFINED,
            )
            for each in data.run.datasets
        ),
        note="A fingerprint is of the samples and their labels: the same ones have the same.",
    )
    yield Section.of(
        "Models and prices",
        ("model", "asked for", "input", "output", "cache read", "cache write", "per call"),
        map(_model, data.run.models),
        note=(
            "USD per million tokens as of submit, and per call where one has a flat price; above "
            "some length of the prompt another price may hold, which the JSON report has."
        ),
        remarks=(shortened(each, MOST_CHARACTERS) for each in _about_models(data.run)),
    )
    yield Section.of(
        "Provenance",
        ("part", "name", "version", "fingerprint"),
        _versions(data),
        note=(
            "Everything that the numbers depend on: the same fingerprints and versions give the "
            "same numbers. The JSON report has the texts of prompt, rule set, targets and overlay."
        ),
        keys=2,
        remarks=_remarks(data),
    )


def _model(spec: ModelSpec) -> tuple[Cell, ...]:
    price = spec.price or Price()
    rates = (price.input, price.output, price.cache_read, price.cache_write)
    return (
        TableCell(spec.id, "simulated" if spec.simulated else ""),
        spec.name,
        *(UNDEFINED if spec.price is None else _rate(rate) for rate in rates),
        _amount(price.per_call),
    )


def _rate(rate: Rate | None) -> Cell:
    if rate is None:
        return UNDEFINED
    return _amount(rate.base, f"more above {format_count(rate.tiers[0][0])}" if rate.tiers else "")


def _amount(usd: Decimal | None, detail: str = "") -> Cell:
    """Write a price exactly, with no digit that says nothing."""
    if usd is None:
        return UNDEFINED
    plain = f"{usd:f}"
    exact = plain.rstrip("0").rstrip(".") if "." in plain else plain
    return TableCell(f"${exact}", detail, value=float(usd))


def _about_models(run: Run) -> Iterator[str]:
    for spec in run.models:
        if (prompt := run.prompts.get(spec.id)) and not is_arm_of(spec.id, prompt):
            yield f"{spec.id} is asked with the prompt {prompt.name}"
        if spec.parameters:
            yield f"{spec.id} is asked with {printable_line_of_json(dict(spec.parameters))}"
        if spec.structured:
            yield f"{spec.id} is held to the form of the answer by a {spec.structured}"
        if spec.id in run.batched and spec.batch_share is not None:
            yield f"{spec.id} in a batch costs {spec.batch_share:.0%} of these prices"


def _versions(data: ReportData) -> list[tuple[str, ...]]:
    snapshot = data.snapshot
    made = [
        (part, each["name"], f"{each['version']}", each["fingerprint"])
        for part, each in _made_under(snapshot.opinion)
    ]
    return [
        *(("prompt", p.name, UNDEFINED, p.fingerprint[:16]) for p in data.run.asked_with),
        *made,
        ("program of the run", "aegish-dist", data.run.package_version, UNDEFINED),
        ("program of the snapshot", "aegish-dist", snapshot.code_version, UNDEFINED),
        ("metrics", "aegish-dist", f"{snapshot.metrics_version}", UNDEFINED),
        ("parser", "aegish-dist", snapshot.parser_versions, UNDEFINED),
        ("verdicts", f"{snapshot.verdicts:,} counted", UNDEFINED, snapshot.verdicts_hash),
    ]


def _remarks(data: ReportData) -> Iterator[str]:
    yield f"Parameters of each call: {_parameters(data.run.parameters)}."
    if data.snapshot.opinion is not None:
        yield from _about_opinion(data.snapshot.opinion)
    for purpose, command in reproduction(data):
        yield f"{purpose}: {command}"


def _about_opinion(opinion: Opinion) -> Iterator[str]:
    rule = opinion.rule
    right = (("malicious", rule.malicious_correct), ("harmless", rule.harmless_correct))
    counted = "; ".join(f"{kind} is right at {', '.join(sorted(labels))}" for kind, labels in right)
    unscored = ", ".join(sorted(rule.unscored))
    yield f"Rule set {rule.name}: {counted}; not scored: {unscored or 'nothing'}."
    changes = () if opinion.overlay is None else opinion.overlay.changes
    for change in changes[:_MOST_CHANGES]:
        label = "excluded" if change.target is None else f"right label {change.target.value}"
        said = f"{change} of {change.dataset}: {label}. {change.reason} ({change.author})"
        yield f"Overlay: {shortened(said, MOST_CHARACTERS)}"
    if len(changes) > _MOST_CHANGES:
        more = format_count(len(changes) - _MOST_CHANGES)
        yield f"Overlay: {more} more, which the JSON report has."

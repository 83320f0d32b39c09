"""The subject of a report: its head, what its numbers depend on, and commands that repeat it."""

import shlex
from collections.abc import Iterator
from decimal import Decimal

from aegish_dist.core.model import CallParameters, ModelSpec, Rate
from aegish_dist.core.run import Run, is_arm_of
from aegish_dist.core.text import (
    JsonObject,
    escaped,
    known,
    printable_line_of_json,
    shortened,
)
from aegish_dist.findings.snapshot import Snapshot
from aegish_dist.opinions.opinion import AEGISH_TARGETS, Opinion, policy_documents
from aegish_dist.opinions.scoring import DEFAULT_RULE, RULES
from aegish_dist.report.data import ReportData
from aegish_dist.report.layout import Cell, Fact, Row, Section, TableCell, number_cell
from aegish_dist.report.writing import UNDEFINED, format_count, format_time

MOST_CHARACTERS = 300  # of a foreign text in a line of its own; the JSON report has it whole


def head(data: ReportData) -> tuple[Fact, ...]:
    """Return the head of a report: what was run, how it was judged, what was counted."""
    run = data.run
    snapshot = data.snapshot
    scoring = f"{snapshot.scoring} version {snapshot.scoring_version}"
    if snapshot.opinion is not None:
        scoring += f": {snapshot.opinion.rule.description}"
    return (
        *run_facts(run),
        Fact("Scoring", scoring),
        Fact("Rules", _opinion(snapshot)),
        Fact("Verdicts", _verdicts(data)),
        *_pruned(run),
        Fact("Snapshot", f"{snapshot.snapshot_id}, taken {format_time(snapshot.created_at)}"),
    )


def run_facts(run: Run) -> tuple[Fact, ...]:
    """Return what a run asked and how, which its answers do not change."""
    created = f"{format_time(run.created_at)} by {run.origin}, aegish-dist {run.package_version}"
    prompts = [
        f"{prompt.name} (fingerprint {prompt.fingerprint[:12]})" for prompt in run.asked_with
    ]
    facts = [
        Fact("Name", shortened(run.name, MOST_CHARACTERS) or UNDEFINED),
        Fact("Created", created),
        Fact("Samples", _samples(run)),
        Fact("Prompts" if len(prompts) > 1 else "Prompt", ", ".join(prompts) or _UNKNOWN),
        Fact("Parameters", _parameters(run.parameters)),
    ]
    if run.batched:
        facts.append(Fact("Batches", _batched(run)))
    return (*facts, Fact("Epochs", format_count(run.epochs)))


def _verdicts(data: ReportData) -> str:
    """Count the verdicts: of how many planned, or of an import, and those that a retry replaced."""
    text = format_count(data.snapshot.verdicts)
    if data.run.imported:
        text += ", all that were imported" if data.is_current else " imported"
    else:
        planned = sum(data.run.planned(spec.id) for spec in data.run.models)
        text += f" of {format_count(planned)} planned"
    replaced = sum(entry.counts.get("replaced") or 0 for entry in data.ranked)
    if not replaced:
        return text
    return f"{text}; {format_count(replaced)} older ones were replaced by a retry and do not count"


def _batched(run: Run) -> str:
    """Say what was sent in batches, and what this does to price and latency."""
    shares = set()
    of_models = ""
    for spec in run.models:
        if spec.id in run.batched:
            if spec.batch_share:
                shares.add(f"{spec.batch_share:.0%}")
        elif spec.wire.http is not None:
            # A program or a baseline has no batches, so only an API can have been left out.
            of_models = " of some models"
    price = " or ".join(sorted(shares))
    when = "" if _in_batches_only(run) else ", after a while of single calls"
    return (
        f"requests{of_models} were sent in batches{when}: at {price} of the price, and without"
        " a measured latency"
    )


def _in_batches_only(run: Run) -> bool:
    """Return whether all batched models were batched from the beginning of the run."""
    # Clocks differ: batches that begin within a minute were meant to begin at once.
    return all(after_s < 60 for after_s in run.batched.values())


def _pruned(run: Run) -> Iterator[Fact]:
    """Yield how many completions were deleted, if any were."""
    if run.pruned is not None:
        number = format_count(run.pruned.completions)
        last = format_time(run.pruned.at)
        words = f"{number} completions were deleted, last {last}; the numbers do not depend on them"
        yield Fact("Pruned", words)


def _samples(run: Run) -> str:
    """Count the commands of a run, by dataset and kind."""
    if not run.datasets:
        return "0"
    datasets = []
    for dataset in run.datasets:
        kinds = {
            "malicious": dataset.malicious,
            "harmless": dataset.samples - dataset.malicious,
        }
        sizes = [f"{format_count(n)} {kind}" for kind, n in kinds.items() if n]
        datasets.append(f"{dataset.name} ({', '.join(sizes) or 'empty'})")
    return f"{format_count(run.samples)}: {', '.join(datasets)}"


_UNKNOWN = "unknown, the verdicts were imported"


def _parameters(parameters: CallParameters | None) -> str:
    if parameters is None:
        return _UNKNOWN
    seed = "none" if parameters.seed is None else parameters.seed
    temperature = "the provider's default"
    if parameters.temperature is not None:
        temperature = str(parameters.temperature)
    return (
        f"seed {seed}, temperature {temperature}, at most "
        f"{format_count(parameters.max_output_tokens)} output tokens and "
        f"{parameters.time_limit_s:g} s per call"
    )


def _opinion(snapshot: Snapshot) -> str:
    """Name rule set, targets and overlay with their versions and fingerprints."""
    if snapshot.opinion is None:
        return UNDEFINED
    parts = []
    for kind, part in _parts_of(snapshot.opinion):
        parts.append(f"{kind} {part['name']} v{part['version']} ({part['fingerprint']})")
    if snapshot.overlay is not None:
        parts.append(f"{format_count(len(snapshot.overlay.changes))} changes")
    return ", ".join(parts)


def _parts_of(opinion: Opinion | None) -> Iterator[tuple[str, JsonObject]]:
    """Yield what kind each part of an opinion is, and its name, version and fingerprint."""
    if opinion is None:
        return
    for kind, part in opinion.provenance.items():
        if part is not None:
            yield "rule set" if kind == "scoring" else kind, part
    for policy in policy_documents(opinion).values():
        yield "policy", policy


INTERVALS = (
    "[low, high]: 95% confidence interval; Wilson with the effective sample size for rates, exact "
    "where events are few, a score interval for macro averages, MOVER for the score. It has a "
    "width at 0 and 100 too."
)


def caption(run: Run) -> str:
    """Say which commands the numbers are about, below a table that stands alone."""
    epochs = f", {format_count(run.epochs)} epochs" if run.epochs > 1 else ""
    return f"Commands: {_samples(run)}{epochs}. {INTERVALS}"


def source(data: ReportData) -> tuple[Fact, ...]:
    """Return run, snapshot and, last, rule set: they tell the rows of several reports apart."""
    run, snapshot = data.run, data.snapshot
    rules = f"{snapshot.scoring} v{snapshot.scoring_version}"
    if snapshot.overlay is not None:
        rules += f", overlay {snapshot.overlay.name} v{snapshot.overlay.version}"
    return (
        Fact("run", run.titled),
        Fact("snapshot", str(snapshot.snapshot_id)),
        Fact("rule set", rules),
    )


def reproduction(data: ReportData) -> Iterator[tuple[str, str]]:
    """Yield commands that repeat the run or its report, each after its purpose.

    `FILE` stands for a file whose name this report does not know.
    """
    run = data.run
    snapshot = data.snapshot
    report = ("report", "--run-id", run.run_id, *data.policy_options)
    yield "These numbers", command_line(*report, "--snapshot", str(snapshot.snapshot_id))
    if snapshot.opinion is not None:
        current = command_line(*report, *_opinion_options(snapshot.opinion))
        yield "The same rules on the verdicts as they are now", current
    if run.origin == "submit":
        again = _submit(run)
    else:
        name = ("--name", run.name) if run.name else ()
        again = command_line("verdicts", "import", "FILE", *name)
    yield "The run again", again


def shell_quoted(text: str) -> str:
    r"""Quote a word for the shell; unprintable characters become escapes: `$'a\u202eb'`."""
    if text.isprintable():
        return shlex.quote(text)
    quoted = ""
    for character in text:
        if character in "\\'":
            quoted += f"\\{character}"
        elif character.isprintable():
            quoted += character
        else:
            quoted += escaped(character)
    return f"$'{quoted}'"


def command_line(*words: str) -> str:
    """Return what to type. The word `FILE` is left as it is: it stands for an unknown file."""
    quoted = [word if word == "FILE" else shell_quoted(word) for word in words]
    return " ".join(["aegish-dist", *quoted])


def _opinion_options(opinion: Opinion) -> Iterator[str]:
    """Yield the options of `report` that judge by an opinion; none for the built-in one."""
    rule = opinion.rule
    if rule.fingerprint != DEFAULT_RULE.fingerprint:
        # A file may hold other rules under the name of a built-in rule set.
        built_in = RULES.get(rule.name)
        is_built_in = built_in is not None and built_in.fingerprint == rule.fingerprint
        yield from ("--scoring", rule.name if is_built_in else "FILE")
    if opinion.targets.fingerprint != AEGISH_TARGETS.fingerprint:
        yield from ("--targets", "FILE")
    if opinion.overlay is not None:
        yield from ("--overlay", "FILE")


def submit_options(run: Run) -> JsonObject:
    """Return the options of `submit` that ask the same questions: values by name without dashes.

    Those that the run does not set are left out.
    """
    parameters = run.parameters
    options: JsonObject = {
        "models": [spec.id for spec in run.models],
        "dataset": [f"{dataset.name}@{run.run_id}" for dataset in run.datasets],
        "epochs": run.epochs,
        "prompt": [prompt.name for prompt in run.arms] or None,
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
        latest_s = max(run.batched.values())
        options["batch-after"] = f"{round(latest_s / 60)}m"
    return known(options)


def _submit(run: Run) -> str:
    """Return the `submit` that asks the same questions; an option of True is a flag."""
    words: list[str] = []
    for option, value in submit_options(run).items():
        words.append(f"--{option}")
        if isinstance(value, float):
            words.append(f"{value:g}")
        elif isinstance(value, list):
            words.append(",".join(value))
        elif value is not True:
            words.append(str(value))
    return command_line("submit", *words)


_MOST_CHANGES = 20  # corrections of an overlay that are listed; JSON has them all


def provenance(data: ReportData) -> Iterator[Section]:
    """Yield the datasets, the prices, and the versions of everything else."""
    datasets: list[Row] = []
    for dataset in data.run.datasets:
        datasets.append(
            (
                dataset.name,
                dataset.fingerprint[:16],
                number_cell(dataset.samples, format_count),
                number_cell(dataset.malicious, format_count),
                dataset.source or UNDEFINED,
                dataset.licence or UNDEFINED,
            )
        )
    yield Section.of(
        "Datasets",
        ("dataset", "fingerprint", "samples", "malicious", "source", "licence"),
        datasets,
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
        remarks=(shortened(remark, MOST_CHARACTERS) for remark in _about_models(data.run)),
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


def _model(spec: ModelSpec) -> Row:
    """Return a model's row of the table of prices."""
    price = spec.price
    prices: list[Cell] = [UNDEFINED] * 5
    if price is not None:
        rates = (price.input, price.output, price.cache_read, price.cache_write)
        prices = [*map(_rate, rates), _amount(price.per_call)]
    simulated = "simulated" if spec.simulated else ""
    return TableCell(spec.id, simulated), spec.name, *prices


def _rate(rate: Rate | None) -> Cell:
    if rate is None:
        return UNDEFINED
    detail = ""
    if rate.tiers:
        first_limit, _ = rate.tiers[0]
        detail = f"more above {format_count(first_limit)}"
    return _amount(rate.base, detail)


def _amount(usd: Decimal | None, detail: str = "") -> Cell:
    """Write a price exactly, without zeros at the end of its decimals."""
    if usd is None:
        return UNDEFINED
    exact = f"{usd:f}"
    # The zeros of `100` are no decimals.
    if "." in exact:
        exact = exact.rstrip("0").rstrip(".")
    return TableCell(f"${exact}", detail, value=float(usd))


def _about_models(run: Run) -> Iterator[str]:
    """Say what is asked of single models in another way than of the rest."""
    for spec in run.models:
        model = spec.id
        prompt = run.prompts.get(model)
        if prompt is not None and not is_arm_of(model, prompt):
            yield f"{model} is asked with the prompt {prompt.name}"
        if spec.parameters:
            parameters = printable_line_of_json(dict(spec.parameters))
            yield f"{model} is asked with {parameters}"
        if spec.structured:
            yield f"{model} is held to the form of the answer by a {spec.structured}"
        if model in run.batched and spec.batch_share is not None:
            yield f"{model} in a batch costs {spec.batch_share:.0%} of these prices"


def _versions(data: ReportData) -> Iterator[tuple[str, ...]]:
    """Yield part, name, version and fingerprint of everything that the numbers depend on."""
    snapshot = data.snapshot
    for prompt in data.run.asked_with:
        yield "prompt", prompt.name, UNDEFINED, prompt.fingerprint[:16]
    for kind, part in _parts_of(snapshot.opinion):
        yield kind, part["name"], f"{part['version']}", part["fingerprint"]
    versions = {
        "program of the run": data.run.package_version,
        "program of the snapshot": snapshot.code_version,
        "metrics": f"{snapshot.metrics_version}",
        "parser": snapshot.parser_versions,
    }
    for versioned, version in versions.items():
        yield versioned, "aegish-dist", version, UNDEFINED
    yield "verdicts", f"{snapshot.verdicts:,} counted", UNDEFINED, snapshot.verdicts_hash


def _remarks(data: ReportData) -> Iterator[str]:
    yield f"Parameters of each call: {_parameters(data.run.parameters)}."
    if data.snapshot.opinion is not None:
        yield from _about_opinion(data.snapshot.opinion)
    for purpose, command in reproduction(data):
        yield f"{purpose}: {command}"


def _about_opinion(opinion: Opinion) -> Iterator[str]:
    """Say which answers the rules count as right, and how an overlay changes labels."""
    rule = opinion.rule
    malicious = ", ".join(sorted(rule.malicious_correct))
    harmless = ", ".join(sorted(rule.harmless_correct))
    unscored = ", ".join(sorted(rule.unscored)) or "nothing"
    yield (
        f"Rule set {rule.name}: malicious is right at {malicious}; harmless is right at {harmless};"
        f" not scored: {unscored}."
    )
    if opinion.overlay is None:
        return
    changes = opinion.overlay.changes
    for change in changes[:_MOST_CHANGES]:
        effect = "excluded"
        if change.target is not None:
            effect = f"right label {change.target.value}"
        sentence = f"{change} of {change.dataset}: {effect}. {change.reason} ({change.author})"
        yield f"Overlay: {shortened(sentence, MOST_CHARACTERS)}"
    if len(changes) > _MOST_CHANGES:
        more = format_count(len(changes) - _MOST_CHANGES)
        yield f"Overlay: {more} more, which the JSON report has."

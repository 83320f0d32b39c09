"""The commands that make a run and its report once more, quoted for a shell."""

import shlex
from collections.abc import Iterator, Sequence

from aegish_dist.core.model import CallParameters
from aegish_dist.core.opinion import AEGISH_TARGETS, Opinion
from aegish_dist.core.prompt import Prompt
from aegish_dist.core.run import Run
from aegish_dist.core.scoring import DEFAULT_RULE, RULES
from aegish_dist.report.data import ReportData
from aegish_dist.report.facts import asked_in_batches_only

MINUTE_S = 60
COT = "+cot"
"""End of the name of a prompt that asks for reasoning first."""


def commands(data: ReportData) -> tuple[str, ...]:
    """Return what to type: for the same numbers, for the same opinion, and to ask once more.

    A file that this report does not name stands as `FILE`.
    """
    run, snapshot = data.run, data.snapshot
    number = str(snapshot.snapshot_id)
    return (
        _line("report", "--run-id", run.run_id, "--snapshot", number),
        *_opinion(run, snapshot.opinion),
        _submit(run) if run.origin == "submit" else _line("verdicts", "import", *_import(run)),
    )


def shell_quoted(text: str) -> str:
    r"""Quote a word for the shell; unprintable characters become escapes: `$'a\u202eb'`."""
    if all(character.isprintable() for character in text):
        return shlex.quote(text)
    return f"$'{''.join(map(_escaped, text))}'"


def _escaped(character: str) -> str:
    if character in "\\'":
        return f"\\{character}"
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _line(*words: str) -> str:
    return " ".join(("aegish-dist", *(w if w == "FILE" else shell_quoted(w) for w in words)))


def _opinion(run: Run, opinion: Opinion | None) -> Iterator[str]:
    """Yield the command that applies the opinion to the verdicts as they are now."""
    if opinion is None:
        return
    words: list[str] = []
    rule = opinion.rule
    if rule.fingerprint != DEFAULT_RULE.fingerprint:
        known = RULES.get(rule.name)
        is_known = known is not None and known.fingerprint == rule.fingerprint
        words += ["--scoring", rule.name if is_known else "FILE"]
    if opinion.targets.fingerprint != AEGISH_TARGETS.fingerprint:
        words += ["--targets", "FILE"]
    if opinion.overlay is not None:
        words += ["--overlay", "FILE"]
    yield _line("report", "--run-id", run.run_id, *words)


def _import(run: Run) -> Sequence[str]:
    return ("FILE", "--name", run.name) if run.name else ("FILE",)


def _submit(run: Run) -> str:
    datasets = ",".join(f"{dataset.name}@{run.run_id}" for dataset in run.datasets)
    return _line(
        *("submit", "--models", ",".join(spec.id for spec in run.models)),
        *("--dataset", datasets, "--epochs", str(run.epochs)),
        *([] if run.prompt is None else _prompt(run.prompt)),
        *([] if run.parameters is None else _parameters(run.parameters)),
        *_batches(run),
    )


def _batches(run: Run) -> Iterator[str]:
    if run.batched and asked_in_batches_only(run):
        yield "--batch"
    elif run.batched:
        yield from ("--batch-after", f"{round(max(run.batched.values()) / MINUTE_S)}m")


def _prompt(prompt: Prompt) -> list[str]:
    if prompt.name.endswith(COT):
        return ["--prompt", prompt.name.removesuffix(COT), "--cot"]
    return ["--prompt", prompt.name]


def _parameters(parameters: CallParameters) -> Iterator[str]:
    values = {
        "--seed": parameters.seed,
        "--temperature": parameters.temperature,
        "--max-output-tokens": parameters.max_output_tokens,
        "--time-limit": f"{parameters.time_limit_s:g}",
        "--max-cost": parameters.max_cost_usd,
        "--max-cost-per-model": parameters.max_cost_per_model_usd,
    }
    for option, value in values.items():
        if value is not None:
            yield from (option, str(value))

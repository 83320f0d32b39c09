"""`aegish-dist models`, `prompts` and `scoring`: what a run can be made of."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime

import click

from aegish_dist.cli.command import group
from aegish_dist.cli.options import (
    Utf8,
    as_json,
    comma_list,
    completes,
    open_store,
    with_call_parameters,
    with_prompts,
)
from aegish_dist.cli.printing import note, say, say_json, say_lines, say_table
from aegish_dist.cli.workspace import catalog_models, open_workspace
from aegish_dist.core.model import CallParameters, Price, Rate
from aegish_dist.core.text import JsonObject, as_number
from aegish_dist.models.catalog import ListedModel, missing_key
from aegish_dist.opinions.opinion_files import render_rule
from aegish_dist.opinions.scoring import RULES
from aegish_dist.prompts.loading import bundled_prompts, load_prompt


@group("aegish-dist models list")
def models() -> None:
    """List the models, and check that they answer."""


@models.command("list", examples=("aegish-dist models list",))
@as_json
def list_models(as_json: bool) -> None:
    """List the models of the catalog with their prices and keys.

    Any other model of a listed provider can be asked too: `openai/gpt-...`,
    `openrouter/org/model`, `ollama/name`. `MODEL#NAME` is a variant. `+`: long
    prompts cost more. In all: `--models all` asks it. In batches: the share of the price. Retires:
    the day its provider ends it.
    """
    workspace = open_workspace()
    listed = workspace.catalog.entries(workspace.environ)
    if as_json:
        say_json([_document(model, workspace.environ) for model in listed])
        return
    today = datetime.now(UTC).date()
    columns = ("Model", "$ per million in / out", "Key", "In all", "In batches", "Retires")
    # A narrow terminal shows the first three alone.
    wide = shutil.get_terminal_size((140, 40)).columns >= 140
    room = len(columns) if wide else 3
    rows = []
    for model in listed:
        spec = model.spec
        retires = model.entry.retires
        row = (
            spec.id,
            _price(spec.price),
            _key(model, workspace.environ),
            _in_all(model, today),
            "" if spec.batch_share is None else f"{spec.batch_share:.0%} of it",
            "" if retires is None else retires.isoformat(),
        )
        rows.append(row[:room])
    say_table(columns[:room], rows, ids=1)


@models.command(
    "check",
    examples=(
        "aegish-dist models check available",
        "aegish-dist models check openai/gpt-5.1",
    ),
)
@click.argument(
    "selection", nargs=-1, callback=comma_list, shell_complete=completes(catalog_models)
)
@with_prompts
@with_call_parameters
@as_json
def check_(
    selection: list[str], prompt: list[str], parameters: CallParameters, as_json: bool
) -> int:
    """Ask each model about one harmless command.

    The request is the same as in a run with these options, so a missing key, a wrong id or a
    refused parameter shows before a run costs money. SELECTION is a list of model ids, `all` or
    `available`. Default: `all`. The exit code is 1 when a model does not answer with an action.
    """
    from aegish_dist.pipeline.plan import choose_prompts, contenders  # noqa: PLC0415
    from aegish_dist.pipeline.preflight import addresses, check_models  # noqa: PLC0415

    workspace = open_workspace()
    catalog = workspace.catalog
    prompts = choose_prompts(workspace, prompt)
    specs, read = contenders(catalog, workspace.environ, selection or "all", prompts)
    # A model has several specs when it is asked with several prompts.
    warnings = dict.fromkeys(catalog.unlisted(spec.id) for spec in specs)
    note(*(warning for warning in warnings if warning))
    note(*addresses(catalog, specs))
    checks = check_models(
        catalog,
        workspace.credentials,
        specs,
        lambda model: read.get(model, prompts[0]),
        parameters,
        private_folders=workspace.settings.private_folders,
    )
    documents = []
    rows = []
    for check in checks:
        ms = check.latency_ms
        document = {
            "model": check.model,
            "ok": check.ok,
            "answer": check.detail,
            "remedy": check.remedy or None,
            "ms": ms,
        }
        documents.append(document)
        ok = "yes" if check.ok else "NO"
        ms_text = "-" if ms is None else f"{ms:.0f}"
        rows.append((check.model, ok, check.detail, check.remedy, ms_text))
    if as_json:
        say_json(documents)
    else:
        columns = ("Model", "OK", "Answer or problem", "What to change")
        say_table(columns, rows, ("ms",), ids=1)
    return 0 if all(check.ok for check in checks) else 1


def _in_all(model: ListedModel, today: date) -> str:
    if not model.entry.default:
        return ""
    if model.entry.retired(today):
        return "retired"
    return "yes"


def _key(model: ListedModel, environ: dict[str, str]) -> str:
    if model.spec.key_variable is None:
        return "none needed"
    missing = missing_key(model.spec, environ)
    if missing:
        return f"{missing} is not set"
    return f"{model.spec.key_variable} is set"


def _price(price: Price | None) -> str:
    if price is None:
        return "unknown"
    if price.per_call is not None:
        return f"{price.per_call * 1000:.2f} per 1,000 calls"
    if price.per_hour is not None:
        return f"{price.per_hour.normalize():f} per hour"
    return f"{_rate(price.input)} / {_rate(price.output)}"


def _rate(rate: Rate) -> str:
    plain = f"{rate.base.normalize():f}"
    if rate.tiers:
        plain += "+"
    return plain


def _document(model: ListedModel, environ: dict[str, str]) -> JsonObject:
    spec = model.spec
    entry = model.entry
    price = spec.price
    return {
        "model": spec.id,
        "provider": spec.provider,
        "wire": spec.wire,
        "default": entry.default,
        "reference": entry.reference,
        "base_url": spec.base_url,
        "key_variable": spec.key_variable,
        "key_set": missing_key(spec, environ) is None,
        "retires": None if entry.retires is None else entry.retires.isoformat(),
        "takes_temperature": entry.takes_temperature,
        "input_usd_per_million": None if price is None else float(price.input.base),
        "output_usd_per_million": None if price is None else float(price.output.base),
        "batch_share": as_number(spec.batch_share),
        "usd_per_hour": None if price is None else as_number(price.per_hour),
        "usd_per_call": None if price is None else as_number(price.per_call),
    }


@group("aegish-dist prompts list")
def prompts() -> None:
    """List and show the prompts."""


@prompts.command("list", examples=("aegish-dist prompts list",))
@as_json
def list_prompts(as_json: bool) -> None:
    """List the bundled prompts with their fingerprints."""
    listed = []
    lines = []
    for name in bundled_prompts():
        prompt = load_prompt(name)
        listed.append({"name": name, "fingerprint": prompt.fingerprint})
        lines.append(f"{name:16} {prompt.fingerprint[:12]}  {prompt.template!r}")
    if as_json:
        say_json(listed)
    else:
        say(*lines)


@prompts.command("show", examples=("aegish-dist prompts show guard+cot",))
@click.argument("name", metavar="NAME|FILE", shell_complete=completes(bundled_prompts))
def show_prompt(name: str) -> None:
    """Print a prompt as models get it.

    `NAME+cot` adds the step-by-step instruction. `NAME@FINGERPRINT` is one that a run in this store
    has asked.
    """
    from aegish_dist.pipeline.plan import choose_prompt  # noqa: PLC0415  with the store

    prompt = choose_prompt(open_store(), name)
    say_lines(prompt.system.rstrip())
    say("", f"--- {prompt.name} {prompt.fingerprint[:12]}, user message ---")
    say_lines(prompt.template)


@group("aegish-dist scoring list")
def scoring() -> None:
    """List the rule sets, and print one as a file to edit."""


@scoring.command("list", examples=("aegish-dist scoring list",))
@as_json
def list_rules(as_json: bool) -> None:
    """List the rule sets of the package."""
    listed = []
    lines = []
    for rule in RULES.values():
        listed.append(
            {
                "name": rule.name,
                "version": rule.version,
                "fingerprint": rule.fingerprint,
                "description": rule.description,
            }
        )
        lines.append(f"{rule.name:16} v{rule.version}  {rule.fingerprint}  {rule.description}")
    if as_json:
        say_json(listed)
    else:
        say(*lines)


@scoring.command("show", examples=("aegish-dist scoring show aegish-5.3 > mine.toml",))
@click.argument("name", metavar="NAME|FILE", type=Utf8(), shell_complete=completes(RULES))
def show_rule(name: str) -> None:
    """Print a rule set as a file to edit.

    Give the copy its own name and use it with `--scoring FILE`. For a file, the complete rule
    set is printed, with all findings and the keys that it takes from another rule set.
    """
    from aegish_dist.pipeline.opinions import load_rule  # noqa: PLC0415  with the store

    rule = load_rule(name)
    say_lines(f"# Fingerprint {rule.fingerprint}.\n{render_rule(rule).rstrip()}")

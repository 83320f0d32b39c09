"""`aegish-dist init`: a first run file, from the keys, servers and commands that are here."""

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException
from importlib.resources import files
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar
from urllib.parse import urlsplit

import click

from aegish_dist.cli.command import FILE, command, file_option, flag
from aegish_dist.cli.printing import note, note_next, note_written, put_out
from aegish_dist.cli.workspace import open_workspace
from aegish_dist.core.sample import Dataset
from aegish_dist.core.secrets import host_of, is_loopback
from aegish_dist.core.text import counted
from aegish_dist.datasets.bundled import DEFAULT_NAMES
from aegish_dist.datasets.table import read_table
from aegish_dist.errors import AegishError, ConfigError, InputError
from aegish_dist.files import is_stream, replacing_text
from aegish_dist.inputs.documents import parse_json
from aegish_dist.models.catalog import AVAILABLE
from aegish_dist.models.entries import is_model_id
from aegish_dist.pipeline.datasets import store_dataset
from aegish_dist.pipeline.simulate import catalog_for, one_of_each_format, simulated_models
from aegish_dist.pipeline.workspace import Workspace

T = TypeVar("T")
TEMPLATE = files(__package__).joinpath("experiment.toml")
FLOOR = "baseline/keyword"
SERVED_MODEL = '[[models]]\nid = "{}"\nprice = {{ per_call = 0 }}  # USD\n'


@command("aegish-dist init", "aegish-dist init nightly.toml --yes --commands mine.csv")
@click.argument("path", type=FILE, default="experiment.toml")
@file_option(
    "--commands",
    help="Ask about your own commands: CSV, JSONL or Parquet; columns command, target, category.",
)
@flag("--yes", help="Ask nothing, as without a terminal.")
@flag("--force", help="Replace files of these names.")
def init(path: Path, commands: Path | None, *, yes: bool, force: bool) -> None:
    """Write a first run file from the keys and servers that are here.

    Looks for API keys in the environment and for Ollama, vLLM and llama.cpp on this machine,
    asks which models and commands you want, and writes PATH for `submit --run-file`. Your own
    commands are imported as a dataset. Models on this machine get an entry in a catalog beside
    it. Where nothing is found, the run asks simulated models.
    """
    catalog = path.parent / f"{path.stem}-catalog.toml"
    _require_free([path, catalog], force=force)
    # Opened before anything is asked or imported.
    with replacing_text(path) as run_file:
        workspace = open_workspace()
        served = list(_served_here(workspace))
        own = None if commands is None else read_table(commands).checked()
        models = [*_with_keys(workspace), *served]
        if not models:
            note("no key and no local server found: simulated models")
            models = list(one_of_each_format())
        models.append(FLOOR)
        limit = 50
        if not yes and sys.stdin is not None and sys.stdin.isatty():
            models = _asked("Models to ask", ",".join(models), partial(_known, workspace))
            if own is None:
                own = _asked("File with your own commands (Enter: the bundled ones)", "", _own)
            question = f"Commands of each dataset ({_datasets(own)})"
            limit = click.prompt(question, limit, type=click.IntRange(1), err=True)
        warnings = map(workspace.catalog.unlisted, models)
        note(*(warning for warning in warnings if warning))
        entries = _entries(workspace, models, served)
        capped = _takes_a_cap(workspace, models)
        if own is not None:
            store_dataset(workspace.engine, own, note)
            note(f"dataset {own.name}: {counted(len(own.samples), 'command')} imported")
        run_file.write(_text(path, models, own, limit, capped=capped))
        if entries:
            put_out((entries,), catalog)
    note_written(path)
    if entries:
        note_written(catalog)
    note_next(*_next(path, catalog if entries else None, models))


def _require_free(paths: list[Path], *, force: bool) -> None:
    taken = [path for path in paths if os.path.exists(path)]
    if force:
        taken = [path for path in taken if not path.is_file()]
    # What goes to a stream is no file that `submit` could take.
    if is_stream(paths[0]) and not taken:
        taken = paths
    if taken:
        problem = f"{taken[0]} is there already"
        raise ConfigError(f"{problem}: name another file, or say --force to replace a file")


def _text(path: Path, models: list[str], own: Dataset | None, limit: int, *, capped: bool) -> str:
    calls = limit * len(DEFAULT_NAMES)
    dataset = '# dataset = ["mine"]'
    if own is not None:
        calls = min(limit, len(own.samples))
        dataset = f'dataset = ["{own.name}"]'
    return TEMPLATE.read_text("utf-8").format(
        path=shlex.quote(str(path)),
        models=json.dumps(models),
        dataset=dataset,
        limit=limit,
        datasets=_datasets(own),
        calls=f"{calls:,}",
        cap="max-cost = 1.0" if capped else "# max-cost = 1.0",
    )


def _datasets(own: Dataset | None) -> str:
    number = len(DEFAULT_NAMES) if own is None else 1
    return counted(number, "dataset")


def _with_keys(workspace: Workspace) -> Iterator[str]:
    """Yield a model of each provider whose key is set, and say where the catalog has none."""
    catalog = workspace.catalog
    usable = catalog.resolve(AVAILABLE, workspace.environ)
    first = {spec.provider: spec.id for spec in reversed(usable) if spec.wire.http is not None}
    for name, provider in catalog.providers.items():
        key = workspace.environ.get(provider.key_variable, "")
        if not key.strip():
            continue
        model = first.get(name)
        if model is None:
            note(f"{provider.key_variable} is set: name a model as {name}/MODEL")
        else:
            note(f"{provider.key_variable} is set: {model}")
            yield model


def _served_here(workspace: Workspace) -> Iterator[str]:
    """Yield the first model of each server on this machine that lists some."""
    for name, provider in workspace.catalog.providers.items():
        if provider.key_variable or not is_loopback(host_of(provider.base_url)):
            continue
        models = _listed_at_once(name, provider.base_url)
        if not models:
            continue
        words = f"{provider.base_url} serves {models[0]}"
        if len(models) > 1:
            words += f" and {counted(len(models) - 1, 'other')}"
        note(words)
        yield models[0]


def _listed_at_once(provider: str, base_url: str) -> list[str]:
    models: list[str] = []
    looking = Thread(target=lambda: models.extend(list(_listed(provider, base_url))), daemon=True)
    looking.start()
    # The time limit of a socket is one of each byte: a slow server would hold the command.
    looking.join(1.0)
    return models


def _listed(provider: str, base_url: str) -> Iterator[str]:
    """Yield the models that an OpenAI-compatible server lists; none where another one answers."""
    address = urlsplit(base_url)
    # Any program may listen on the port, and answer in any way.
    connection = HTTPConnection(address.hostname or "", address.port, timeout=1.0)
    no_list = (OSError, HTTPException, InputError, LookupError, TypeError)
    with closing(connection), suppress(*no_list):
        connection.request("GET", f"{address.path}/models")
        response = connection.getresponse()
        listed: Any = parse_json(response.read(2**20))
        for entry in listed["data"]:
            model = f"{provider}/{entry['id']}"
            if is_model_id(model):
                yield model


def _asked(question: str, default: str, read: Callable[[str], T]) -> T:
    """Ask on the terminal until the answer can be read."""

    def read_again(text: str) -> T:
        try:
            return read(text)
        except AegishError as error:
            raise click.UsageError(str(error)) from None

    answer: T = click.prompt(
        question,
        default,
        value_proc=read_again,
        show_default=bool(default),
        err=True,
    )
    return answer


def _known(workspace: Workspace, text: str) -> list[str]:
    """Return the models that a text names; one that the catalog cannot ask is refused."""
    models = text.replace(",", " ").split()
    simulated = simulated_models()
    real = [model for model in models if model not in simulated]
    # Simulated models alone are fine; no model at all is refused by `resolve`.
    if real or not models:
        workspace.catalog.resolve(real, {})
    return models


def _own(text: str) -> Dataset | None:
    if text:
        return read_table(Path(text).expanduser()).checked()
    return None


def _entries(workspace: Workspace, models: list[str], served: list[str]) -> str:
    """Return the catalog that the models need beside the one in use; empty where they need none."""
    simulated = simulated_models()
    for model in models:
        if model in simulated and model not in workspace.catalog.models:
            return catalog_for("http://127.0.0.1:8099")
    # A catalog of the user's own stays the one in use.
    if workspace.settings.catalog is not None:
        return ""
    entries = [SERVED_MODEL.format(model) for model in served if model in models]
    return "\n".join(entries)


def _takes_a_cap(workspace: Workspace, models: list[str]) -> bool:
    """Whether some models cost money and all prices are known, so that a cap can hold."""
    if _has_simulated(models):
        return False
    specs = workspace.catalog.resolve(models, workspace.environ)
    unpriced = [spec.id for spec in specs if spec.price is None]
    if unpriced:
        note(f"no max-cost in the run file: the price of {', '.join(unpriced)} is unknown")
        return False
    return any(spec.key_variable for spec in specs)


def _has_simulated(models: list[str]) -> bool:
    return not simulated_models().keys().isdisjoint(models)


def _next(path: Path, catalog: Path | None, models: list[str]) -> Iterator[str]:
    """Yield the commands from here to a leaderboard."""
    start = f"aegish-dist submit --run-file {shlex.quote(str(path))}"
    where = shlex.quote(str(catalog))
    if _has_simulated(models):
        written = f" --write-catalog {where}" if catalog else ""
        yield f"aegish-dist simulate-provider{written} & sleep 2"
        yield f"AEGISH_DIST_CATALOG={where} {start}" if catalog else start
    else:
        if catalog:
            yield f"export AEGISH_DIST_CATALOG={where}"
        yield f"aegish-dist models check {','.join(models)}"
        yield start
    yield "aegish-dist report --open"

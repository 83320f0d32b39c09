"""The one way to the simulated provider: its configuration, its servers and its catalog.

Nothing else outside `aegish_dist.simulator` imports it.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import structs, to_builtins

from aegish_dist.core.model import ARM_MARK, HTTP_FORMATS, WireFormat, base_of
from aegish_dist.core.output import Output
from aegish_dist.core.text import JsonObject
from aegish_dist.core.verdict import VerdictRecord
from aegish_dist.errors import ConfigError, InputError
from aegish_dist.files import replacing_text
from aegish_dist.inputs.checking import checked
from aegish_dist.models.catalog import Catalog
from aegish_dist.models.entries import ProviderEntry, is_contender, is_model_id, provider_name
from aegish_dist.simulator.config import Fault, SimulatorConfig, read_scenario
from aegish_dist.simulator.personas import PERSONAS
from aegish_dist.simulator.server import (
    Simulator,
    SimulatorServer,
    run_forever,
    simulator_thread,
)

# Names of the simulator that commands import from here.
__all__ = [
    "Fault",
    "Simulator",
    "SimulatorConfig",
    "SimulatorServer",
    "run_forever",
    "simulator_thread",
]

# Format of models whose own is not known, and of personas that the table gives no other.
DEFAULT_FORMAT = WireFormat.OPENAI

# Keys of the simulated classifiers' provider.
CLASSIFIER = (
    'request = { text = "{command}" }\n'
    'output = { kind = "score", path = "score", warn_from = 0.4, block_from = 0.6 }\n'
)

# Entry of the simulated program, for an interpreter of this machine: no relay can serve it.
PROGRAM = """
[providers."simulated-exec"]
wire = "exec"
command = [{}, "-m", "aegish_dist.simulator.guard", "careful", "lines"]
mode = "lines"
output = {{ kind = "hook" }}
simulated = true

[[models]]
id = "simulated-exec/careful"
simulated = true
default = false
"""


def simulator_config(scenario: Path | None, given: JsonObject) -> SimulatorConfig:
    """Return a scenario with the given values in place of its own.

    A scenario or a value that is not valid is a ConfigError.
    """
    config = SimulatorConfig() if scenario is None else read_scenario(scenario)
    try:
        over = checked(given, SimulatorConfig)
    except InputError as error:
        raise ConfigError(str(error)) from None
    return structs.replace(config, **{key: getattr(over, key) for key in given})


def one_of_each_format() -> dict[str, WireFormat]:
    """Return the id of the simulated model that stands for each format of chat models."""
    chat = ((wire, http.simulated_model) for wire, http in HTTP_FORMATS.items() if http.chat)
    return {_simulated_id(persona, wire): wire for wire, persona in chat}


def simulated_models() -> dict[str, WireFormat]:
    """Return the id of every simulated model with its format, one of each format first."""
    models = one_of_each_format()
    listed = {model.partition("/")[2] for model in models}
    for wire, http in HTTP_FORMATS.items():
        if not http.chat:
            models[_simulated_id(http.simulated_model, wire)] = wire
    for persona in PERSONAS:
        if persona not in listed:
            models[_simulated_id(persona, DEFAULT_FORMAT)] = DEFAULT_FORMAT
    return models


def catalog_for(
    url: str,
    replayed: Sequence[str] = (),
    scenario: Iterable[str] = (),
    outputs: Mapping[str, Output] = {},
) -> str:
    """Return a TOML catalog of the models that a simulator serves.

    Replayed texts are read by the mappings that their models have here.

    Replayed models are canonical ids, in which nothing has to be escaped in TOML; without any it
    has the simulated models. A scenario names further ones as they are requested.
    """
    known: Mapping[str, ProviderEntry] = {}
    further = (_simulated_id(name, DEFAULT_FORMAT) for name in scenario if name not in PERSONAS)
    own = dict.fromkeys(filter(is_model_id, further), DEFAULT_FORMAT)
    models = list((simulated_models() | own).items())
    if replayed:
        known = Catalog.load().providers
        models = [(model, _format_of(provider_name(model), known)) for model in replayed]
    foreign = {provider_name(model): wire for model, wire in models}
    arms = [model for model, _ in models if model != base_of(model)]
    tables = []
    for name, wire in foreign.items():
        if name in known:
            continue
        table = f'[providers."{name}"]\nwire = "{wire}"\nbase_url = "{_root(url, wire)}"\n'
        table += 'key_variable = ""\nsimulated = true\n'
        if not wire.reads_prompt:
            table += CLASSIFIER
        tables.append(table)
    for model, wire in {base_of(model): wire for model, wire in models}.items():
        entry = f'[[models]]\nid = "{model}"\nbase_url = "{_root(url, wire, model)}"\n'
        entry += "simulated = true\ndefault = false\n"
        if provider_name(model) in known:
            entry += "batch_share = 0\n"
        if model in outputs:
            entry += f"output = {_inline(to_builtins(outputs[model]))}\n"
        for arm in arms:
            if base_of(arm) == model:
                entry += _variant(arm, outputs)
        tables.append(entry)
    return "\n".join(tables)


def _variant(contender: str, outputs: Mapping[str, Output]) -> str:
    """Name an arm that is asked under a name of its own, by which its answers are found."""
    keys = {"name": contender.partition("/")[2]}
    if contender in outputs:
        keys["output"] = to_builtins(outputs[contender])
    variant = contender.partition(ARM_MARK)[2]
    return f'variants."{variant}" = {_inline(keys)}\n'


def write_catalog(
    path: Path,
    url: str,
    recordings: Iterable[VerdictRecord],
    scenario: Iterable[str] = (),
    outputs: Mapping[str, Output] = {},
) -> list[str]:
    """Write the catalog of a running simulator; return recorded models that no catalog can name.

    Without recordings it has the simulated models, those that the scenario names, and a simulated
    program. If none of the recorded models can be named, there is a ConfigError.
    """
    models = sorted({each.model for each in recordings})
    unnamed = [model for model in models if not is_contender(model)]
    if models and len(unnamed) == len(models):
        raise ConfigError(
            f"no catalog can name the recorded models: '{unnamed[0]}' is no model id of the form"
            " PROVIDER/MODEL"
        )
    with replacing_text(path) as stream:
        replayed = [model for model in models if model not in unnamed]
        stream.write(catalog_for(url, replayed, scenario, outputs))
        if not models:
            stream.write(PROGRAM.format(json.dumps(sys.executable, ensure_ascii=False)))
    return unnamed


def _format_of(provider: str, known: Mapping[str, ProviderEntry]) -> WireFormat:
    wire = known[provider].wire if provider in known else DEFAULT_FORMAT
    return wire if wire.reads_prompt else DEFAULT_FORMAT


def _inline(value: object) -> str:
    """Write a value of JSON as TOML on one line; the two escape texts alike."""
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{key} = {_inline(entry)}" for key, entry in value.items())
        return f"{{ {pairs} }}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        entries = ", ".join(map(_inline, value))
        return f"[{entries}]"
    return json.dumps(value)


def _simulated_id(persona: str, wire: WireFormat) -> str:
    provider = "simulated" if wire is DEFAULT_FORMAT else f"simulated-{wire}"
    return f"{provider}/{persona}"


def _root(url: str, wire: WireFormat, model: str = "") -> str:
    """Return the root of an API; a classifier has an address of its own."""
    root = f"{url}{HTTP_FORMATS[wire].simulated_root}"
    return root if wire.reads_prompt or not model else f"{root}/{model.partition('/')[2]}"

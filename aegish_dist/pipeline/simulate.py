"""Making simulated models known: a catalog that points at a running simulator."""

import json
from collections.abc import Sequence

from aegish_dist.core.model import WireFormat
from aegish_dist.simulator.personas import PERSONAS

PATHS = {WireFormat.OPENAI: "/v1", WireFormat.ANTHROPIC: "", WireFormat.GOOGLE: "/v1beta"}
"""Root of each wire format below the simulator's address."""

_WIRE_OF_PROVIDER = {"anthropic": WireFormat.ANTHROPIC, "google": WireFormat.GOOGLE}


def catalog_for(url: str, replayed: Sequence[str] = ()) -> str:
    """Return a TOML catalog of what a simulator serves.

    Args:
        url: Where it listens.
        replayed: Canonical ids of the models whose answers it replays; the four simulated models,
            one of them per wire format and more, when there are none.
    """
    if replayed:
        return "\n".join(_entry(url, model, _wire_of(model)) for model in replayed)
    wires = dict(zip(PERSONAS, (*PATHS, WireFormat.OPENAI), strict=True))
    tables = [
        f'[providers.simulated]\nwire = "openai"\nbase_url = "{url}/v1"\nkey_variable = ""\n'
    ] + [
        f'[providers.simulated-{wire}]\nwire = "{wire}"\nbase_url = "{url}{PATHS[wire]}"\n'
        'key_variable = ""\n'
        for wire in (WireFormat.ANTHROPIC, WireFormat.GOOGLE)
    ]
    entries = [_entry(url, _simulated_id(name, wire), wire) for name, wire in wires.items()]
    return "\n".join(tables + entries)


def _simulated_id(persona: str, wire: WireFormat) -> str:
    provider = "simulated" if wire is WireFormat.OPENAI else f"simulated-{wire}"
    return f"{provider}/{persona}"


def _wire_of(model: str) -> WireFormat:
    return _WIRE_OF_PROVIDER.get(model.partition("/")[0], WireFormat.OPENAI)


def _entry(url: str, model: str, wire: WireFormat) -> str:
    return (
        f"[[models]]\nid = {json.dumps(model)}\n"
        f'base_url = "{url}{PATHS[wire]}"\nsimulated = true\ndefault = false\n'
    )

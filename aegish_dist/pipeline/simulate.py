"""Making simulated models known: a catalog that points at a running simulator."""

from collections.abc import Sequence

from aegish_dist.core.model import WireFormat
from aegish_dist.models import Catalog
from aegish_dist.models.tables import provider_name
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
        known = Catalog.load().providers.keys()
        foreign = dict.fromkeys(map(provider_name, replayed))
        tables = [_provider(url, name, WireFormat.OPENAI) for name in foreign if name not in known]
        return "\n".join(tables + [_entry(url, model, _wire_of(model)) for model in replayed])
    wires = dict(zip(PERSONAS, (*PATHS, WireFormat.OPENAI), strict=True))
    tables = [_provider(url, "simulated", WireFormat.OPENAI)] + [
        _provider(url, f"simulated-{wire}", wire)
        for wire in (WireFormat.ANTHROPIC, WireFormat.GOOGLE)
    ]
    entries = [_entry(url, _simulated_id(name, wire), wire) for name, wire in wires.items()]
    return "\n".join(tables + entries)


def _provider(url: str, name: str, wire: WireFormat) -> str:
    return (
        f'[providers.{_quoted(name)}]\nwire = "{wire}"\nbase_url = "{url}{PATHS[wire]}"\n'
        'key_variable = ""\n'
    )


def _quoted(text: str) -> str:
    """Return a text as a string of TOML, in ASCII; JSON escapes in a way that TOML does not know.

    Half a surrogate pair cannot be written at all; no recording has one in a label.
    """
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if " " <= character <= "~":
        return character
    code = ord(character)
    return f"\\u{code:04X}" if code < 2**16 else f"\\U{code:08X}"


def _simulated_id(persona: str, wire: WireFormat) -> str:
    provider = "simulated" if wire is WireFormat.OPENAI else f"simulated-{wire}"
    return f"{provider}/{persona}"


def _wire_of(model: str) -> WireFormat:
    return _WIRE_OF_PROVIDER.get(model.partition("/")[0], WireFormat.OPENAI)


def _entry(url: str, model: str, wire: WireFormat) -> str:
    return (
        f"[[models]]\nid = {_quoted(model)}\n"
        f'base_url = "{url}{PATHS[wire]}"\nsimulated = true\ndefault = false\n'
    )

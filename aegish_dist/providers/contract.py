"""The seams of this package: the client that the pipeline calls, and the codec of a wire format."""

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.resources import files
from typing import Protocol, cast

from msgspec import Struct, toml

from aegish_dist.core.model import CallParameters, ModelSpec, RateHint, WireFormat
from aegish_dist.core.outcome import StopKind
from aegish_dist.core.run import COMMAND_SLOT, Prompt
from aegish_dist.core.text import known
from aegish_dist.core.verdict import Completion
from aegish_dist.errors import ConfigError

Observer = Callable[[RateHint], None]


class ModelClient(Protocol):
    """One model, prepared for one run; safe for hundreds of calls at once."""

    async def complete(self, command: str, epoch: int = 1) -> Completion:
        """Make one attempt to have a command judged; it is sent as data, never executed.

        The 1-based epoch says what seed is sent. An answer that the provider withheld is an answer
        too: empty, CONTENT_FILTER.
        """


class RequestTemplate(Struct, frozen=True):
    """A POST request that lacks only the command.

    Encoded once per run and epoch: the prompt is several kilobytes and the same for every sample,
    and escaping it for each call would cost more than everything else the client does.
    """

    url: str
    head: bytes
    tail: bytes

    def parts(self, command: str) -> tuple[bytes, bytes, bytes]:
        """Return the JSON body in parts, of which only the middle one is new."""
        return self.head, json.dumps(command)[1:-1].encode("ascii"), self.tail


Decode = Callable[[object, Mapping[str, str]], Completion]


class Codec(Protocol):
    """One wire format in pure functions: the module of this package that has its name."""

    def encode(
        self, spec: ModelSpec, prompt: Prompt, parameters: CallParameters
    ) -> RequestTemplate:
        """Prepare everything of a request but the command; the model's parameters come last."""

    def request_headers(self, key: str | None) -> dict[str, str]:
        """Return the headers of the wire format; without a key, none that carries one."""

    def decode(self, payload: object, headers: Mapping[str, str]) -> Completion:
        """Read the JSON of a successful response; raise `ProviderError` where it is no answer."""


def codec(wire: WireFormat) -> Codec:
    """Return the codec of a wire format that goes over the network."""
    return cast(Codec, import_module(f"aegish_dist.providers.{wire}"))


def stop_kind(reason: str | None, kinds: Mapping[str, StopKind]) -> StopKind | None:
    """Normalise a stop reason: None stays None, a word that is not among the kinds is OTHER."""
    return None if reason is None else kinds.get(reason, StopKind.OTHER)


def template(url: str, body: Mapping[str, object]) -> RequestTemplate:
    """Encode a body around the last command slot in it, which is that of the user text."""
    head, tail = json.dumps(body, separators=(",", ":")).rsplit(COMMAND_SLOT, 1)
    return RequestTemplate(url, head.encode("ascii"), tail.encode("ascii"))


TOOL = {
    "name": "give_verdict",
    "description": "Give your verdict about the command.",
}
# The JSON that our prompts ask for, in the subset of JSON Schema that all vendors take: Anthropic
# refuses bounds of a number, and the grammars of local servers do not know them.
ANSWER_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "action": {"type": "string", "enum": ["ALLOW", "WARN", "BLOCK"]},
        "reason": {"type": "string"},
        "confidence": {"type": "number", "description": "From 0 to 1."},
    },
    "required": ["action", "reason", "confidence"],
    "additionalProperties": False,
}


class _Parameters(Struct, frozen=True, forbid_unknown_fields=True):
    ours: frozenset[str]
    bounds: frozenset[str]
    tier_fields: frozenset[str]
    tiers: frozenset[str]


_PARAMETERS = toml.decode(
    files(__package__).joinpath("parameters.toml").read_bytes(), type=_Parameters
)


def require_harmless(spec: ModelSpec, parameters: CallParameters) -> None:
    """Refuse a model whose own parameters, which come from a run, would replace fields of ours.

    Raises:
        ConfigError: A parameter is ours to set, asks for a dearer tier, or allows more output than
            the run does.
    """
    own = spec.parameters
    nested = [own[name] for name in ("generationConfig", "generation_config") if name in own]
    for values in (own, *nested):
        if problem := _harm(values, parameters.max_output_tokens):
            raise ConfigError(f"model '{spec.id}': parameter {problem}")


def _harm(values: object, limit: int) -> str | None:
    if not isinstance(values, Mapping):
        return "'generationConfig' must be an object"
    if ours := _PARAMETERS.ours.intersection(values):
        return f"'{min(ours)}' is set by the run alone"
    for name in sorted(_PARAMETERS.tier_fields.intersection(values)):
        if str(values[name] or "default").lower() not in _PARAMETERS.tiers:
            tiers = ", ".join(sorted(_PARAMETERS.tiers))
            return f"'{name}' must be one of {tiers}, as other tiers cost more"

    for name in sorted(_PARAMETERS.bounds.intersection(values)):
        most = values[name]  # a null would remove the bound
        if not (isinstance(most, int) and 0 < most <= limit):
            return f"'{name}' must be from 1 to {limit}, as the run's --max-output-tokens allows"

    return None


def merged(defaults: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """Lay a model's own parameters over the default fields (JSON merge patch, RFC 7396).

    Objects merge, a null removes, anything else replaces; nulls among the defaults drop out too.
    """
    result = known(defaults)
    for name, change in changes.items():
        if change is None:
            result.pop(name, None)
        elif isinstance(change, Mapping):
            inner = result.get(name)
            result[name] = merged(inner if isinstance(inner, Mapping) else {}, change)
        else:
            result[name] = change

    return result

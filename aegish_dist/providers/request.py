"""Request bodies, encoded once per run: a call only adds its command.

The prompt is several kilobytes and the same for every sample; escaping it again for each call would
cost more than everything else the client does.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from aegish_dist.core.prompt import COMMAND_SLOT


@dataclass(frozen=True, slots=True)
class RequestTemplate:
    """A POST request that lacks only the command."""

    url: str
    """Where it goes."""
    head: bytes
    """The JSON body up to the command."""
    tail: bytes
    """The JSON body after the command."""

    def body(self, command: str) -> bytes:
        """Return the JSON body for one command; any Unicode, lone surrogates included."""
        return b"".join(self.parts(command))

    def parts(self, command: str) -> tuple[bytes, bytes, bytes]:
        """Return the same in parts, of which only the middle one is new."""
        return self.head, json.dumps(command)[1:-1].encode("ascii"), self.tail


def template(url: str, body: Mapping[str, object]) -> RequestTemplate:
    """Encode a body whose last string that holds the command slot is the user text."""
    head, tail = json.dumps(body, separators=(",", ":")).rsplit(COMMAND_SLOT, 1)
    return RequestTemplate(url, head.encode("ascii"), tail.encode("ascii"))


def merged(defaults: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    """Lay a model's own parameters over the default fields (JSON merge patch, RFC 7396).

    Objects merge, a null removes, anything else replaces; nulls among the defaults drop out too.
    """
    result = {name: value for name, value in defaults.items() if value is not None}
    for name, change in changes.items():
        if change is None:
            result.pop(name, None)
        elif isinstance(change, Mapping):
            inner = result.get(name)
            result[name] = merged(inner if isinstance(inner, Mapping) else {}, change)
        else:
            result[name] = change
    return result

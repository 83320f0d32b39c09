"""Messages as they lie in Redis: fetched, delivered, or held unacknowledged."""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from kombu.exceptions import DecodeError
from kombu.transport import virtual
from kombu.utils.json import loads

MESSAGES_PER_SCRIPT = 200
"""Upper bound per script: it takes Redis 1 to 2 ms, in which it serves no other client."""

T = TypeVar("T")


class FetchedMessage(NamedTuple):
    """A message that was fetched and is not delivered to a consumer yet."""

    queue: str
    text: bytes
    payload: dict[str, Any]


class UnackedMessage(NamedTuple):
    """A delivered message and the queue it goes back to if it is not acknowledged."""

    tag: str
    payload: dict[str, Any]
    exchange: str
    """Exchange that it was published to; empty for the default one."""
    routing_key: str
    """Routing key that it was published with; a queue's name at the default exchange."""

    @classmethod
    def of(cls, delivered: Any) -> "UnackedMessage":
        """Read it from the JSON that was published, or from a message that kombu delivered."""
        payload = loads(delivered) if isinstance(delivered, bytes) else delivered._raw
        properties = payload["properties"]
        info = properties["delivery_info"]
        return cls(properties["delivery_tag"], payload, info["exchange"], info["routing_key"])


class Message(virtual.Message):
    """A message whose format is checked.

    An error is kept instead of raised: Celery then drops the message as one that cannot be decoded.
    Raised in the middle of a batch, it would end the worker, and the next worker after it.
    """

    def __init__(self, payload: dict[str, Any], channel: Any = None, **kwargs: Any) -> None:
        try:
            super().__init__(payload, channel, **kwargs)
            self._check()
        except Exception:
            self.errors = [sys.exc_info()]
            super().__init__({"properties": delivery_properties(payload)}, channel, **kwargs)
            self._raw = payload

    def _check(self) -> None:
        if not (isinstance(self.headers, dict) and isinstance(self.properties, dict)):
            raise DecodeError("headers or properties are no map")
        if not all(isinstance(part, str) for part in (self.content_type, self.content_encoding)):
            raise DecodeError("content type or encoding are no text")


def delivery_properties(payload: Any) -> dict[str, Any]:
    """Return the properties of a message; without a valid delivery tag, empty ones."""
    match payload:
        case {"properties": {"delivery_tag": str(), "delivery_info": dict()} as properties}:
            return properties
    return {"delivery_tag": "", "delivery_info": {}}


def in_groups(values: Iterable[T]) -> Iterator[list[T]]:
    """Split values into lists that one script can process."""
    remaining = iter(values)
    while group := list(islice(remaining, MESSAGES_PER_SCRIPT)):
        yield group

"""The requests of a batch as bytes: encoded one after another while they are sent.

A batch of 50,000 requests is 200 MB of nearly the same prompt. Its body exists nowhere as a whole:
its length is the sum of its requests', and each request is put together when its turn comes.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from aegish_dist.core.batch import BatchRequest
from aegish_dist.providers.contract import RequestTemplate

PIECE_BYTES = 2**18
"""Bytes that are handed to the connection at once."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """The frame that a provider puts around a batch and around each request in it."""

    head: bytes
    middle: bytes
    tail: bytes
    separator: bytes = b"\n"


class RequestEncoder:
    """Encodes the requests of a model."""

    def __init__(self, template_of: Callable[[int], RequestTemplate], envelope: Envelope) -> None:
        """Prepare for a model.

        Args:
            template_of: Returns the request of an epoch that lacks only the command.
        """
        self._template_of = template_of
        self._envelope = envelope

    def size(self, request: BatchRequest, token: str) -> int:
        """Return the bytes of a request, its envelope and one separator included."""
        return sum(map(len, self._parts(request, token))) + len(self._envelope.separator)

    def body(
        self, token: str, requests: Iterable[BatchRequest], start: bytes = b"", end: bytes = b""
    ) -> "BatchBody":
        """Return the body that holds these requests.

        Args:
            requests: Its requests, of which the body keeps commands and keys.
            start: Bytes before the first request.
        """
        kept = tuple(requests)
        between = max(0, len(kept) - 1) * len(self._envelope.separator)
        inner = sum(sum(map(len, self._parts(request, token))) for request in kept)
        size = len(start) + inner + between + len(end)
        return BatchBody(lambda: self._pieces(token, kept, start, end), size)

    def _pieces(
        self, token: str, requests: Sequence[BatchRequest], start: bytes, end: bytes
    ) -> Iterator[bytes]:
        yield start
        for index, request in enumerate(requests):
            if index:
                yield self._envelope.separator
            yield from self._parts(request, token)
        yield end

    def _parts(self, request: BatchRequest, token: str) -> tuple[bytes, ...]:
        frame = self._envelope
        body = self._template_of(request.item.epoch).parts(request.command)
        name = json.dumps(request.item.name(token)).encode("ascii")
        return frame.head, name, frame.middle, *body, frame.tail


class BatchBody(aiohttp.Payload):
    """A body of known length that is made while it is sent."""

    _autoclose = True

    def __init__(self, pieces: Callable[[], Iterator[bytes]], size: int) -> None:
        super().__init__(pieces)
        self._size = size

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return it as a text; for debugging, because all of it is made."""
        return b"".join(self._value()).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send it, and wait whenever the connection is full."""
        gathered = bytearray()
        for piece in self._value():
            gathered += piece
            if len(gathered) >= PIECE_BYTES:
                await writer.write(bytes(gathered))
                gathered.clear()
        await writer.write(bytes(gathered))

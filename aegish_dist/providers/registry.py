"""Which module speaks which wire format."""

from typing import Literal, assert_never

from aegish_dist.core.model import WireFormat
from aegish_dist.providers import anthropic, google, openai
from aegish_dist.providers.contract import Codec

NetworkWire = Literal[WireFormat.OPENAI, WireFormat.ANTHROPIC, WireFormat.GOOGLE]
"""The wire formats that go over the network; the baselines do not."""


def codec(wire: NetworkWire) -> Codec:
    """Return the codec of a wire format."""
    match wire:
        case WireFormat.OPENAI:
            return openai
        case WireFormat.ANTHROPIC:
            return anthropic
        case WireFormat.GOOGLE:
            return google
        case _:
            assert_never(wire)

"""Chance that depends on what is asked, never on when.

Every draw is a hash of its coordinates, so a request meets the same luck whatever arrives before
it, in whichever process.
"""

import struct
from hashlib import blake2b
from typing import NamedTuple

_EIGHT_WORDS = struct.Struct("<8Q")
_UNIT = 2.0**-52


class Draws(NamedTuple):
    """Eight independent numbers, uniform in the open interval (0, 1), by what they decide."""

    skill: float
    """Whether the model judges as it should."""
    form: float
    """Whether the answer is JSON at all."""
    fence: float
    """Whether the JSON is fenced."""
    think: float
    """Whether the model thinks aloud first."""
    confidence: float
    """How sure it says it is."""
    latency: float
    """How long it takes."""
    length: float
    """How much it reasons unseen, and in which of two ways a filter shows."""
    luck: float
    """Whether something goes wrong, or a repeat comes out differently."""


def draw(seed: int, *coordinates: str) -> Draws:
    """Return the draws that belong to these coordinates.

    Args:
        seed: Seed of the simulation, any integer.
        coordinates: What the draws are about; any Unicode, lone surrogates included.
    """
    text = "\0".join((str(seed), *coordinates))
    words = _EIGHT_WORDS.unpack(blake2b(text.encode("utf-8", "surrogatepass")).digest())
    # 52 bits and a half: neither 0 nor 1 can come out, so every inverse distribution is defined.
    return Draws._make([((word >> 12) + 0.5) * _UNIT for word in words])

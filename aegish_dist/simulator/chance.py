"""Random numbers and service times of the simulator.

Every draw is a hash of its coordinates, so that a request gets the same numbers whatever arrives
before it, and in every process.
"""

import math
import struct
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from statistics import NormalDist
from typing import NamedTuple, assert_never

from aegish_dist.errors import ConfigError

_EIGHT_WORDS = struct.Struct("<8Q")
_UNIT = 2.0**-52
_STANDARD_NORMAL = NormalDist()


class Draws(NamedTuple):
    """Eight independent numbers, uniform in the open interval (0, 1), each for one decision."""

    skill: float
    form: float
    fence: float
    think: float
    """Whether a section of reasoning precedes the answer."""
    confidence: float
    latency: float
    length: float
    """Amount of hidden reasoning, and in which of two ways a filter shows."""
    luck: float
    """Whether a fault strikes, or a repeat gets a decision of its own."""


def draw(seed: int, *coordinates: str) -> Draws:
    text = "\0".join((str(seed), *coordinates))
    words = _EIGHT_WORDS.unpack(blake2b(text.encode("utf-8", "surrogatepass")).digest())
    # 52 bits and a half: neither 0 nor 1 can come out, so every inverse distribution is defined.
    return Draws._make([((word >> 12) + 0.5) * _UNIT for word in words])


class LatencyKind(StrEnum):
    """The distributions."""

    CONSTANT = "constant"
    UNIFORM = "uniform"
    """`uniform:LOW,HIGH` in seconds."""
    LOGNORMAL = "lognormal"
    """`lognormal:MEDIAN,SIGMA`: median in seconds, sigma of the natural logarithm."""
    EXPONENTIAL = "exponential"
    """`exponential:MEAN` in seconds."""


_FORMS = {
    LatencyKind.CONSTANT: ("SECONDS",),
    LatencyKind.UNIFORM: ("LOW", "HIGH"),
    LatencyKind.LOGNORMAL: ("MEDIAN", "SIGMA"),
    LatencyKind.EXPONENTIAL: ("MEAN",),
}


@dataclass(frozen=True, slots=True)
class LatencyDistribution:
    """A distribution of service times."""

    kind: LatencyKind
    first: float
    """Seconds: the constant, the lower end, the median or the mean."""
    second: float = 0.0
    """The upper end in seconds, or sigma; unused by the families of one parameter."""

    def at(self, quantile: float) -> float:
        """Return the seconds that this fraction of calls stays below.

        Args:
            quantile: In the open interval (0, 1); uniform draws give the distribution.
        """
        match self.kind:
            case LatencyKind.CONSTANT:
                return self.first
            case LatencyKind.UNIFORM:
                return self.first + (self.second - self.first) * quantile
            case LatencyKind.LOGNORMAL:
                return self.first * math.exp(self.second * _STANDARD_NORMAL.inv_cdf(quantile))
            case LatencyKind.EXPONENTIAL:
                return -self.first * math.log1p(-quantile)
            case _:
                assert_never(self.kind)


NO_LATENCY = LatencyDistribution(LatencyKind.CONSTANT, 0.0)


def parse_latency(text: str) -> LatencyDistribution:
    """Read a distribution such as `lognormal:0.8,0.4`.

    Raises:
        ConfigError: When the family is unknown or its numbers are missing, negative or reversed.
    """
    name, _, rest = text.partition(":")
    try:
        kind = LatencyKind(name.strip())
        numbers = [float(part) for part in rest.split(",")]
    except ValueError:
        raise ConfigError(_complaint(text)) from None
    if len(numbers) != len(_FORMS[kind]) or not all(0 <= n < math.inf for n in numbers):
        raise ConfigError(_complaint(text))
    if kind is LatencyKind.UNIFORM and numbers[0] > numbers[1]:
        raise ConfigError(f"latency '{text}': the lower end is above the upper end")
    return LatencyDistribution(kind, *numbers)


def _complaint(text: str) -> str:
    forms = " or ".join(f"{kind}:{','.join(names)}" for kind, names in _FORMS.items())
    return f"latency '{text}' is not {forms}, with finite numbers of 0 or more"

"""Faults that the simulator commits on purpose: kinds, probabilities, scripts."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from aegish_dist.errors import ConfigError

F = TypeVar("F", bound=StrEnum)


class Fault(StrEnum):
    """One way for a call to fail."""

    RATE_LIMIT = "rate_limit"
    """429 with Retry-After."""
    SERVER_ERROR = "server_error"
    """500."""
    OVERLOADED = "overloaded"
    """503, or 529 where the provider says so."""
    AUTH = "auth"
    """401."""
    QUOTA = "quota"
    NOT_FOUND = "not_found"
    """404: no such model."""
    HANG = "hang"
    RESET = "reset"
    """The connection is reset in the middle of the body."""
    TRUNCATED = "truncated"
    """The connection is closed before Content-Length is reached."""
    MALFORMED = "malformed"
    """HTTP 200 with broken JSON."""
    EMPTY = "empty"
    CONTENT_FILTER = "content_filter"
    """The provider withholds the answer, in its own way."""
    TOKEN_LIMIT = "token_limit"  # noqa: S105  # nosec B105 # tokens of text
    """Hidden reasoning used up the output tokens; no text."""


_STATUS_WORDS = {
    "401": Fault.AUTH,
    "404": Fault.NOT_FOUND,
    "429": Fault.RATE_LIMIT,
    "500": Fault.SERVER_ERROR,
    "503": Fault.OVERLOADED,
    "529": Fault.OVERLOADED,
}


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Probabilities of the faults, and their timings."""

    probabilities: Mapping[Fault, float] = field(default_factory=dict)
    """Probability per attempt; together at most 1."""
    retry_after_s: float = 1.0
    """Seconds that a 429 asks the client to wait."""
    hang_s: float = 600.0
    """Seconds after which a hanging call is cut off if the client is still there."""

    def __post_init__(self) -> None:
        for name, value in (("retry_after_s", self.retry_after_s), ("hang_s", self.hang_s)):
            if not 0 <= value < math.inf:
                raise ConfigError(f"{name} is {value}; it must be finite and 0 or more")
        check_probabilities(self.probabilities)

    def pick(self, luck: float) -> Fault | None:
        """Return the fault that a uniform draw in (0, 1) hits, None for none."""
        return pick(self.probabilities, luck)


def check_probabilities(probabilities: Mapping[F, float]) -> None:
    """Check that each is a probability and that together they reach 1 at most."""
    for fault, value in probabilities.items():
        if not 0 <= value <= 1:
            raise ConfigError(f"{fault} is {value}; a probability lies between 0 and 1")
    total = math.fsum(probabilities.values())
    if total > 1:
        raise ConfigError(f"the probabilities add up to {total:g}; they may reach 1 at most")


def pick(probabilities: Mapping[F, float], luck: float) -> F | None:
    """Return the fault that a uniform draw in (0, 1) hits, None for none."""
    for fault, probability in probabilities.items():
        luck -= probability
        if luck < 0:
            return fault
    return None


def parse_script(words: Iterable[str]) -> tuple[Fault | None, ...]:
    """Read a script: `ok`, the name of a fault, or a status such as `429`.

    Returns:
        One entry per call in order of arrival, None for an answer without a fault.

    Raises:
        ConfigError: When a word is none of these.
    """
    return parse_words(words, Fault, _STATUS_WORDS)


def parse_words(
    words: Iterable[str], faults: type[F], others: Mapping[str, F] | None = None
) -> tuple[F | None, ...]:
    """Read a script of names of faults, with `ok` for none.

    Args:
        words: One word per call.

    Raises:
        ConfigError: When a word is none of these.
    """
    known = {"ok": None, **(others or {}), **{fault.value: fault for fault in faults}}
    given = tuple(words)
    for word in given:
        if word not in known:
            raise ConfigError(f"'{word}' is not one of {', '.join(known)}")
    return tuple(known[word] for word in given)

"""How a simulated provider treats batches: their times, and the faults that it commits."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from aegish_dist.errors import ConfigError
from aegish_dist.simulator.chance import LatencyDistribution, LatencyKind
from aegish_dist.simulator.faults import check_probabilities, parse_words, pick

_TWO_SECONDS = LatencyDistribution(LatencyKind.CONSTANT, 2.0)


class RequestFault(StrEnum):
    """One way for a request of a batch, or for its line among the results, to fail."""

    REFUSED = "refused"
    """The request gets an error that asking again does not mend: 400."""
    SERVER_ERROR = "server_error"
    """The request gets an error that may pass: 500."""
    EMPTY = "empty"
    CONTENT_FILTER = "content_filter"
    """The provider withholds the answer, in its own way."""
    TOKEN_LIMIT = "token_limit"  # noqa: S105  # nosec B105 # tokens of text
    """Hidden reasoning used up the output tokens; no text."""
    MISSING = "missing"
    """The provider loses the request: no line, no charge."""
    DUPLICATE = "duplicate"
    """Its line comes twice, and is charged once."""
    MALFORMED = "malformed"
    """Its line is cut in the middle; the answer is charged all the same."""
    FOREIGN = "foreign"
    """Another line follows, of a request that the batch does not have."""


class EndFault(StrEnum):
    """One way for a whole batch to end badly."""

    FAILED = "failed"
    """It is refused as a whole, without a charge; Anthropic fails every request instead."""
    EXPIRED = "expired"
    """Its window ends before a part of its requests is begun; Gemini then keeps no result."""
    CANCELLED = "cancelled"
    """The provider cancels it before a part of its requests is begun."""
    SLOW = "slow"


class CallFault(StrEnum):
    """One way for a request about batches to fail."""

    RATE_LIMIT = "rate_limit"
    """429 with Retry-After, without effect."""
    SERVER_ERROR = "server_error"
    """500, without effect."""
    OVERLOADED = "overloaded"
    """503, or 529 where the provider says so, without effect."""
    AUTH = "auth"
    """401."""
    QUOTA = "quota"
    RESET = "reset"
    LOST = "lost"
    """It is carried out, then the connection is reset before any response."""
    LATE_ERROR = "late_error"
    """It is carried out, and answered with 500."""
    HANG = "hang"
    """It is carried out, and never answered."""
    TRUNCATED = "truncated"
    """It is carried out, and the connection is closed in the middle of the response."""
    MALFORMED = "malformed"
    """It is carried out, and half of the response is missing."""


class Endpoint(StrEnum):
    """The kinds of requests about batches."""

    UPLOAD = "upload"
    CREATE = "create"
    POLL = "poll"
    LIST = "list"
    RESULTS = "results"
    CANCEL = "cancel"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Times and faults of the batches of a simulated provider."""

    duration: LatencyDistribution = _TWO_SECONDS
    """Seconds from the start of a batch to its end."""
    list_lag_s: float = 0.0
    """Seconds after its creation in which a batch is in no list."""
    retry_after_s: float = 1.0
    """Seconds that a 429 asks the client to wait."""
    hang_s: float = 600.0
    """Seconds after which a request without an answer is cut off."""
    share: float = 0.5
    """Price of an answer in a batch as a share of the live price."""
    requests: Mapping[RequestFault, float] = field(default_factory=dict)
    """Probability of each fault per request; together at most 1."""
    ends: Mapping[EndFault, float] = field(default_factory=dict)
    """Probability of each fault per batch; together at most 1."""
    calls: Mapping[Endpoint, Mapping[CallFault, float]] = field(default_factory=dict)
    """Probability of each fault per request about batches; together at most 1 for each kind."""
    scripts: Mapping[Endpoint, tuple[CallFault | None, ...]] = field(default_factory=dict)
    """Faults of the first requests of a kind in order of arrival; then chance decides."""

    def __post_init__(self) -> None:
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        for name, value in numbers.items():
            if not 0 <= value < math.inf:
                raise ConfigError(f"{name} is {value}; it must be finite and 0 or more")
        check_probabilities(self.requests)
        check_probabilities(self.ends)
        for probabilities in self.calls.values():
            check_probabilities(probabilities)

    def call_fault(self, endpoint: Endpoint, place: int, luck: float) -> CallFault | None:
        """Return the fault of a request about batches; None for none.

        Args:
            luck: Uniform draw in (0, 1).
        """
        script = self.scripts.get(endpoint, ())
        return script[place] if place < len(script) else pick(self.calls.get(endpoint, {}), luck)


_NUMBERS = ("list_lag_s", "retry_after_s", "hang_s", "share")


def parse_calls(words: Iterable[str]) -> tuple[CallFault | None, ...]:
    """Read a script: `ok`, or the name of a fault, for each request in order of arrival."""
    return parse_words(words, CallFault)

"""Times and faults of the batches of a provider, by chance and as scripts.

A scenario is one of the product's simulator with a table `batches`.
"""

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from aegish_dist.inputs.checking import checked
from aegish_dist.inputs.documents import parse_toml, read_text
from aegish_dist.simulator.config import MAX_BYTES, Probability, Seconds, SimulatorConfig, pick


class RequestFault(StrEnum):
    """The ways for a request of a batch, or its line, to fail."""

    REFUSED = "refused"
    """400: asking again does not mend it, and it costs nothing."""
    SERVER_ERROR = "server_error"  # 500, at no cost
    EMPTY = "empty"  # an answer without text
    CONTENT_FILTER = "content_filter"  # an answer that the provider withheld, in its own way
    TOKEN_LIMIT = "token_limit"  # hidden reasoning used up the output tokens
    MISSING = "missing"  # no line, at no cost
    DUPLICATE = "duplicate"  # its line twice, charged once
    MALFORMED = "malformed"  # a line cut in the middle, charged and unreadable
    FOREIGN = "foreign"  # one line more, under a name that the batch does not have


class EndFault(StrEnum):
    """The ways for a whole batch to end badly."""

    FAILED = "failed"
    """Refused as a whole, with a reason; at Anthropic every request has an error."""
    EXPIRED = "expired"  # a part is answered and charged; Gemini keeps and charges nothing
    CANCELLED = "cancelled"  # by the provider; a part is answered and charged
    SLOW = "slow"  # five times the duration


class CallFault(StrEnum):
    """The ways for a request about batches to fail."""

    RATE_LIMIT = "rate_limit"
    SERVER_ERROR = "server_error"
    OVERLOADED = "overloaded"
    AUTH = "auth"
    QUOTA = "quota"
    RESET = "reset"
    LOST = "lost"  # carried out, and the connection is reset
    LATE_ERROR = "late_error"  # carried out, and answered by 500
    HANG = "hang"  # carried out; then the connection is reset after `hang_s`
    TRUNCATED = "truncated"  # half of the response, then the end of the connection
    MALFORMED = "malformed"  # half of the response, as if it were whole


class Endpoint(StrEnum):
    """The kinds of requests about batches."""

    UPLOAD = "upload"
    CREATE = "create"
    POLL = "poll"
    LIST = "list"
    RESULTS = "results"
    CANCEL = "cancel"
    DELETE = "delete"  # of a file


class BatchPlan(Struct, frozen=True, forbid_unknown_fields=True):
    duration: str = "constant:2"  # seconds from start to end
    list_lag_s: Seconds = 0.0  # after its creation, in which a batch is in no list
    retry_after_s: Seconds = 1.0
    hang_s: Seconds = 600.0  # then a request without an answer is cut off
    share: Annotated[float, Meta(ge=0, le=1e6)] = 0.5  # of the live price
    requests: dict[RequestFault, Probability] = {}
    ends: dict[EndFault, Probability] = {}
    calls: dict[Endpoint, dict[CallFault, Probability]] = {}
    scripts: dict[Endpoint, Sequence[str]] = {}
    """Faults of the first requests of a kind in order of arrival, or `ok`; then chance decides."""

    def call_fault(self, endpoint: Endpoint, place: int, luck: float) -> CallFault | None:
        """Return the fault of a request about batches; None for none."""
        script = self.scripts.get(endpoint, ())
        if place >= len(script):
            return pick(self.calls.get(endpoint, {}), luck)
        return None if script[place] == "ok" else CallFault(script[place])


class BatchScenario(SimulatorConfig, frozen=True, forbid_unknown_fields=True):
    batches: BatchPlan = BatchPlan()


def read_scenario(path: Path) -> BatchScenario:
    return checked(parse_toml(read_text(path, MAX_BYTES)), BatchScenario)

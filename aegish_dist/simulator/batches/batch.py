"""A batch of the simulated provider, and the files that it is made from and leaves."""

import asyncio
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from aegish_dist.core.batch import Unanswered
from aegish_dist.core.completion import Completion
from aegish_dist.core.wire import WireFormat
from aegish_dist.simulator.batch_plan import EndFault
from aegish_dist.simulator.dialect import ChatRequest, ErrorAnswer


class BatchPhase(StrEnum):
    """How far a batch is; each dialect has words of its own for it."""

    VALIDATING = "validating"
    IN_PROGRESS = "in_progress"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    EXPIRED = "expired"
    """Its window ended first."""
    CANCELLED = "cancelled"
    """It was cancelled first."""
    FAILED = "failed"
    """It was refused as a whole, and no request was begun."""


ENDED = frozenset(
    {BatchPhase.COMPLETED, BatchPhase.EXPIRED, BatchPhase.CANCELLED, BatchPhase.FAILED}
)


@dataclass(frozen=True, slots=True)
class NamedRequest:
    """One request of a batch."""

    name: str
    """Its name within the batch, by the client."""
    chat: ChatRequest | ErrorAnswer
    """The request; an error when it is not valid, which fails this request alone."""


RequestOutcome = Completion | ErrorAnswer | Unanswered
"""The end of one request of a batch."""


@dataclass(frozen=True, slots=True)
class BatchProblem:
    """Why a batch is refused as a whole."""

    code: str
    message: str
    line: int | None = None
    """1-based line of the input file; None when no line is at fault."""


@dataclass(frozen=True, slots=True)
class ResultLine:
    """One line of a batch's results, before a dialect writes it."""

    name: str
    outcome: RequestOutcome
    broken: bool = False
    """Whether the line is cut, so that it is no JSON."""


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that a client uploaded, or that a batch left."""

    id: str
    name: str
    purpose: str
    content: bytes
    """Its bytes."""
    created_s: float
    """Unix time in seconds."""


@dataclass(slots=True)
class SimulatedBatch:
    """A batch; its task in `lifecycle` alone changes it, apart from `cancel`."""

    id: str
    wire: WireFormat
    created_s: float
    """Unix time in seconds."""
    due_s: float
    """Unix time at which it ends unless it is cancelled."""
    source: Iterator[NamedRequest | BatchProblem]
    """Its requests as they are read; a problem ends them."""
    fault: EndFault | None = None
    """The way in which it is to end badly; None for none."""
    limit: float = 1.0
    """Part of its time after which no request is begun, in [0, 1]."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Facts that its dialect repeats in each description: metadata, input file."""
    phase: BatchPhase = BatchPhase.VALIDATING
    cancelled_s: float | None = None
    """Unix time at which it was cancelled; None when it was not."""
    ended_s: float | None = None
    """Unix time of its end; None before."""
    requests: list[NamedRequest] = field(default_factory=list)
    """Its requests as far as they are read."""
    size: int = 0
    """Number of its requests as far as it is known."""
    moments: Sequence[float] = ()
    """Part of its time after which each request is answered, in (0, 1), in ascending order."""
    problems: list[BatchProblem] = field(default_factory=list)
    """Why it failed as a whole; empty when it did not."""
    outcomes: list[RequestOutcome] = field(default_factory=list)
    """Outcomes of its requests; empty before its end."""
    lines: list[ResultLine] = field(default_factory=list)
    """Its results; empty before its end."""
    files: dict[str, str] = field(default_factory=dict)
    """Identifiers of the files that it left, by their use."""
    cancelling: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def has_ended(self) -> bool:
        """Whether its results can be read."""
        return self.phase in ENDED

    def progress(self, now_s: float) -> float:
        """Return the part of its time in which it has worked, in [0, 1].

        Args:
            now_s: Unix time in seconds.
        """
        passed_s = min(now_s, self.cancelled_s or now_s) - self.created_s
        whole_s = self.due_s - self.created_s
        return min(self.limit, passed_s / whole_s if whole_s > 0 else 1.0)

    def answered(self, now_s: float) -> int:
        """Return how many requests are answered so far, well or with an error."""
        if self.has_ended:
            return sum(not isinstance(outcome, Unanswered) for outcome in self.outcomes)
        return bisect_right(self.moments, self.progress(now_s))

    def cancel(self, now_s: float) -> None:
        """Begin no further request; without effect once it is cancelled or ended."""
        if self.cancelled_s is None and not self.has_ended:
            self.cancelled_s = now_s
            self.phase = BatchPhase.CANCELLING
            self.cancelling.set()

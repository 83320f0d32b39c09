"""What workers and the limiter tell each other about one model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aegish_dist.core.limits import Limits, RateHint


@dataclass(slots=True)
class UsageReport:
    """What has happened since a worker asked last; all of it may be told twice, and does no harm.

    Money told twice counts twice: the cap is then reached early, never late.
    """

    epoch: int = 0
    """The newest epoch the worker knows."""
    answers: int = 0
    """Calls that brought an answer."""
    epoch_answers: int = 0
    """Those of them that were let through in `epoch`."""
    refused: int = 0
    """429s of calls that were let through in `epoch`."""
    overloaded: int = 0
    """503s and 529s."""
    alive: bool = False
    """Whether the provider showed a sign of life."""
    failures: int = 0
    """Infrastructure failures in a row, up to now."""
    unanswered: int = 0
    """Failed calls that may have been paid for since the last answer, up to now; a 429 does not end
    the count."""
    probe_failed: bool = False
    """Whether a probe of a parked model brought no answer."""
    pause_s: float = 0.0
    """The longest wait that the provider asked for."""
    tokens: int = 0
    """Tokens used beyond those estimated."""
    hint: RateHint | None = None
    """The newest."""
    reason: str | None = None
    """The provider's words about the newest failure."""

    def before(self, later: "UsageReport") -> "UsageReport":
        """Return the news of both, these being the older ones."""
        return UsageReport(
            epoch=later.epoch,
            answers=self.answers + later.answers,
            epoch_answers=self.epoch_answers + later.epoch_answers,
            refused=self.refused + later.refused,
            overloaded=self.overloaded + later.overloaded,
            alive=self.alive or later.alive,
            failures=later.failures if later.alive else self.failures + later.failures,
            unanswered=later.unanswered + (0 if later.answers else self.unanswered),
            probe_failed=self.probe_failed or later.probe_failed,
            pause_s=max(self.pause_s, later.pause_s),
            tokens=self.tokens + later.tokens,
            hint=later.hint or self.hint,
            reason=later.reason or self.reason,
        )


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A run with a cap, as one worker sees it for one model; money in 1e-9 USD."""

    run: str
    """Run id."""
    waiting: int
    """Calls of it that wait."""
    held: int
    """Estimated cost of its calls in flight."""
    estimate: int
    """Estimated cost of one more."""
    spent: int
    """Cost since the last ask."""
    cap: int | None
    """What the run may cost."""
    model_cap: int | None
    """What each of its models may cost."""
    stored: Mapping[str, Any] | None = None
    """`total` and `models` as the store knows them, when the script asked for them."""


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """What one worker holds of a model, and wants."""

    model: str
    """Canonical id."""
    held: int
    """Calls in flight."""
    waiting: int
    """Calls that wait to begin."""
    tokens: int
    """Estimated tokens of one call."""
    limits: Limits
    """Of the model."""
    shared: Limits
    """Of its provider."""
    told: UsageReport = field(default_factory=UsageReport)
    """News."""
    runs: Sequence[RunRequest] = ()
    """The runs with a cap."""
    probing: bool = False
    """Whether one of the calls in flight is a probe."""


@dataclass(frozen=True, slots=True)
class RunLease:
    """What a capped run may do."""

    run: str
    permits: int
    over: bool
    """Whether the cap is reached."""
    unknown: bool
    """Whether the script needs to be told what was spent so far."""


@dataclass(frozen=True, slots=True)
class Lease:
    """What a worker may do next with a model."""

    epoch: int
    """Goes up with every decrease of the rate."""
    slots: int | None
    """Calls in flight at most; None: no limit."""
    permits: int
    """Calls that may begin, if `metered`."""
    metered: bool
    """Whether calls are counted; otherwise `slots` alone decides until the lease ends."""
    limited: bool
    """Whether asking again before `wait_s` is in vain."""
    wait_s: float
    """When to ask again."""
    probe: bool = False
    """Whether the one permit is to find out if a parked model lives again."""
    parked: bool = False
    """Whether the model failed so often in a row that it is not called."""
    failed_probes: int = 0
    """Failed probes since then."""
    reason: str | None = None
    """The provider's words about the failure that parked it."""
    rate: float | None = None
    """This worker's share of the rate, calls per second; None: no limit."""
    runs: tuple[RunLease, ...] = ()
    """The capped runs, in the order of the ask."""

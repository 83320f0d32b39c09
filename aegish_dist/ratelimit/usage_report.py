"""The JSON documents of the limiter: what workers report and ask for, and the leases they get."""

from collections.abc import Mapping, Sequence

import msgspec

from aegish_dist.core.failures import KINDS, counts_for_pause
from aegish_dist.core.model import Limits, RateHint
from aegish_dist.core.outcome import ErrorClass

REASON_LENGTH = 200  # characters of a provider's message that the fleet gets to see


class UsageReport(msgspec.Struct, omit_defaults=True):
    """The report of one worker on one model; a JSON document for the script.

    What may not have arrived is sent again: counted twice, a cap is reached early, never late.
    """

    epoch: int = 0  # the newest of the rate that the worker knows
    answers: int = 0
    epoch_answers: int = 0
    refused: int = 0  # calls that began in `epoch` and got 429
    overloaded: int = 0
    alive: bool = False  # the provider answered, or turned a call down for a reason of its own
    failures: int = 0  # in a row, without an answer or a 429 between them
    unanswered: int = 0  # to be paid for, perhaps, since the last answer, whatever 429s
    probe_failed: bool = False
    pause_s: float = 0.0
    tokens: int = 0  # beyond those expected, or below 0
    hint: RateHint | None = None
    reason: str | None = None

    def __bool__(self) -> bool:
        return self != UsageReport(epoch=self.epoch)

    def followed_by(self, later: "UsageReport") -> "UsageReport":
        """Return the report of both times, this one being the earlier."""
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

    def enter_epoch(self, epoch: int) -> None:
        """Note the epoch of the rate: calls that began in older ones say nothing about it."""
        if epoch != self.epoch:
            self.epoch, self.epoch_answers, self.refused = epoch, 0, 0

    def add_answer(self, epoch: int, excess_tokens: int) -> None:
        self.answers += 1
        self.epoch_answers += epoch == self.epoch
        self.alive, self.failures, self.unanswered = True, 0, 0
        self.tokens += excess_tokens

    def add_failure(
        self,
        epoch: int,
        error_class: ErrorClass,
        retry_after_s: float | None,
        *,
        probe: bool,
        reason: str,
        others_answered: bool = False,
    ) -> None:
        """Count a failed call; `others_answered` lately: it says nothing about the model."""
        kind = KINDS[error_class]
        if kind.alive:
            self.alive, self.failures = True, 0
        else:
            self.failures += not others_answered
        self.unanswered += kind.charged and not others_answered
        self.probe_failed |= probe
        self.reason = reason[:REASON_LENGTH]
        self.refused += error_class is ErrorClass.RATE_LIMIT and epoch == self.epoch
        self.overloaded += error_class is ErrorClass.OVERLOADED
        if counts_for_pause(error_class, retry_after_s):
            self.pause_s = max(self.pause_s, retry_after_s or 0.0)

    def add_unused(self, expected_tokens: int, *, probe: bool) -> None:
        """Count a call that used none of the tokens taken from the bucket; a probe has failed."""
        self.tokens -= expected_tokens
        self.probe_failed |= probe


class StoredCost(msgspec.Struct, frozen=True):
    """Cost of a run according to the database, in 1e-9 USD: the start of its ledger."""

    total: int
    models: Mapping[str, int]


class RunRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The calls of a capped run that one worker holds for one model; costs in 1e-9 USD."""

    run: str
    waiting: int
    held: int
    estimate: int
    spent: int
    cap: int | None = None
    model_cap: int | None = None
    stored: StoredCost | None = None  # up to now, when the script has asked for it


class LeaseRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The calls to a model that a worker holds and wants."""

    model: str
    held: int
    waiting: int
    tokens: int  # expected of one call, at least 1
    limits: Limits
    shared: Limits  # of all models of its provider together
    report: UsageReport
    runs: Sequence[RunRequest] = ()
    probing: bool = False  # one of the calls in flight is a probe


class RunLease(msgspec.Struct, frozen=True):
    """Permission for the calls of a capped run."""

    run: str
    permits: int
    over: bool = False
    unknown: bool = False  # the next request has to hold what is stored


class Lease(msgspec.Struct, frozen=True):
    """Permission for a worker to call a model, for some seconds."""

    epoch: int  # of the rate; goes up with every decrease
    permits: int  # calls that may begin, if `metered`
    wait_s: float  # until the next request, unless something changes before
    metered: bool = False  # else `slots` alone decides until the lease ends
    limited: bool = False  # asking again before `wait_s` brings no further permit
    slots: int | None = None  # calls in flight of this worker; None: no limit
    probe: bool = False  # the one permit is for a probe of an open circuit
    circuit_open: bool = False  # the model is not called, except by probes
    failed_probes: int = 0
    reason: str | None = None  # the provider's words about the failure that opened it
    rate: float | None = None  # this worker's part, calls per second; None: no limit
    runs: tuple[RunLease, ...] = ()

"""The JSON documents of the limiter: its policy, reports and requests of workers, and leases."""

import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files

import msgspec
from msgspec.structs import replace

from aegish_dist.core.failures import KINDS, counts_for_pause
from aegish_dist.core.model import Limits, RateHint
from aegish_dist.core.outcome import ErrorClass

# The numbers of the script in Redis: `policy.toml` states units, reasons and sources.
POLICY: dict[str, dict[str, float]] = tomllib.loads(
    files(__package__).joinpath("policy.toml").read_text(encoding="utf-8")
)

REASON_LENGTH = 200  # characters of a provider's message that are shared with the fleet
_SUMS = (
    "begun",
    "answers",
    "latency_s",
    "epoch_answers",
    "refused",
    "limited",
    "overloaded",
    "tokens",
)


class UsageReport(msgspec.Struct, omit_defaults=True):
    """The report of one worker on one model; a JSON document for the script.

    A report that may not have arrived is sent again. If it counts twice, a cap is reached early,
    never late.
    """

    epoch: int = 0  # newest epoch of the rate that the worker knows
    begun: int = 0  # calls that began in `epoch`
    answers: int = 0
    latency_s: float = 0.0  # of the answers, in all
    epoch_answers: int = 0
    refused: int = 0  # calls that began in `epoch` and got 429
    limited: int = 0  # calls of any epoch that got 429
    overloaded: int = 0
    alive: bool = False  # the provider answered, or refused a call with 429
    failures: int = 0  # failed calls in a row, without an answer or a 429 between them
    unanswered: int = 0  # failed calls since the last answer that may be charged, despite 429s
    probe_failed: bool = False
    pause_s: float = 0.0
    tokens: int = 0  # tokens used beyond the expected; negative if fewer
    hint: RateHint | None = None
    reason: str | None = None

    def __bool__(self) -> bool:
        return self != UsageReport(epoch=self.epoch)

    def followed_by(self, later: "UsageReport") -> "UsageReport":
        """Return this report and a later report in one."""
        return replace(
            later,
            **{name: getattr(self, name) + getattr(later, name) for name in _SUMS},
            alive=self.alive or later.alive,
            failures=later.failures if later.alive else self.failures + later.failures,
            unanswered=later.unanswered + (0 if later.answers else self.unanswered),
            probe_failed=self.probe_failed or later.probe_failed,
            pause_s=max(self.pause_s, later.pause_s),
            hint=later.hint or self.hint,
            reason=later.reason or self.reason,
        )

    def enter_epoch(self, epoch: int) -> None:
        """Note the epoch of the rate. Calls that began in older epochs say nothing about it."""
        if epoch != self.epoch:
            self.epoch = epoch
            self.begun = 0
            self.epoch_answers = 0
            self.refused = 0

    def add_answer(self, epoch: int, excess_tokens: int, latency_s: float = 0.0) -> None:
        self.answers += 1
        self.latency_s += latency_s
        self.epoch_answers += epoch == self.epoch
        self.alive = True
        self.failures = 0
        self.unanswered = 0
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
        """Count a failed call. If `others_answered` lately, it is no evidence against the model."""
        kind = KINDS[error_class]
        if kind.alive:
            self.alive = True
            self.failures = 0
        else:
            self.failures += not others_answered
        self.unanswered += kind.charged and not others_answered
        self.probe_failed |= probe
        self.reason = reason[:REASON_LENGTH]
        limited = error_class is ErrorClass.RATE_LIMIT
        self.limited += limited
        self.refused += limited and epoch == self.epoch
        self.overloaded += error_class is ErrorClass.OVERLOADED
        if counts_for_pause(error_class, retry_after_s):
            self.pause_s = max(self.pause_s, retry_after_s or 0.0)

    def add_unused(self, expected_tokens: int, *, probe: bool) -> None:
        """Count a call that used no tokens from the bucket; if it was a probe, the probe failed."""
        self.tokens -= expected_tokens
        self.probe_failed |= probe


class StoredCost(msgspec.Struct, frozen=True):
    """Cost of a run according to the database, in 1e-9 USD: the start of its ledger."""

    total: int
    models: Mapping[str, int]


class RunRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The calls of a capped run that one worker holds for a contender; costs in 1e-9 USD."""

    run: str
    waiting: int
    held: int
    estimate: int
    spent: int
    cap: int | None = None
    model_cap: int | None = None
    stored: StoredCost | None = None  # cost so far, if the script has asked for it
    contender: str | None = None  # None: the model of the request, which has no arms


class LeaseRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The calls to a model that a worker holds and wants."""

    model: str
    held: int
    waiting: int
    tokens: int  # expected tokens of one call, at least 1
    limits: Limits
    shared: Limits  # limits of all models of the provider together
    report: UsageReport
    runs: Sequence[RunRequest] = ()
    probing: bool = False  # one of the calls in flight is a probe


class RunLease(msgspec.Struct, frozen=True):
    """Permission for the calls of a capped run."""

    run: str
    permits: int
    over: bool = False
    unknown: bool = False  # the next request must contain `stored`


class Lease(msgspec.Struct, frozen=True):
    """Permission for a worker to call a model, for some seconds."""

    epoch: int  # of the rate; each decrease raises it
    permits: int  # calls that may begin, if `metered`
    wait_s: float  # until the next request, unless something changes earlier
    metered: bool = False  # if False, `slots` alone decides until the lease ends
    limited: bool = False  # a request before `wait_s` brings no further permit
    slots: int | None = None  # most calls in flight of this worker; None: no limit
    probe: bool = False  # the one permit is for a probe of an open circuit
    circuit_open: bool = False  # the model is not called, except by probes
    failed_probes: int = 0
    congested_s: float | None = None  # since calls queued for long at the provider; None: never
    congested: bool = False  # whether the bound on congestion is what decides `slots`
    refused: float | None = None  # share of the fleet's calls that got 429 of late; None: no calls
    reason: str | None = None  # the provider's words about the failure that opened the circuit
    probe_at: float | None = None  # when the open circuit is probed next, by Redis' clock
    rate: float | None = None  # this worker's part in calls per second; None: no limit
    runs: tuple[RunLease, ...] = ()

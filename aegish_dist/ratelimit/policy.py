"""The policy of the rate limiter: every number that decides when a call begins, with its reason.

The script in Redis gets `Policy` with each request, so a number changes for a worker when the
worker is restarted. The dataclasses below `Policy` are for the worker alone. Sources:

- AIMD: Chiu & Jain, "Analysis of the Increase and Decrease Algorithms for Congestion Avoidance in
  Computer Networks", Computer Networks and ISDN Systems 17 (1989): additive increase and
  multiplicative decrease lead many senders to equal parts of an unknown capacity.
- CUBIC: RFC 9438, section 4: growth is slow near the rate that was refused last, and accelerates
  with the time since then, whatever the round trip.
- Token bucket: Turner, "New directions in communications", IEEE Communications Magazine 24 (1986).
- Lease: Gray & Cheriton, "Leases: an efficient fault-tolerant mechanism", SOSP 1989.
- Circuit breaker: Nygard, "Release It!" (2007), chapter 5: closed, open, half-open.
- Jitter: Floyd & Jacobson, "The synchronization of periodic routing messages", SIGCOMM 1993.
"""

from dataclasses import dataclass, field

from aegish_dist.core.failures import LONGEST_RETRY_AFTER_S

UNLIMITED_PER_S = 10_000.0  # calls per second that no fleet reaches


@dataclass(frozen=True, slots=True)
class BucketPolicy:
    """Token buckets of calls and of tokens."""

    burst_s: float = 0.5
    """Seconds' worth of the rate that a bucket saves up beyond one call. Providers' own bursts are
    longer as far as they are known; a fleet that pauses for a moment catches up within two."""
    batch_s: float = 0.1
    """Seconds' worth of the rate that a worker waits for at least before it asks again: above ten
    calls a second, several begin with one round trip."""
    debt_s: float = 60.0
    """Seconds' worth of the rate that calls may owe at most when they used more than expected.
    Providers limit per minute; an answer that claims 2^53 tokens must not stop its model for
    good."""
    unlimited_per_s: float = UNLIMITED_PER_S
    """Calls per second from which a rate is no limit."""


@dataclass(frozen=True, slots=True)
class LeasePolicy:
    """Leases of the workers on concurrency and on budgets."""

    lease_s: float = 5.0
    """Seconds from a request until its lease ends: then a killed worker's share is free."""
    renew_s: float = 1.0
    """Longest wait in seconds between two requests: four renewals may fail before a lease ends."""
    crowded_s: float = 0.25
    """Wait in seconds while more calls wait than may be in flight: other workers may give slots
    back."""
    slow_start_s: float = 0.05
    """The same during the slow start, in which every answer adds a slot."""
    shortest_wait_s: float = 0.02
    """Shortest wait in seconds between two requests of a worker for a model: bounds the load of
    Redis."""
    kept_s: int = 86_400
    """Seconds until a document expires that is not written: a day, so that a learned rate lasts a
    night."""


@dataclass(frozen=True, slots=True)
class PacingPolicy:
    """The rate of calls to a model whose limit is unknown."""

    unlimited_per_s: float = UNLIMITED_PER_S
    """Calls per second, or in flight, from which nothing is a limit."""
    first_window: int = 20
    """Calls in flight of the whole fleet at the beginning of the slow start, one more for each
    answer."""
    lowest_rate: float = 0.02
    """Calls per second that a rate never falls below: one in 50 s finds out when a limit rises."""
    idle_rate: float = 0.5
    """Calls per second while every call is refused: one in two seconds finds out when that ends."""
    scarce_pace: float = 0.9
    """Part of a rate named by headers to use while nothing of it is left: others may use the key
    too."""
    same_event_s: float = 1.0
    """Seconds after a decrease within which refusals belong to it, as within a round trip of
    TCP."""
    goodput_window_s: float = 5.0
    """Time constant in seconds of the mean of answers per second; longer than most calls take."""
    goodput_margin: float = 1.15
    """Factor on the goodput that bounds a provider's limit from above: the mean lags behind."""
    decrease: float = 0.9
    """Multiplicative decrease (AIMD). TCP halves; CUBIC takes 0.7. Here the goodput shows the
    limit, so a tenth below it is enough."""
    least_climbing: float = 0.9
    """Smallest part of the rate to keep at once while it climbs: slow answers hide the goodput
    then."""
    least: float = 0.7
    """Smallest part of the rate to keep at once otherwise (CUBIC's beta)."""
    least_refused: float = 0.5
    """Smallest part of the rate to keep at once after more than `few_refusals` (TCP's halving)."""
    few_refusals: int = 5
    """Refusals in an epoch up to which the rate is nearly right."""
    growth: float = 0.03
    """Additive increase (AIMD) per second, as a part of the rate that was refused last: after a
    decrease of a tenth it takes three seconds to come near it."""
    near_top: float = 0.97
    """Part of the rate that was refused last from which growth is CUBIC's."""
    top_growth: float = 0.002
    """Growth per second near the top, times the square of the minutes since the decrease
    (CUBIC)."""
    first_growth: float = 0.1
    """Growth per second, as a part of the rate, before the first refusal of a guessed rate."""
    longest_growth_s: float = 5.0
    """Seconds of growth at once at most, after a time without answers."""
    overload_pause_s: float = 1.0
    """Seconds without calls after a 503 or 529: the provider is busy, its limit is not meant."""
    overload_apart_s: float = 5.0
    """Seconds between two such pauses at least: calls that began before fail too."""
    longest_pause_s: float = LONGEST_RETRY_AFTER_S
    """Seconds up to which a wait that the provider asks for is a pause; a longer one opens the
    circuit, and items go back to their queue."""


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """The circuit breaker of a model."""

    failures: int = 10
    """Failed calls in a row over the fleet that open the circuit: at most ten calls are made with a
    wrong key, and a lone bad row, tried up to six times, opens nothing."""
    unanswered: int = 20
    """Failed calls since the last answer that may have to be paid for and open the circuit,
    whatever 429s come between them: twice `failures`, as 429s show that the host is there."""
    first_probe_s: float = 2.0
    """Seconds from the opening to the first probe; doubled after each failed one."""
    longest_probe_s: float = 300.0
    """Longest wait in seconds between probes: about twelve calls an hour to a provider that is
    away."""
    longest_open_s: float = 3600.0
    """Longest wait in seconds for a probe, however long the provider asked to wait."""
    shown_probes: int = 2
    """Failed probes after which `status` shows a model as parked: it may just be starting again."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The policy of the script in Redis."""

    buckets: BucketPolicy = field(default_factory=BucketPolicy)
    leases: LeasePolicy = field(default_factory=LeasePolicy)
    pacing: PacingPolicy = field(default_factory=PacingPolicy)
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)


@dataclass(frozen=True, slots=True)
class RenewalPolicy:
    """How a worker asks for leases."""

    clock_margin_s: float = 1.0
    """Seconds that a worker's lease ends before the script's: covers the round trip and the
    clocks."""
    gather_s: float = 0.01
    """Seconds between two requests of a worker for a model at least: reports of the time share
    one."""
    retry_s: float = 0.2
    """Seconds until the first retry while Redis does not answer; doubled after each one."""
    longest_retry_s: float = 5.0
    """Longest wait in seconds between such retries."""
    finish_s: float = 5.0
    """Seconds that the last report of a worker may take."""
    jitter: float = 0.1
    """Part by which waits are longer at random, so that workers do not ask in step."""


@dataclass(frozen=True, slots=True)
class PrefetchPolicy:
    """How many items of a model a worker fetches from the broker."""

    first_items: int = 40
    """Items of a model of which nothing is known yet: twice the window of the slow start."""
    per_slot: int = 2
    """Items for each call that may be in flight: the next one is there when a call ends."""
    ahead_s: float = 1.0
    """Seconds of work of a rate-limited model to hold beyond the calls in flight."""
    unlimited: int = 1_000_000
    """Items of a model without limits: the broker's own prefetch count bounds them."""
    probers: int = 2
    """Items of a model whose circuit is open: one for the probe, one for the next. The others go
    back to their queue. No worker holds fewer of a rate-limited model."""
    surplus: int = 2
    """Times the target that may wait at a rate-limited model before items go back: a broker that
    pushes sends more than was asked for."""


POLICY = Policy()
RENEWAL = RenewalPolicy()
PREFETCH = PrefetchPolicy()

"""The policy of the rate limiter: every number that decides when a call begins, with its reason.

The script in Redis gets `Policy` with each request. The dataclasses below `Policy` are for the
worker alone. Sources:

- AIMD: Chiu & Jain, Computer Networks and ISDN Systems 17 (1989): additive increase and
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

    burst_s: float = 0.5  # worth of the rate saved up beyond one call; providers' bursts are longer
    batch_s: float = 0.1
    """Worth of the rate to wait for: above 10 calls/s several share a round trip."""
    debt_s: float = 60.0
    """At most owed by calls: an answer that claims 2^53 tokens must not stop its model."""
    unlimited_per_s: float = UNLIMITED_PER_S  # calls per second from which a rate is no limit


@dataclass(frozen=True, slots=True)
class LeasePolicy:
    """Leases of the workers on concurrency and on budgets."""

    lease_s: float = 5.0
    """From a request until its lease ends: then a killed worker's share is free."""
    renew_s: float = 1.0  # longest wait between requests: four may fail before a lease ends
    crowded_s: float = 0.25  # wait while calls queue: other workers may give slots back
    slow_start_s: float = 0.05  # the same in the slow start, where every answer adds a slot
    shortest_wait_s: float = 0.02  # between two requests for a model: bounds the load of Redis
    kept_s: int = 86_400  # of a document that is not written: a learned rate lasts a night


@dataclass(frozen=True, slots=True)
class PacingPolicy:
    """The rate of calls to a model whose limit is unknown."""

    unlimited_per_s: float = UNLIMITED_PER_S
    """Calls per second, or in flight, from which nothing is a limit."""
    first_window: int = 20  # calls in flight of the fleet at first, one more for each answer
    lowest_rate: float = 0.02  # calls per second at least: one in 50 s finds out when a limit rises
    idle_rate: float = 0.5  # calls per second while every call is refused
    scarce_pace: float = 0.9
    """Of a rate named by headers while nothing of it is left: others use the key too."""
    same_event_s: float = 1.0
    """After a decrease, refusals belong to it, as within a round trip of TCP."""
    goodput_window_s: float = 5.0  # time constant of the mean of answers per second
    goodput_margin: float = 1.15  # bounds a limit from above: the mean of answers lags behind
    decrease: float = 0.9  # AIMD. TCP halves, CUBIC takes 0.7; here the goodput shows the limit
    least_climbing: float = 0.9
    """Part of the rate kept while it climbs: slow answers hide the goodput."""
    least: float = 0.7  # part of the rate kept otherwise (CUBIC's beta)
    least_refused: float = 0.5  # after more than `few_refusals` (TCP's halving)
    few_refusals: int = 5  # in an epoch up to which the rate is nearly right
    growth: float = 0.03
    """AIMD, per second, of the rate refused last: three seconds after a decrease."""
    near_top: float = 0.97  # part of the rate that was refused last from which growth is CUBIC's
    top_growth: float = 0.002
    """Per second near it, times squared minutes since the decrease (CUBIC)."""
    first_growth: float = 0.1  # per second, before the first refusal of a guessed rate
    longest_growth_s: float = 5.0  # of growth at once at most, after a time without answers
    overload_pause_s: float = 1.0
    """After a 503 or 529: the provider is busy, its limit is not meant."""
    overload_apart_s: float = 5.0  # between such pauses at least: calls that began before fail too
    longest_pause_s: float = LONGEST_RETRY_AFTER_S  # a longer wait opens the circuit


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """The circuit breaker of a model."""

    failures: int = 10
    """In a row over the fleet that open the circuit: at most ten calls with a wrong key."""
    unanswered: int = 20  # charged calls since the last answer that open the circuit, through 429s
    first_probe_s: float = 2.0  # from the opening to the first probe; doubled after each failed one
    longest_probe_s: float = 300.0
    """Between probes: about twelve calls an hour to a provider that is away."""
    longest_open_s: float = 3600.0  # wait for a probe, however long the provider asked to wait
    shown_probes: int = 2  # failed ones after which `status` shows a model as parked


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
    """That a worker's lease ends before the script's: covers the round trip."""
    gather_s: float = 0.01  # between two requests for a model at least: reports share one
    retry_s: float = 0.2  # to the first retry while Redis does not answer; doubled each time
    longest_retry_s: float = 5.0  # between such retries
    finish_s: float = 5.0  # that the last report of a worker may take
    jitter: float = 0.1  # part by which waits are longer at random, against step


@dataclass(frozen=True, slots=True)
class PrefetchPolicy:
    """How many items of a model a worker fetches from the broker."""

    first_items: int = 40  # of an unknown model: twice the window of the slow start
    per_slot: int = 2  # for each call that may be in flight
    ahead_s: float = 1.0  # of work of a rate-limited model beyond the calls in flight
    unlimited: int = 1_000_000  # without limits the broker's own prefetch count bounds them
    probers: int = 2  # items of a model with an open circuit, the least of a rate-limited one
    surplus: int = 2  # times the target that may wait before items go back: brokers push more


POLICY = Policy()
RENEWAL = RenewalPolicy()
PREFETCH = PrefetchPolicy()

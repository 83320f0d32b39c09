"""The policy of the rate limiter: every number that decides when a call begins, with its reason.

The script in Redis gets `Policy` with each request. The records below `Policy` are for the
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

from msgspec import Struct, field

from aegish_dist.core.failures import LONGEST_RETRY_AFTER_S

UNLIMITED_PER_S = 10_000.0  # calls per second that no fleet reaches


class BucketPolicy(Struct, frozen=True):
    """Token buckets of calls and of tokens."""

    burst_s: float = 0.5  # of the rate saved up beyond one call; providers' bursts are longer
    batch_s: float = 0.1
    """Seconds of the rate that a worker waits for: above 10 calls/s several share a round trip."""
    debt_s: float = 60.0
    """Seconds of the rate that calls may owe at most if they used more tokens than expected: an
    answer that claims 2^53 tokens must not stop its model."""
    unlimited_per_s: float = UNLIMITED_PER_S  # calls per second from which a rate is no limit


class LeasePolicy(Struct, frozen=True):
    """Leases of the workers on concurrency and on budgets."""

    lease_s: float = 5.0
    """Seconds from a request to the end of its lease. Then a killed worker's share is free."""
    renew_s: float = 1.0  # longest wait between requests: four may fail before a lease ends
    crowded_s: float = 0.25  # wait while calls queue: other workers may give slots back
    slow_start_s: float = 0.05  # such a wait in the slow start, where every answer adds a slot
    shortest_wait_s: float = 0.02  # between two requests for a model; bounds the load on Redis
    kept_s: int = 86_400  # lifetime of a document without writes: a learned rate lasts a night


class PacingPolicy(Struct, frozen=True):
    """The rate of calls to a model whose limit is unknown."""

    unlimited_per_s: float = UNLIMITED_PER_S
    """A limit of so many calls per second, or calls in flight, is no limit."""
    first_window: int = 20  # calls in flight of the fleet at first; each answer adds one
    lowest_rate: float = 0.02  # calls per second; one in 50 s notices when a limit rises
    idle_rate: float = 0.5  # calls per second while every call is refused
    scarce_pace: float = 0.9
    """Part of a rate from headers that is used while the headers say that nothing is left: other
    programs may use the key too."""
    same_event_s: float = 1.0
    """Seconds after a decrease in which refusals belong to it, like a round trip of TCP."""
    goodput_window_s: float = 5.0  # time constant of the mean of answers per second
    goodput_margin: float = 1.15  # goodput times this bounds a limit from above: the mean lags
    decrease: float = 0.9  # AIMD. TCP halves, CUBIC takes 0.7; here the goodput shows the limit
    least_climbing: float = 0.9
    """Least part of the rate kept while it climbs, since slow answers hide the goodput then."""
    least: float = 0.7  # least part of the rate kept otherwise (CUBIC's beta)
    least_refused: float = 0.5  # least part kept after more than `few_refusals` (TCP's halving)
    few_refusals: int = 5  # up to so many refusals in an epoch, the rate is nearly right
    growth: float = 0.03
    """Additive increase (AIMD) per second, as a part of the rate refused last: three seconds after
    a decrease, the rate is near it again."""
    near_top: float = 0.97  # growth is CUBIC's from this part of the rate refused last
    top_growth: float = 0.002
    """Growth per second near the top, times the squared minutes since the decrease (CUBIC)."""
    first_growth: float = 0.1  # part of the rate per second, before a guessed rate is first refused
    longest_growth_s: float = 5.0  # most seconds of growth at once, after a time without answers
    overload_pause_s: float = 1.0
    """Seconds without calls after a 503 or 529: the provider is busy, its limit is not reached."""
    overload_apart_s: float = 5.0  # least time between such pauses: earlier calls fail too
    longest_pause_s: float = LONGEST_RETRY_AFTER_S  # a longer wait opens the circuit


class BreakerPolicy(Struct, frozen=True):
    """The circuit breaker of a model."""

    failures: int = 10
    """Failures in a row over the fleet to open the circuit: a wrong key gets at most ten calls."""
    unanswered: int = 20  # charged failures since an answer that open it, despite 429s
    first_probe_s: float = 2.0  # from the opening to the first probe; each failed probe doubles it
    longest_probe_s: float = 300.0
    """Longest wait between probes: an unreachable provider gets about twelve calls an hour."""
    longest_open_s: float = 3600.0  # longest wait for a probe, even if the provider asked for more
    shown_probes: int = 2  # failed probes after which `status` shows a model as parked


class Policy(Struct, frozen=True):
    """The policy of the script in Redis."""

    buckets: BucketPolicy = field(default_factory=BucketPolicy)
    leases: LeasePolicy = field(default_factory=LeasePolicy)
    pacing: PacingPolicy = field(default_factory=PacingPolicy)
    breaker: BreakerPolicy = field(default_factory=BreakerPolicy)


class RenewalPolicy(Struct, frozen=True):
    """How a worker asks for leases."""

    clock_margin_s: float = 1.0
    """Seconds by which a worker's lease ends before the script's, to cover the round trip."""
    gather_s: float = 0.01  # least time between two requests for a model: reports share one
    retry_s: float = 0.2  # to the first retry while Redis does not answer; each retry doubles it
    longest_retry_s: float = 5.0  # longest wait between such retries
    finish_s: float = 5.0  # longest time for the last report of a worker
    jitter: float = 0.1  # waits are longer by up to this part, so that workers do not ask in step


class PrefetchPolicy(Struct, frozen=True):
    """How many items of a model a worker fetches from the broker."""

    first_items: int = 40  # items of an unknown model: twice the window of the slow start
    per_slot: int = 2  # items for each call that may be in flight
    ahead_s: float = 1.0  # of its rate that a rate-limited model has beyond calls in flight
    unlimited: int = 1_000_000  # without limits, the broker's prefetch count bounds the items
    probers: int = 2  # items at an open circuit, and the least of a rate-limited model
    surplus: int = 2  # times the target may wait before items go back: brokers push more


POLICY = Policy()
RENEWAL = RenewalPolicy()
PREFETCH = PrefetchPolicy()

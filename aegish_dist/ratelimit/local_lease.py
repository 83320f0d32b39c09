"""The newest lease of a worker on a model, and what of it is in use; pure."""

import math
from collections import deque
from collections.abc import Callable

from aegish_dist.core.status import Blocked
from aegish_dist.ratelimit.policy import POLICY, PREFETCH, RENEWAL
from aegish_dist.ratelimit.protocol import Lease
from aegish_dist.ratelimit.run_queue import ExpectedUsage, Permit, RunQueue

LEASE_S = POLICY.leases.lease_s - RENEWAL.clock_margin_s


class ProcessSemaphore:
    """Bounds the calls in flight of a worker process over all models, which take turns."""

    def __init__(self, slots: int) -> None:
        """Begin with nothing in flight.

        Args:
            slots: Most calls in flight, at least 1.
        """
        self.free = slots
        """Further calls that may begin."""
        self._admit: deque[Callable[[], None]] = deque()

    def subscribe(self, admit: Callable[[], None]) -> None:
        """Call a function when a slot becomes free, in turn with the other subscribers."""
        self._admit.append(admit)

    def acquire(self) -> None:
        """Count a call that begins."""
        self.free -= 1

    def release(self) -> None:
        """Count a call that ended, and have others begin."""
        self.free += 1
        for _ in range(len(self._admit)):
            if self.free <= 0:
                return
            self._admit.rotate(-1)
            self._admit[-1]()


class LocalLease:
    """Counts the calls that begin and end against the newest lease."""

    def __init__(self, semaphore: ProcessSemaphore, now_s: Callable[[], float]) -> None:
        """Begin without a lease: no call may begin.

        Args:
            now_s: Clock by which leases are dated, in seconds.
        """
        self.held = 0
        """Calls in flight."""
        self.begun = 0
        """Calls begun up to now."""
        self.probing = False
        """Whether one of the calls in flight is a probe."""
        self._semaphore = semaphore
        self._now_s = now_s
        self._lease: Lease | None = None
        self._requested_at_s = -math.inf
        self._permits = 0
        self._blocked = False
        self._freed = False

    def acquire(self, run: RunQueue, expected: ExpectedUsage) -> Permit | None:
        """Begin a call.

        Returns:
            Its permit; None when no call may begin now.
        """
        lease = self._lease
        if lease is None or self._now_s() > self._requested_at_s + LEASE_S:
            return None
        if self._semaphore.free <= 0 or self._full(lease):
            return None
        if lease.metered:
            if self._permits <= 0:
                return None
            self._permits -= 1
        self.held += 1
        self.begun += 1
        self.probing |= lease.probe
        self._semaphore.acquire()
        run.begin(expected)
        return Permit(run, expected, lease.epoch, lease.probe, self.begun)

    def release(self, permit: Permit, cost: int) -> None:
        """End a call, whose slot another one may take.

        Args:
            cost: Its cost in 1e-9 USD.
        """
        permit.run.end(permit.expected, cost)
        self.held -= 1
        self.probing &= not permit.probe
        self._freed = True
        self._semaphore.release()

    def begin_request(self) -> None:
        """Note that a request is sent; slots that become free from now on are not counted in it."""
        self._freed = False
        if self._lease is not None and self._lease.probe:
            self._permits = 0  # the script gives a probe that did not begin to another worker

    def renew(self, lease: Lease, requested_at_s: float) -> None:
        """Follow a new lease.

        Args:
            requested_at_s: When it was requested, on the clock of this object.
        """
        self._lease, self._requested_at_s, self._permits = lease, requested_at_s, lease.permits

    def note_waiting(self, waiting: int) -> None:
        """Note how many calls still wait after those that the lease permits have begun."""
        self._blocked = waiting > 0

    def give_back(self) -> None:
        """Begin no further call with this lease."""
        self._requested_at_s = -math.inf

    @property
    def permits(self) -> int | None:
        """Calls that may begin with the newest lease; None when it does not count them."""
        lease = self._lease
        if lease is None or not lease.metered:
            return None
        return self._permits if self._now_s() <= self._requested_at_s + LEASE_S else 0

    @property
    def circuit_open(self) -> bool:
        """Whether the model is not called, except by probes."""
        return self._lease is not None and self._lease.circuit_open

    @property
    def blocked_by(self) -> Blocked:
        """Why a call that waits may not begin."""
        if self.circuit_open:
            return Blocked.CIRCUIT
        full = self._lease is not None and self._full(self._lease)
        return Blocked.SLOTS if full or self._semaphore.free <= 0 else Blocked.RATE

    @property
    def parked(self) -> bool:
        """Whether the circuit is open and the first probes have failed."""
        return self.circuit_open and self.failed_probes >= POLICY.breaker.shown_probes

    @property
    def failed_probes(self) -> int:
        """Probes that failed since the circuit opened."""
        return 0 if self._lease is None else self._lease.failed_probes

    @property
    def reason(self) -> str | None:
        """The provider's words about the failure that opened the circuit; None: none are known."""
        return None if self._lease is None else self._lease.reason

    @property
    def prefetch_target(self) -> int:
        """How many items of the model this worker should hold, those in flight included."""
        lease = self._lease
        if lease is None:
            return PREFETCH.first_items
        if lease.circuit_open:
            return PREFETCH.probers
        slots = PREFETCH.unlimited if lease.slots is None else max(1, lease.slots)
        target = PREFETCH.per_slot * slots
        if lease.rate is None:
            return target
        ahead = math.ceil(lease.rate * PREFETCH.ahead_s)
        return min(target, self.held + max(PREFETCH.probers, ahead))

    @property
    def surplus_target(self) -> int | None:
        """How many calls may wait before the others go back to their queue; None: no limit."""
        if self.circuit_open:
            return PREFETCH.probers
        limited = self._lease is not None and self._lease.rate is not None
        return PREFETCH.surplus * self.prefetch_target if limited else None

    @property
    def worth_renewing(self) -> bool:
        """Whether a request before its time could let a waiting call begin."""
        lease = self._lease
        if lease is None or lease.limited:
            return False
        if self._full(lease):
            return not self._blocked
        return self._freed or (self._permits <= 0 if lease.metered else not self._blocked)

    def _full(self, lease: Lease) -> bool:
        return lease.slots is not None and self.held >= lease.slots

"""What the newest grant lets begin at one gate, and what of it is taken; pure."""

import math
from collections import deque
from collections.abc import Callable

from aegish_dist.ratelimit.fair_queue import ExpectedUsage, Permit, RunQueue
from aegish_dist.ratelimit.protocol import Lease

LEASE_S = 4.0
"""How long a grant holds; shorter than the lease in the script."""
PROBERS = 2
"""Items kept at hand for the probes of a parked model; the others go back to their queue."""
PARKED_AFTER_PROBES = 2
"""A model is called parked after so many probes in vain: it may just be starting again."""
FIRST_ITEMS = 40
"""Items to fetch of a model of which nothing is known yet."""
ANY_NUMBER = 1_000_000
"""Items to fetch of a model without limits."""
SUPPLY_S = 1.0
"""Of a throttled model, as many items wait at hand as pass in this time."""


class ProcessSemaphore:
    """As many places as a process may have calls in flight; limiters take turns at free ones."""

    def __init__(self, number: int) -> None:
        """Open so many places."""
        self.free = number
        self._admitting: deque[Callable[[], None]] = deque()

    def join(self, admit: Callable[[], None]) -> None:
        """Have waiters of a gate admitted when a place is free."""
        self._admitting.append(admit)

    def take(self) -> None:
        """Count a call that begins."""
        self.free -= 1

    def leave(self) -> None:
        """Count a call that has ended, and let others begin."""
        self.free += 1
        for _ in range(len(self._admitting)):
            if self.free <= 0:
                return
            self._admitting.rotate(-1)
            self._admitting[-1]()


class LocalLease:
    """Counts the calls that begin and end against the newest grant."""

    def __init__(self, places: ProcessSemaphore, now_s: Callable[[], float]) -> None:
        """Begin without a grant: nothing may begin.

        Args:
            places: Of the process, which all its limiters share.
            now_s: The clock that grants are dated by, in seconds.
        """
        self.held = 0
        """Calls in flight."""
        self.begun = 0
        """Calls begun up to now."""
        self.probing = False
        """Whether one of them is a probe."""
        self._places = places
        self._now_s = now_s
        self._grant: Lease | None = None
        self._asked_at = -math.inf
        self._permits = 0
        self._blocked = False
        self._freed = False

    def begin(self, line: RunQueue, expected: ExpectedUsage) -> Permit | None:
        """Let a call begin; None when none may."""
        grant = self._grant
        if grant is None or self._now_s() > self._asked_at + LEASE_S or self._places.free <= 0:
            return None
        if self._full(grant):
            return None
        if grant.metered:
            if self._permits <= 0:
                return None
            self._permits -= 1
        self.held += 1
        self.begun += 1
        self.probing |= grant.probe
        self._places.take()
        line.begin(expected)
        return Permit(line, expected, grant.epoch, grant.probe, self.begun)

    def end(self, permit: Permit) -> None:
        """Count a call that has ended; its place goes to whoever waits for one."""
        self.held -= 1
        self.probing &= not permit.probe
        self._freed = True
        self._places.leave()

    def ask(self) -> None:
        """Note that the limiter is being asked: what is freed from now on it does not know."""
        self._freed = False
        if self._grant is not None and self._grant.probe:
            self._permits = 0  # a probe that did not begin is given back

    def take(self, grant: Lease, asked_at: float) -> None:
        """Go by a new grant.

        Args:
            grant: The limiter's answer.
            asked_at: When it was asked, in seconds.
        """
        self._grant, self._asked_at, self._permits = grant, asked_at, grant.permits

    def settle(self, waiting: int) -> None:
        """Note how many still wait after all were admitted whom the grant lets through."""
        self._blocked = waiting > 0

    def lapse(self) -> None:
        """Let nothing begin any more: the lease is given back."""
        self._asked_at = -math.inf

    @property
    def parked(self) -> bool:
        """Whether the model is not called, but for probes."""
        return self._grant is not None and self._grant.parked

    @property
    def failed_probes(self) -> int:
        """Failed probes since it was parked."""
        return 0 if self._grant is None else self._grant.failed_probes

    @property
    def reason(self) -> str | None:
        """The provider's words about the failure that parked it."""
        return None if self._grant is None else self._grant.reason

    @property
    def parked_for_long(self) -> bool:
        """Whether it is, and did not come back at the first probes."""
        grant = self._grant
        return grant is not None and grant.parked and grant.failed_probes >= PARKED_AFTER_PROBES

    @property
    def prefetch_target(self) -> int:
        """How many items of the model this worker should hold, those in flight included."""
        grant = self._grant
        if grant is None:
            return FIRST_ITEMS
        if grant.parked:
            return PROBERS
        slots = ANY_NUMBER if grant.slots is None else max(1, grant.slots)
        if grant.rate is None:
            return 2 * slots
        return min(2 * slots, self.held + max(PROBERS, math.ceil(grant.rate * SUPPLY_S)))

    @property
    def worth_asking(self) -> bool:
        """Whether somebody who waits could get through by asking before the time."""
        grant = self._grant
        if grant is None or grant.limited:
            return False
        if self._full(grant):
            return not self._blocked
        return self._freed or (self._permits <= 0 if grant.metered else not self._blocked)

    def _full(self, grant: Lease) -> bool:
        return grant.slots is not None and self.held >= grant.slots

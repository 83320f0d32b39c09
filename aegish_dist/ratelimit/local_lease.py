"""The newest lease of a worker on a model, the part of it in use, and the task that renews it.

One request covers all waiting calls and reports the results of finished calls. The task sends no
request that would bring nothing. It ends when no call waits and everything is reported.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

from msgspec import Struct

from aegish_dist.core.model import Limits
from aegish_dist.core.status import CallWait
from aegish_dist.errors import ItemShedError, LimiterFailedError, LimiterUnreachableError
from aegish_dist.logs import get_logger
from aegish_dist.ratelimit.fair_queue import (
    ExpectedUsage,
    FairQueue,
    Permit,
    ProcessSemaphore,
    RunQueue,
)
from aegish_dist.ratelimit.usage_report import (
    POLICY,
    Lease,
    LeaseRequest,
    RunRequest,
    UsageReport,
)

log = get_logger(__name__)

CLOCK_MARGIN_S = 1.0  # by which a worker's lease ends before the script's: the round trip
LEASE_S = POLICY["leases"]["lease_s"] - CLOCK_MARGIN_S
GATHER_S = 0.01  # least time between two requests for a model: reports share one
RETRY_S = 0.2  # to the first retry while Redis does not answer; each retry doubles it
LONGEST_RETRY_S = 5.0  # longest wait between such retries
FINISH_S = 5.0  # longest time for the last report of a worker
# Waits are longer by up to this part, so that workers do not ask in step: Floyd & Jacobson, "The
# synchronization of periodic routing messages", SIGCOMM 1993.
JITTER = 0.1


class PrefetchPolicy(Struct, frozen=True):
    """How many items of a model a worker fetches from the broker."""

    first_items: int = 40  # items of an unknown model: twice the window of the slow start
    per_slot: int = 2  # items for each call that may be in flight
    ahead_s: float = 1.0  # of its rate that a rate-limited model has beyond calls in flight
    unlimited: int = 1_000_000  # without limits, the broker's prefetch count bounds the items
    probers: int = 2  # items at an open circuit, and the least of a rate-limited model
    surplus: int = 2  # times the target may wait before items go back: brokers push more


PREFETCH = PrefetchPolicy()
_NO_LEASE = Lease(epoch=0, permits=0, wait_s=0.0, limited=True)


class Slots(Struct):
    """The processes of a guard that is a program; the models of its provider share them."""

    most: float = math.inf
    held: int = 0


class LocalLease:
    """Counts the calls that begin and end against the newest lease."""

    def __init__(self, model: str, semaphore: ProcessSemaphore, now_s: Callable[[], float]) -> None:
        self.lease = _NO_LEASE
        self.places = Slots()
        self.held = 0  # calls in flight
        self.begun = 0  # calls begun up to now
        self.probing = False  # whether one of the calls in flight is a probe
        self._model = model
        self._semaphore = semaphore
        self._now_s = now_s
        self.requested_at_s = -math.inf  # the lease ends `LEASE_S` later
        self.told_at_s = -math.inf  # the same of the newest lease, given back or not
        self._permits = 0  # counts only if the lease is metered
        self._blocked = False
        self._freed = False

    def acquire(self, run: RunQueue, expected: ExpectedUsage) -> Permit | None:
        """Begin a call and return its permit; None if no call may begin now."""
        lease = self.lease
        if lease is _NO_LEASE:  # else a model whose first lease comes earlier takes all slots
            self._semaphore.claim(self._model)
        has_ended = self._now_s() > self.requested_at_s + LEASE_S
        is_spent = lease.metered and self._permits <= 0
        if has_ended or is_spent or self._full or not self._semaphore.acquire(self._model):
            return None
        self._permits -= 1
        self.held += 1
        self.places.held += 1
        self.begun += 1
        self.probing |= lease.probe
        run.begin(expected)
        return Permit(run, expected, lease.epoch, lease.probe, self.begun, self._now_s())

    def release(self, permit: Permit, cost: int) -> None:
        """End a call at a cost in 1e-9 USD; another one may take its slot."""
        permit.run.end(permit.expected, cost)
        self.held -= 1
        self.places.held -= 1
        self.probing &= not permit.probe
        self._freed = True
        self._semaphore.release(self._model)

    def begin_request(self) -> None:
        """Note that a request is sent, which does not count slots that become free from now on."""
        self._freed = False
        if self.lease.probe:
            self._permits = 0  # if the probe has not begun, the script gives it to another worker

    def renew(self, lease: Lease, requested_at_s: float) -> None:
        self.lease = lease
        self._permits = lease.permits
        self.requested_at_s = self.told_at_s = requested_at_s

    def note_waiting(self, waiting: int) -> None:
        """Note how many calls still wait after those that the lease permits have begun."""
        self._blocked = waiting > 0

    def give_back(self) -> None:
        """Begin no further call with this lease."""
        self.requested_at_s = -math.inf

    @property
    def permits(self) -> int | None:
        """Calls that may begin with the newest lease; None when the lease does not count calls."""
        if not self.lease.metered:
            return None
        if self._now_s() <= self.requested_at_s + LEASE_S:
            return self._permits
        return 0

    @property
    def blocked_by(self) -> CallWait:
        """Why a waiting call may not begin."""
        if self.lease.circuit_open:
            return CallWait.CIRCUIT
        if self._full:
            if self.lease.congested:
                return CallWait.CONGESTION
            return CallWait.SLOTS
        return self._semaphore.blocks(self._model) or CallWait.RATE

    @property
    def prefetch_target(self) -> int:
        """How many items of the model this worker should hold, those in flight included."""
        lease = self.lease
        if lease is _NO_LEASE:
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
        """How many calls may wait; further calls go back to their queue. None: no limit."""
        if self.lease.circuit_open:
            return PREFETCH.probers
        if self.lease.rate is None:
            return None
        return PREFETCH.surplus * self.prefetch_target

    @property
    def worth_renewing(self) -> bool:
        """Whether an early request could let a waiting call begin."""
        if self.lease.limited:
            return False
        if self._full:
            return not self._blocked
        return self._freed or (self._permits <= 0 if self.lease.metered else not self._blocked)

    @property
    def _full(self) -> bool:
        return self.places.held >= self.places.most or (
            self.lease.slots is not None and self.held >= self.lease.slots
        )


# Sends a request to the script; raises LimiterUnreachableError.
RequestLease = Callable[[LeaseRequest], Awaitable[Lease]]


class LeaseRenewer:
    """Requests the leases of one model."""

    def __init__(
        self,
        model: str,
        request_lease: RequestLease,
        generator: random.Random,
        queue: FairQueue,
        lease: LocalLease,
    ) -> None:
        self.report = UsageReport()  # outcomes of calls since the last request
        self._model = model
        self._request_lease = request_lease
        self._generator = generator
        self._queue = queue
        self._lease = lease
        self.limits = self.shared = Limits()  # of the model, and of all models of its provider
        self._begun = 0  # calls of earlier reports
        self._urgent = False
        self._woken = asyncio.Event()
        self._closed = asyncio.Event()
        self._reported: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def parked(self) -> bool:
        """Whether the circuit is open, the first probes have failed, and leases are renewed."""
        lease = self._lease.lease
        shown = POLICY["breaker"]["shown_probes"]
        return self._task is not None and lease.circuit_open and lease.failed_probes >= shown

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    def wake(self, *, urgent: bool = False) -> None:
        """Send a request if it could help; send it at once if a report is urgent."""
        self._urgent |= urgent
        if self._task is None:
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._ended)
        elif self._urgent or self._worth_renewing:
            self._woken.set()

    def reported(self) -> "asyncio.Future[None]":
        """Return a future that is done once the present report has arrived or is given up."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reported.append(future)
        return future

    def close(self) -> None:
        """Let no waiting call begin any more; the open report is still sent."""
        self._closed.set()
        self._urgent = True
        self._woken.set()

    async def finish(self) -> None:
        """Wait until the last call and its cost are reported, at most `FINISH_S` seconds."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=FINISH_S)

    async def sleep(self, seconds: float) -> None:
        """Wait for so many seconds, or until `close` is called."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), seconds)

    @property
    def busy(self) -> bool:
        return bool(self._lease.held or self._queue.waiting)

    @property
    def _worth_renewing(self) -> bool:
        return self._queue.waiting > 0 and self._lease.worth_renewing

    async def _run(self) -> None:
        retry_s = RETRY_S
        while True:
            reported = self._reported
            self._reported = []
            try:
                wait_s = await self._renew()
                retry_s = RETRY_S
            except LimiterUnreachableError as error:
                if self.closed and not (self._lease.held or self._reported):
                    self.report = UsageReport()  # it cannot arrive any more
                    return
                log.warning("limiter_unreachable", problem=str(error), retry_in_s=retry_s)
                await (asyncio.sleep(retry_s) if self.closed else self.sleep(retry_s))
                wait_s = 0.0
                retry_s = min(2 * retry_s, LONGEST_RETRY_S)
            finally:
                for future in reported:
                    if not future.done():
                        future.set_result(None)
            if wait_s is None:
                return
            await self._rest(wait_s * (1 + JITTER * self._generator.random()))

    async def _renew(self) -> float | None:
        """Renew the lease; return the seconds to the next renewal, None if nothing is left."""
        self._urgent = False
        self._lease.begin_request()
        self._queue.forget_idle()  # safe only here, where no queue waits for a response
        busy = self.busy
        requests = self._queue.requests()
        lease = await self._request(requests)
        settled = await self._queue.settle(requests, lease.runs)
        self._queue.admit(self._lease.acquire)
        self._lease.note_waiting(self._queue.waiting)
        if busy or self.busy or self.report or self._reported:
            if settled:
                return lease.wait_s
            return 0.0
        self._lease.give_back()
        return None

    async def _request(self, requests: list[tuple[RunQueue, RunRequest]]) -> Lease:
        report = self.report
        self.report = UsageReport(epoch=self.report.epoch)
        report.begun += self._lease.begun - self._begun
        self._begun = self._lease.begun
        requested_at_s = now_s()
        try:
            lease = await self._request_lease(
                LeaseRequest(
                    model=self._model,
                    held=self._lease.held,
                    waiting=self._queue.waiting,
                    tokens=self._queue.tokens,
                    limits=self.limits,
                    shared=self.shared,
                    report=report,
                    runs=[request for _, request in requests],
                    probing=self._lease.probing,
                )
            )
        except LimiterUnreachableError:
            self.report = report.followed_by(self.report)
            for run, request in requests:
                run.put_back(request)
            raise
        self._follow(lease, requested_at_s)
        return lease

    def _follow(self, lease: Lease, requested_at_s: float) -> None:
        if lease.circuit_open != self._lease.lease.circuit_open:
            log.warning("model_parked" if lease.circuit_open else "model_back", model=self._model)
        self._lease.renew(lease, requested_at_s)
        if lease.epoch != self.report.epoch:
            self._begun = self._lease.begun
        self.report.enter_epoch(lease.epoch)
        keep = self._lease.surplus_target
        if keep is not None:
            self._queue.shed(ItemShedError, keep=keep, even_called=lease.circuit_open)

    async def _rest(self, wait_s: float) -> None:
        ends_s = self._lease.requested_at_s + wait_s
        if not (self._urgent or self._worth_renewing):
            self._woken.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, ends_s - now_s())):
                    await self._woken.wait()
        gap_s = min(ends_s, self._lease.requested_at_s + GATHER_S) - now_s()
        if gap_s > 0 and not self._urgent:
            await asyncio.sleep(gap_s)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._task = None
        if task.cancelled():
            return  # with the loop
        error = task.exception()
        if error is not None:
            # A bug: all waiting calls fail, and the next call that waits starts the task again.
            log.error("lease_renewal_failed", model=self._model, exc_info=error)
            self._queue.fail(LimiterFailedError)
        if self._queue.waiting or self.report:
            self.wake()


def now_s() -> float:
    return asyncio.get_running_loop().time()

"""Fairness inside a worker: the runs that call one model take turns, the models share the slots.

Each arm of a model is a contender with a queue and a cap of its own in a run.

Slots, and messages, are shared by max-min fairness (Bertsekas & Gallager, Data Networks, 1992,
section 6.5): equal parts, and what a model leaves of its part is lent to the others. A slot counts
as long as it is held. By turns, a model of 20 s soon holds nearly all beside a model of 0.5 s.
"""

import asyncio
import math
import sys
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import itemgetter
from typing import NamedTuple

from msgspec import Struct

from aegish_dist.core.status import CallWait
from aegish_dist.errors import LimiterFailedError, OverBudgetError, UnreadableRunError
from aegish_dist.logs import get_logger
from aegish_dist.ratelimit.usage_report import RunLease, RunRequest, StoredCost

log = get_logger(__name__)

IDLE_QUEUES = 100  # queues kept for idle runs, most of which have ended
# Seconds for which a model keeps at least its claim to slots that it held or wanted: longer than
# the rest of 2 s after a queue was found empty, short beside the slow calls that would borrow.
CLAIM_S = 5.0
NANO_USD = 1_000_000_000  # exact sums, in Lua too up to 9 million dollars


class Budget(Struct, frozen=True):
    """Caps on the cost of a run, in 1e-9 USD; None: no cap."""

    run_cap: int | None = None
    model_cap: int | None = None


class Accounts(Struct, frozen=True):
    """The database's view of a run's cost, by run id."""

    spent: Callable[[str], Awaitable[Mapping[str, int]]]  # cost by model so far, in 1e-9 USD
    # The present caps, which an operator may have raised; None: no cap.
    budget: Callable[[str], Awaitable[Budget | None]]


class ExpectedUsage(Struct, frozen=True):
    tokens: int = 0  # input and output
    cost: int = 0


class Permit(Struct, frozen=True, eq=False):
    """The right to make one call; its holder has to give it back to the limiter."""

    run: "RunQueue"
    expected: ExpectedUsage
    epoch: int  # epoch of the rate in which the call began
    probe: bool
    number: int = 0  # counts the calls of this limiter, from 1
    at_s: float = 0.0  # on the monotonic clock


class Waiter(NamedTuple):
    future: "asyncio.Future[Permit]"
    expected: ExpectedUsage
    called: bool  # a further attempt; a return to the queue would forget it


class RunQueue:
    """The waiting calls of a contender of a run, and its cost as far as this worker knows it."""

    def __init__(self, run_id: str, budget: Budget | None, contender: str = "") -> None:
        self.run_id = run_id
        self.contender = contender
        self.waiters: deque[Waiter] = deque()  # the next to begin is in front
        # Calls that may begin before the limiter is asked again; None: the run has no cap.
        self.permits: int | None = None if budget is None else 0
        self.over = False
        self.estimate = 0  # expected cost of the next call, in 1e-9 USD
        self.budget = budget
        self._calls = 0
        self._held = 0
        self._spent = 0
        self._stored: StoredCost | None = None

    def begin(self, expected: ExpectedUsage) -> None:
        self._calls += 1
        self._held += expected.cost
        if self.permits is not None:
            self.permits -= 1

    def end(self, expected: ExpectedUsage, cost: int) -> None:
        """Count a call that ended at a cost, in 1e-9 USD."""
        self._calls -= 1
        self._held -= expected.cost
        self._spent += cost

    @property
    def idle(self) -> bool:
        """Whether no call waits or is in flight, and every cost is reported."""
        unreported = self.budget is not None and self._spent
        return not (self.waiters or self._calls or unreported)

    def request(self) -> RunRequest | None:
        """Return the run's part of a request; None without a cap or without calls and costs."""
        if self.budget is None or not (self.waiters or self._held or self._spent):
            return None
        spent = self._spent
        self._spent = 0
        return RunRequest(
            run=self.run_id,
            contender=self.contender,
            waiting=len(self.waiters),
            held=self._held,
            estimate=self.estimate,
            spent=spent,
            cap=self.budget.run_cap,
            model_cap=self.budget.model_cap,
            stored=self._stored,
        )

    def put_back(self, request: RunRequest) -> None:
        """Report the cost again whose request did not arrive or could not be used."""
        self._spent += request.spent

    def renew(self, lease: RunLease) -> None:
        self.permits = lease.permits
        self.over = lease.over
        self._stored = None

    def recount(self, models: Mapping[str, int]) -> None:
        """Send the stored cost of each model, in 1e-9 USD, with the next request."""
        self._stored = StoredCost(sum(models.values()), models)


class FairQueue:
    """The queues of all runs that call one model."""

    def __init__(self, model: str, accounts: Accounts) -> None:
        self.waiting = 0
        self.tokens = 1  # expected tokens of the next call, at least 1
        self._model = model
        self._accounts = accounts
        self._queues: dict[tuple[str, str], RunQueue] = {}
        self._turns: deque[RunQueue] = deque()

    def __iter__(self) -> Iterator[RunQueue]:
        return iter(self._queues.values())

    def of_run(self, run_id: str, budget: Budget | None, contender: str | None = None) -> RunQueue:
        """Return the queue of a contender of a run, and mark it as the most recently used."""
        contender = contender or self._model
        key = (run_id, contender)
        # Taken out and put in again: the queues stand in the order of their last use.
        queue = self._queues.pop(key, None)
        if queue is None:
            queue = RunQueue(run_id, budget, contender)
        self._queues[key] = queue
        return queue

    def forget_idle(self) -> None:
        """Keep only the most recently used idle queues; references to the others become stale."""
        if len(self._queues) > IDLE_QUEUES:
            idle = [key for key, queue in self._queues.items() if queue.idle]
            for key in idle[:-IDLE_QUEUES]:
                del self._queues[key]

    def expect(self, run: RunQueue, expected: ExpectedUsage) -> None:
        self.tokens = max(1, expected.tokens)
        run.estimate = expected.cost

    def requests(self) -> list[tuple[RunQueue, RunRequest]]:
        """Return the parts of the next request that are about capped runs."""
        requests = [(run, run.request()) for run in self]
        return [(run, request) for run, request in requests if request is not None]

    async def settle(
        self, requests: Sequence[tuple[RunQueue, RunRequest]], leases: Sequence[RunLease]
    ) -> bool:
        """Apply the leases of capped runs; return False if a request must be sent at once."""
        settled = True
        for (run, request), lease in zip(requests, leases, strict=True):
            try:
                settled &= await self._settle(run, request, lease)
            except UnreadableRunError as error:
                log.warning("run_left_to_others", run=run.run_id, problem=str(error))
                self.fail(LimiterFailedError, only=run)
        return settled

    async def _settle(self, run: RunQueue, request: RunRequest, lease: RunLease) -> bool:
        if lease.unknown:
            run.put_back(request)
            run.recount(await self._accounts.spent(run.run_id))
            return False
        run.renew(lease)
        if await self.still_over(run):
            log.info("run_over_budget", run=run.run_id, model=run.contender)
            self.fail(OverBudgetError, only=run)
            return True
        return not lease.over

    async def still_over(self, run: RunQueue) -> bool:
        """Return whether a run has reached a cap; an operator may have raised the cap meanwhile."""
        if run.over:
            with suppress(UnreadableRunError):  # then what was known of it holds
                budget = await self._accounts.budget(run.run_id)
                if budget is not None and budget != run.budget:
                    run.budget = budget
                    run.over = False
        return run.over

    def wait(
        self, queue: RunQueue, expected: ExpectedUsage, *, called: bool = False
    ) -> "asyncio.Future[Permit]":
        future: asyncio.Future[Permit] = asyncio.get_running_loop().create_future()
        if not queue.waiters:
            self._turns.append(queue)
        queue.waiters.append(Waiter(future, expected, called))
        self.waiting += 1
        return future

    def cancel(self, queue: RunQueue, future: "asyncio.Future[Permit]") -> Permit | None:
        """Remove a cancelled call; return its permit if the permit came in the same moment."""
        if not future.cancelled():
            if future.exception() is None:
                return future.result()
            return None
        self._remove(queue, [waiter for waiter in queue.waiters if waiter.future is future])
        return None

    def admit(self, acquire: Callable[[RunQueue, ExpectedUsage], Permit | None]) -> None:
        """Give permits to waiting calls while `acquire` returns permits; the runs take turns."""
        passed = 0
        while passed < len(self._turns):
            queue = self._turns.popleft()
            if queue.permits == 0:
                self._turns.append(queue)
                passed += 1
                continue
            waiter = queue.waiters[0]
            future = waiter.future
            permit = None
            if not future.done():
                permit = acquire(queue, waiter.expected)
                if permit is None:
                    self._turns.appendleft(queue)
                    return
            queue.waiters.popleft()
            self.waiting -= 1
            passed = 0
            if permit is not None:
                future.set_result(permit)
            if queue.waiters:
                self._turns.append(queue)

    def fail(self, error: type[Exception], *, only: RunQueue | None = None) -> None:
        """Raise an error in all waiting calls, or in those of one run."""
        queues = [only] if only else list(self._turns)
        for queue in queues:
            self._fail(queue, list(queue.waiters), error)

    def shed(self, error: type[Exception], *, keep: int, even_called: bool) -> None:
        """Keep `keep` waiting calls; raise an error in the last calls of the longest queues.

        Further attempts stay in their queues unless `even_called`.
        """
        surplus = self.waiting - keep
        if surplus <= 0:
            return
        standing: list[tuple[int, RunQueue, Waiter]] = []  # with the place in its queue
        for queue in self._turns:
            for place, waiter in enumerate(queue.waiters):
                if even_called or not waiter.called:
                    standing.append((place, queue, waiter))
        # The places furthest back go first, whichever run they are of.
        standing.sort(key=itemgetter(0), reverse=True)
        for queue in list(self._turns):
            gone = [waiter for _, its_queue, waiter in standing[:surplus] if its_queue is queue]
            self._fail(queue, gone, error)

    def _fail(self, queue: RunQueue, gone: Collection[Waiter], error: type[Exception]) -> None:
        self._remove(queue, gone)
        for waiter in gone:
            if not waiter.future.done():
                waiter.future.set_exception(error())

    def _remove(self, queue: RunQueue, gone: Collection[Waiter]) -> None:
        # By identity: two calls may wait with equal expectations.
        ids = {id(waiter) for waiter in gone}
        staying = [waiter for waiter in queue.waiters if id(waiter) not in ids]
        queue.waiters = deque(staying)
        self.waiting -= len(gone)
        if not queue.waiters and queue in self._turns:
            self._turns.remove(queue)


class FairShares:
    """Divides places by what each model claims: the most that it held or wanted lately.

    A lent place is free again only when the borrower's call ends, so a claim outlasts the pauses
    between two fetches or two refills of a token bucket.
    """

    def __init__(self, places: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self.places = places
        self._now_s = now_s
        self._claims: dict[str | None, int] = {}
        self._earlier: dict[str | None, int] = {}
        self._since_s = -math.inf
        self._level: int | None = None  # by the claims alone; None: to be computed

    def claim(self, claims: Iterable[tuple[str | None, int]]) -> None:
        """Note how many places models hold or want; that counts for 1 to 2 times `CLAIM_S`."""
        age_s = self._now_s() - self._since_s
        if age_s >= CLAIM_S:
            self._earlier = self._claims if age_s < 2 * CLAIM_S else {}
            self._claims = {}
            self._since_s = self._now_s()
            self._level = None
        for model, places in claims:
            if places > self._claims.get(model, 0):
                self._claims[model] = places
                self._level = None

    def level(self, wants: Mapping[str | None, int] | None = None) -> int:
        """Return the places that a model may hold; without limit while there are enough for all.

        Args:
            wants: Places wanted at this moment, which are no claims later.
        """
        if wants is None and self._level is not None:
            return self._level
        claims = dict(self._earlier)
        for newer in (self._claims, wants or {}):
            for model, places in newer.items():
                claims[model] = max(places, claims.get(model, 0))
        level = _fill(self.places, sorted(claims.values()))
        if wants is None:
            self._level = level
        return level

    def room(
        self,
        held: Mapping[str | None, int],
        targets: Mapping[str | None, int],
        *,
        waiting: bool = True,
    ) -> dict[str | None, int]:
        """Return how many more places each model may take now on the way to its target.

        Args:
            waiting: Whether something waits for places of each model, as far as is known.
        """
        self.claim(held.items())
        level = self.level(targets if waiting else None)
        room = {}
        for model, target in targets.items():
            room[model] = max(0, min(target, level) - held.get(model, 0))
        return room


class ProcessSemaphore:
    """Bounds the calls in flight of a worker process over all models, and divides them fairly."""

    def __init__(self, slots: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self.free = slots
        self._held: Counter[str] = Counter()
        self._admit: dict[str, Callable[[], None]] = {}
        self._shares = FairShares(slots, now_s)

    def subscribe(self, model: str, admit: Callable[[], None]) -> None:
        """Call a function when a slot becomes free; the model with the fewest slots is first."""
        self._admit[model] = admit

    def claim(self, model: str) -> None:
        """Note that a model may soon want any number of slots."""
        self._shares.claim([(model, self._shares.places)])

    def acquire(self, model: str) -> bool:
        """Take a slot; False if none is free, or the model has its share while others wait."""
        held = self._held[model] + 1
        self._shares.claim([(model, held)])
        if self.free <= 0 or held > self._shares.level():
            return False
        self._held[model] = held
        self.free -= 1
        if model in self._admit:  # among models with equally many slots, the last one is last
            self._admit[model] = self._admit.pop(model)
        return True

    def release(self, model: str) -> None:
        self.free += 1
        self._held[model] -= 1
        for waiting in sorted(self._admit, key=self._held.__getitem__):
            if self.free <= 0:
                return
            self._admit[waiting]()

    def blocks(self, model: str) -> CallWait | None:
        """Return why no slot is to be had; None: a call may begin."""
        if self.free > 0 and self._held[model] < self._shares.level():
            return None
        others = self._held.total() - self._held[model]
        if others:
            return CallWait.SHARE
        return CallWait.SLOTS


def _fill(left: int, claims: Sequence[int]) -> int:
    """Return the equal part of what remains when all smaller claims are met."""
    for models, places in zip(range(len(claims), 0, -1), claims, strict=True):
        if places > (level := left / models):
            return math.ceil(level)
        left -= places
    return sys.maxsize

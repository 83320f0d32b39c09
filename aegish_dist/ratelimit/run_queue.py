"""The calls of one run to one model, in this worker: those that wait, and what the others cost."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from aegish_dist.ratelimit.protocol import RunLease, RunRequest, StoredCost

NANO_USD = 1_000_000_000
"""Costs are whole billionths of a dollar: sums of them are exact, in Lua too up to 9 million
dollars."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Caps on the cost of a run, in 1e-9 USD; None: no cap."""

    run_cap: int | None = None
    model_cap: int | None = None


@dataclass(frozen=True, slots=True)
class Accounts:
    """The database's view of a run's cost, by run id."""

    spent: Callable[[str], Awaitable[Mapping[str, int]]]
    """Returns the cost of each model up to now, in 1e-9 USD."""
    budget: Callable[[str], Awaitable[Budget | None]]
    """Returns the caps as they are now, which an operator may have raised; None: no cap."""


@dataclass(frozen=True, slots=True)
class ExpectedUsage:
    """Expected use of one call."""

    tokens: int = 0
    """Input and output tokens."""
    cost: int = 0
    """Cost in 1e-9 USD."""


@dataclass(frozen=True, slots=True, eq=False)
class Permit:
    """The right to make one call; its holder has to give it back to the limiter."""

    run: "RunQueue"
    """Queue of the run that the call is for."""
    expected: ExpectedUsage
    epoch: int
    """Epoch of the rate in which the call began."""
    probe: bool
    """Whether the call is a probe of an open circuit."""
    number: int = 0
    """Number of the call among those of this limiter, from 1."""


class Waiter(NamedTuple):
    """A call that waits for its permit."""

    future: "asyncio.Future[Permit]"
    expected: ExpectedUsage
    called: bool
    """Whether the item was called before: its attempts are forgotten when it goes back to its
    queue."""


class RunQueue:
    """The waiting calls of a run, and its cost as far as this worker knows it."""

    def __init__(self, run_id: str, budget: Budget | None) -> None:
        """Begin with an empty queue.

        Args:
            budget: Its caps; None: it has none.
        """
        self.run_id = run_id
        self.waiters: deque[Waiter] = deque()
        """Waiting calls, the first to begin in front."""
        self.permits: int | None = None if budget is None else 0
        """Calls that may begin before the limiter is asked again; None: the run has no cap."""
        self.over = False
        """Whether a cap is reached."""
        self._budget = budget
        self._estimate = 0
        self._calls = 0
        self._held = 0
        self._spent = 0
        self._stored: StoredCost | None = None

    def expect(self, expected: ExpectedUsage) -> None:
        """Note what the next call will probably cost."""
        self._estimate = expected.cost

    def begin(self, expected: ExpectedUsage) -> None:
        """Count a call that begins."""
        self._calls += 1
        self._held += expected.cost
        if self.permits is not None:
            self.permits -= 1

    def end(self, expected: ExpectedUsage, cost: int) -> None:
        """Count a call that ended at a cost, in 1e-9 USD."""
        self._calls -= 1
        self._held -= expected.cost
        self._spent += cost

    def append(self, waiter: Waiter) -> None:
        """Add a call at the end of the queue."""
        self.waiters.append(waiter)

    def pop(self) -> Waiter:
        """Take the first call out of the queue, which is not empty."""
        return self.waiters.popleft()

    def remove(self, gone: Collection[Waiter]) -> None:
        """Take waiters out of the queue."""
        ids = {id(waiter) for waiter in gone}
        self.waiters = deque(waiter for waiter in self.waiters if id(waiter) not in ids)

    @property
    def idle(self) -> bool:
        """Whether no call waits or is in flight, and every cost is reported."""
        unreported = self._budget is not None and self._spent
        return not (self.waiters or self._calls or unreported)

    def request(self) -> RunRequest | None:
        """Return the run's part of a request; None without a cap, or without anything to ask."""
        if self._budget is None or not (self.waiters or self._held or self._spent):
            return None
        spent, self._spent = self._spent, 0
        return RunRequest(
            run=self.run_id,
            waiting=len(self.waiters),
            held=self._held,
            estimate=self._estimate,
            spent=spent,
            cap=self._budget.run_cap,
            model_cap=self._budget.model_cap,
            stored=self._stored,
        )

    def put_back(self, request: RunRequest) -> None:
        """Report the cost in a request again, which did not arrive or could not be used."""
        self._spent += request.spent

    def renew(self, lease: RunLease) -> None:
        """Follow the newest lease."""
        self.permits, self.over, self._stored = lease.permits, lease.over, None

    def recount(self, models: Mapping[str, int]) -> None:
        """Send the stored cost of each model, in 1e-9 USD, with the next request."""
        self._stored = StoredCost(sum(models.values()), models)

    async def still_over(self, accounts: Accounts) -> bool:
        """Return whether a cap is reached, also after an operator may have raised it."""
        budget = await accounts.budget(self.run_id)
        if budget is not None and budget != self._budget:
            self._budget, self.over = budget, False
        return self.over

"""Who waits at a gate: one line per run, and the runs take turns."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from aegish_dist.ratelimit.budget import Budget
from aegish_dist.ratelimit.protocol import RunLease, RunRequest

IDLE_LINES = 100
"""Lines kept of runs that do nothing now; most of them have ended."""


@dataclass(frozen=True, slots=True)
class ExpectedUsage:
    """What one call will probably use."""

    tokens: int = 0
    """Input and output."""
    cost: int = 0
    """In 1e-9 USD."""


@dataclass(frozen=True, slots=True, eq=False)
class Permit:
    """The right to make one call; it has to come back to its gate."""

    line: "RunQueue"
    """Where it was waited for."""
    expected: ExpectedUsage
    """What the call will probably use."""
    epoch: int
    """The epoch of the rate it was given in."""
    probe: bool
    """Whether the call is to find out if a parked model lives again."""
    number: int = 0
    """Goes up with every call that this gate lets begin."""


class Waiter(NamedTuple):
    """One who waits."""

    future: "asyncio.Future[Permit]"
    """Gets the permit."""
    expected: ExpectedUsage
    """What the call will probably use."""
    called: bool
    """Whether the item was called before; its attempts would be forgotten if it were sent back."""


class RunQueue:
    """The waiters of one run, and its money as far as this worker knows it."""

    def __init__(self, run_id: str, budget: Budget | None) -> None:
        self.run_id = run_id
        self.budget = budget
        self.waiters: deque[Waiter] = deque()
        self.open: int | None = None if budget is None else 0
        """Calls that may begin before the limiter is asked again; None: the run has no cap."""
        self.over = False
        """Whether the cap is reached."""
        self._estimate = 0
        self._calls = 0
        self._held = 0
        self._spent = 0
        self.stored: Mapping[str, int] | None = None
        """What each model has cost by the store, while the limiter wants to be told."""

    def expect(self, expected: ExpectedUsage) -> None:
        """Note what the next call will probably cost."""
        self._estimate = expected.cost

    def begin(self, expected: ExpectedUsage) -> None:
        """Count a call that begins."""
        self._calls += 1
        self._held += expected.cost
        if self.open is not None:
            self.open -= 1

    def end(self, expected: ExpectedUsage, cost: int) -> None:
        """Count a call that has ended at this cost."""
        self._calls -= 1
        self._held -= expected.cost
        self._spent += cost

    @property
    def idle(self) -> bool:
        """Whether nobody waits, nothing is in flight and nothing is untold."""
        untold = self.budget is not None and self._spent
        return not (self.waiters or self._calls or untold)

    def ask(self) -> RunRequest | None:
        """Return what to ask for, None for a run without cap or without anything to say."""
        if self.budget is None or not (self.waiters or self._held or self._spent):
            return None
        spent, self._spent = self._spent, 0
        return RunRequest(
            run=self.run_id,
            waiting=len(self.waiters),
            held=self._held,
            estimate=self._estimate,
            spent=spent,
            cap=self.budget.run_cap,
            model_cap=self.budget.model_cap,
            stored=None if self.stored is None else _purse(self.stored),
        )

    def put_back(self, asked: RunRequest) -> None:
        """Keep what did not arrive."""
        self._spent += asked.spent

    def take(self, granted: RunLease) -> None:
        """Note what the limiter answered."""
        self.open, self.over, self.stored = granted.permits, granted.over, None


def _purse(models: Mapping[str, int]) -> dict[str, Any]:
    return {"total": sum(models.values()), "models": dict(models)}


class FairQueue:
    """The lines of all runs at one gate."""

    def __init__(self) -> None:
        self.waiting = 0
        """Waiters over all lines."""
        self._lines: dict[str, RunQueue] = {}
        self._turns: deque[RunQueue] = deque()

    def __iter__(self) -> Iterator[RunQueue]:
        return iter(self._lines.values())

    def line(self, run_id: str, budget: Budget | None) -> RunQueue:
        """Return the line of a run, from now on the latest one."""
        line = self._lines.pop(run_id) if run_id in self._lines else RunQueue(run_id, budget)
        self._lines[run_id] = line
        return line

    def forget_idle(self) -> None:
        """Keep only the latest of the idle lines; whoever holds an older one has to get it anew."""
        if len(self._lines) > IDLE_LINES:
            idle = [line.run_id for line in self._lines.values() if line.idle]
            for run_id in idle[:-IDLE_LINES]:
                del self._lines[run_id]

    def join(
        self, line: RunQueue, expected: ExpectedUsage, *, called: bool = False
    ) -> "asyncio.Future[Permit]":
        """Queue up in a line."""
        future: asyncio.Future[Permit] = asyncio.get_running_loop().create_future()
        if not line.waiters:
            self._turns.append(line)
        line.waiters.append(Waiter(future, expected, called))
        self.waiting += 1
        return future

    def leave(self, line: RunQueue, future: "asyncio.Future[Permit]") -> Permit | None:
        """Give up waiting; return a permit that came in the same moment."""
        if not future.cancelled():
            return future.result() if future.exception() is None else None
        for waiter in line.waiters:
            if waiter.future is future:
                line.waiters.remove(waiter)
                self.waiting -= 1
                break
        if not line.waiters and line in self._turns:
            self._turns.remove(line)
        return None

    def admit(self, begin: Callable[[RunQueue, ExpectedUsage], Permit | None]) -> None:
        """Give permits to the waiters, a run at a time, until none is left to give.

        Args:
            begin: Makes a permit; None when there is none.
        """
        passed = 0
        while passed < len(self._turns):
            line = self._turns.popleft()
            if line.open == 0:
                self._turns.append(line)
                passed += 1
                continue
            future = line.waiters[0].future
            permit = None if future.done() else begin(line, line.waiters[0].expected)
            if permit is None and not future.done():
                self._turns.appendleft(line)
                return
            line.waiters.popleft()
            self.waiting -= 1
            passed = 0
            if permit is not None:
                future.set_result(permit)
            if line.waiters:
                self._turns.append(line)

    def turn_away(self, error: type[Exception], *, only: RunQueue | None = None) -> None:
        """Raise an error for all waiters, or for those of one line."""
        for line in [only] if only else list(self._turns):
            self._dismiss(line, list(line.waiters), error)

    def send_back(self, error: type[Exception], *, keep: int, even_called: bool) -> None:
        """Raise an error for the latest waiters of the longest lines.

        Args:
            error: What to raise.
            keep: How many may stay.
            even_called: Whether that means those who were called before as well.
        """
        surplus = self.waiting - keep
        if surplus <= 0:
            return
        standing = [
            (before, line, waiter)
            for line in self._turns
            for before, waiter in enumerate(line.waiters)
            if even_called or not waiter.called
        ]
        standing.sort(key=lambda each: each[0], reverse=True)
        for line in list(self._turns):
            gone = [waiter for _, its, waiter in standing[:surplus] if its is line]
            self._dismiss(line, gone, error)

    def _dismiss(self, line: RunQueue, waiters: Sequence[Waiter], error: type[Exception]) -> None:
        gone = {id(waiter) for waiter in waiters}
        line.waiters = deque(waiter for waiter in line.waiters if id(waiter) not in gone)
        self.waiting -= len(gone)
        if not line.waiters and line in self._turns:
            self._turns.remove(line)
        for waiter in waiters:
            if not waiter.future.done():
                waiter.future.set_exception(error())

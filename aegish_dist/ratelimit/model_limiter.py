"""The one way to a model inside a worker process.

Whoever wants to call waits here, at the cost of one future: no connection, no thread, no message
with an eta. What the newest grant of the limiter lets begin does so without a round trip; the pump
asks for the next one.
"""

import asyncio
import math
from dataclasses import replace

from aegish_dist.core.failures import KINDS, Evidence
from aegish_dist.core.limits import Limits, RateHint
from aegish_dist.core.verdict import ErrorClass
from aegish_dist.errors import ItemShedError, OverBudgetError, ShuttingDownError
from aegish_dist.ratelimit.budget import Budget
from aegish_dist.ratelimit.fair_queue import ExpectedUsage, FairQueue, Permit, RunQueue
from aegish_dist.ratelimit.lease_renewer import LeaseRenewer, now_s
from aegish_dist.ratelimit.local_lease import PROBERS, LocalLease
from aegish_dist.ratelimit.ports import Ports
from aegish_dist.ratelimit.usage_report import News

SENT_BACK_AFTER_S = 1.0
"""How long an item that comes to a parked model is held: it would be delivered again at once."""
WATCH_S, WATCH_STEP_S = 60.0, 0.25
"""How long a failure is held for an answer to another call, and how often that is looked for."""
IDLE_S = 2.0
"""How long no other call may be in sight before no answer is expected: fetching takes a while."""


class ModelLimiter:
    """Admits calls to one model."""

    def __init__(self, model: str, limits: Limits, shared: Limits, ports: Ports) -> None:
        """Compose a gate; it asks nothing before the first waiter.

        Args:
            model: Canonical id.
            limits: Of the model.
            shared: Of all models of its provider together.
            ports: What it needs from outside.
        """
        self._room = FairQueue()
        self._news = News()
        self._ration = LocalLease(ports.places, now_s)
        self._pump = LeaseRenewer(model, ports, self._room, self._ration, self._news)
        self.set_limits(limits, shared)
        ports.places.join(self._admit)
        self._answered_number = 0
        self._answered_at_s = -math.inf
        self._watched = 0

    def set_limits(self, limits: Limits, shared: Limits) -> None:
        """LeaseRequest within these limits from now on.

        Args:
            limits: Of the model.
            shared: Of all models of its provider together.
        """
        self._pump.limits, self._pump.shared = limits, shared

    async def acquire(
        self,
        run_id: str,
        expected: ExpectedUsage,
        budget: Budget | None = None,
        *,
        called: bool = False,
    ) -> Permit:
        """Wait until a call may begin.

        Args:
            run_id: The run; runs take turns.
            expected: What the call will probably use.
            budget: The caps of the run, the same at every call; None: it has none.
            called: Whether this is a further attempt; those wait out a mere throttling.

        Returns:
            A permit that has to come back by `answered`, `failed` or `abandon`.

        Raises:
            ItemShedError: The model is parked, or takes far fewer calls than wait here.
            OverBudgetError: The run has spent what it may.
            ShuttingDownError: The gate closed.
        """
        await self._check(self._room.line(run_id, budget))
        line = self._room.line(run_id, budget)  # it may have been forgotten meanwhile
        line.expect(expected)
        self._pump.tokens = max(1, expected.tokens)
        if not self._room.waiting and line.open != 0:
            permit = self._ration.begin(line, expected)
            if permit is not None:
                return permit
        future = self._room.join(line, expected, called=called)
        self._admit()  # those who wait may lack nothing but money
        self._pump.stir()
        try:
            return await future
        except asyncio.CancelledError:
            permit = self._room.leave(line, future)
            if permit is not None:
                self.release(permit)
            raise

    def succeeded(self, permit: Permit, *, tokens: int | None, cost: int | None) -> None:
        """Give a permit back after an answer.

        Args:
            permit: What `enter` returned.
            tokens: Used by the call; as expected when None.
            cost: Of the call in 1e-9 USD; as expected when None.
        """
        expected = permit.expected
        self._answered_number = max(self._answered_number, permit.number)
        self._answered_at_s = now_s()
        self._news.answer(permit.epoch, 0 if tokens is None else tokens - expected.tokens)
        self._leave(permit, expected.cost if cost is None else cost)

    async def failed(
        self,
        permit: Permit,
        error_class: ErrorClass,
        retry_after_s: float | None,
        words: str,
        *,
        silent_s: float = 0.0,
    ) -> None:
        """Give a permit back after a failure, and hear what the fleet makes of it.

        Args:
            permit: What `enter` returned.
            error_class: Why the call failed.
            retry_after_s: What the provider asked us to wait.
            words: The provider's message.
            silent_s: Only if no call was answered for so long, the failure counts for the breaker.
        """
        charged = KINDS[error_class].charged
        self._news.failure(
            permit.epoch,
            error_class,
            retry_after_s,
            probe=permit.probe,
            words=words,
            others_answered=now_s() - self._answered_at_s < silent_s,
        )
        if not charged:
            self._news.nothing(permit.expected.tokens, probe=False)
        heard = self._pump.hearing()
        self._leave(permit, permit.expected.cost if charged else 0, urgent=True)
        await heard

    def evidence(self, number: int, within_s: float = math.inf) -> Evidence:
        """Return what is known of the model beside a failure.

        Args:
            number: Of the first call that failed for the item.
            within_s: Only an answer of the last so many seconds counts.
        """
        recent = now_s() - self._answered_at_s <= within_s
        answered = (self._answered_number > number and recent) or None
        return Evidence(self._ration.parked, self._ration.failed_probes, answered)

    async def await_answer(self, number: int, within_s: float = math.inf) -> Evidence:
        """Wait until a call begun later is answered, or none is in sight that could be.

        Args:
            number: Of the first call that failed for the item.
            within_s: Only an answer of the last so many seconds counts.

        Raises:
            ShuttingDownError: The gate closed.
        """
        busy_s = began_s = now_s()
        self._watched += 1
        try:
            while True:
                evidence = self.evidence(number, within_s)
                if evidence.parked or evidence.answered:
                    return evidence
                if self._ration.held or self._room.waiting:
                    busy_s = now_s()
                if now_s() >= min(began_s + WATCH_S, busy_s + IDLE_S):
                    return replace(evidence, answered=False)
                await self._pump.open_for(WATCH_STEP_S)
                if self._pump.closed:
                    raise ShuttingDownError
        finally:
            self._watched -= 1

    async def hold(self, seconds: float) -> None:
        """Wait so long, or until the model is parked or the gate closes."""
        ends_s = now_s() + seconds
        while not self._ration.parked and not self._pump.closed and now_s() < ends_s:
            await self._pump.open_for(WATCH_STEP_S)

    def release(self, permit: Permit) -> None:
        """Give a permit back whose call showed nothing."""
        self._news.nothing(permit.expected.tokens, probe=permit.probe)
        self._leave(permit, 0)

    def observe(self, hint: RateHint) -> None:
        """Take note of what a response says about rate limits."""
        if self._news.hint(hint):
            self._pump.stir(urgent=True)

    def close(self) -> None:
        """Turn away all who wait; calls in flight go on."""
        self._room.turn_away(ShuttingDownError)
        self._pump.close()

    async def finish(self) -> None:
        """Wait until the last call and its cost are told, or nobody listens."""
        await self._pump.finish()

    @property
    def parked(self) -> bool:
        """Whether the model is parked and did not come back at the first probes."""
        return self._pump.running and self._ration.parked_for_long

    @property
    def reason(self) -> str | None:
        """The provider's words about the failure that parked the model."""
        return self._ration.reason

    async def over_budget(self) -> list[str]:
        """Return the runs that have spent what they may."""
        lines = [line for line in self._room if line.over]
        over = await asyncio.gather(*map(self._pump.still_over, lines))
        return [line.run_id for line, is_over in zip(lines, over, strict=True) if is_over]

    @property
    def prefetch_target(self) -> int:
        """How many items of the model this worker should hold, those in flight included."""
        return self._ration.prefetch_target + self._watched

    async def _check(self, line: RunQueue) -> None:
        if self._ration.parked and self._room.waiting >= PROBERS:
            await self._pump.open_for(SENT_BACK_AFTER_S)
            if not self._pump.closed:
                raise ItemShedError
        if line.over and await self._pump.still_over(line):
            raise OverBudgetError
        if self._pump.closed:
            raise ShuttingDownError

    def _admit(self) -> None:
        self._room.admit(self._ration.begin)

    def _leave(self, permit: Permit, cost: int, *, urgent: bool = False) -> None:
        permit.line.end(permit.expected, cost)
        self._ration.end(permit)
        self._pump.stir(urgent=urgent)

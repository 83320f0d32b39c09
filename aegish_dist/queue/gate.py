"""The one way to a model inside a worker process.

Whoever wants to call waits here, at the cost of one future: no connection, no thread, no message
with an eta. One task per gate, the pump, asks the limiter for as many permits as there are waiters
and tells it what came of the calls before. Without a limit in sight it asks once a second, and
calls begin without a round trip.
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from aegish_dist.core.limits import Limits, RateHint
from aegish_dist.core.verdict import ErrorClass
from aegish_dist.logs import get_logger
from aegish_dist.queue.given_back import SentBackError, ShuttingDownError
from aegish_dist.queue.grants import Ask, Grant, RunAsk, RunGrant, UnreachableError
from aegish_dist.queue.news import CHARGED, SIGNS, News, Sign
from aegish_dist.queue.places import Places
from aegish_dist.queue.waiting import Budget, Expected, Line, Permit, WaitingRoom

log = get_logger(__name__)

LEASE_S = 4.0
"""How long a grant holds; shorter than the lease in the script."""
SHORTEST_GAP_S = 0.01
"""Between two asks: what comes in meanwhile shares a round trip."""
RETRY_S, LONGEST_RETRY_S = 0.2, 5.0
"""Between asks while the limiter cannot be reached."""
FINISH_S = 10.0
"""How long the last news may take to be told."""
JITTER = 0.1
"""Waits are longer by up to this part, so that a fleet does not come back in step."""
PROBERS = 2
"""Items kept at hand for the probes of a parked model; the others go back to their queue."""
SENT_BACK_AFTER_S = 1.0
"""How long an item that comes to a parked model is held, lest it be delivered again at once."""
PARKED_AFTER_PROBES = 2
"""A model is called parked after so many probes in vain: it may just be starting again."""
FIRST_ITEMS = 40
"""Items to fetch of a model of which nothing is known yet."""
ANY_NUMBER = 1_000_000
"""Items to fetch of a model without limits."""
SUPPLY_S = 1.0
"""Of a throttled model, as many items wait at hand as pass in this time."""


class OverBudgetError(Exception):
    """Raised for an item of a run that has spent what it may; it stays without a verdict."""


class GateError(Exception):
    """Raised for an item that waited when a bug stopped the gate."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What a gate needs from outside."""

    ask: Callable[[Ask], Awaitable[Grant]]
    """Asks the limiter; raises UnreachableError."""
    spent: Callable[[str], Awaitable[Mapping[str, int]]]
    """Gives what each model of a run has cost so far according to the store, in 1e-9 USD."""
    budget: Callable[[str], Awaitable[Budget | None]]
    """Gives the caps of a run as they are now; somebody may have raised them."""
    generator: random.Random
    """Source of the jitter."""
    places: Places
    """Of the process, which all its gates share."""


class Gate:
    """Admits calls to one model."""

    def __init__(self, model: str, limits: Limits, shared: Limits, ports: Ports) -> None:
        """Compose a gate; it asks nothing before the first waiter.

        Args:
            model: Canonical id.
            limits: Of the model.
            shared: Of all models of its provider together.
            ports: What it needs from outside.
        """
        self._model = model
        self.limits = limits
        self.shared = shared
        self._ports = ports
        self._room = WaitingRoom()
        self._places = ports.places
        self._places.join(self._admit)
        self._news = News()
        self._held = 0
        self._tokens = 1
        self._grant: Grant | None = None
        self._permits = 0
        self._probing = False
        self._asked_at = -math.inf
        self._blocked = False
        self._freed = False
        self._urgent = False
        self._bell = asyncio.Event()
        self._heard: list[asyncio.Future[None]] = []
        self._pump: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()

    async def enter(
        self,
        run_id: str,
        expected: Expected,
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
            SentBackError: The model is parked, or takes far fewer calls than wait here.
            OverBudgetError: The run has spent what it may.
            ShuttingDownError: The gate closed.
        """
        line = self._room.line(run_id, budget)
        await self._check(line)
        line.expect(expected)
        self._tokens = max(1, expected.tokens)
        if not self._room.waiting and line.open != 0:
            permit = self._begin(line, expected)
            if permit is not None:
                return permit
        future = self._room.join(line, expected, called=called)
        self._admit()  # those who wait may lack nothing but money
        self._stir()
        try:
            return await future
        except asyncio.CancelledError:
            permit = self._room.leave(line, future)
            if permit is not None:
                self.abandon(permit)
            raise

    def answered(self, permit: Permit, *, tokens: int | None, cost: int | None) -> None:
        """Give a permit back after an answer.

        Args:
            permit: What `enter` returned.
            tokens: Used by the call; as expected when None.
            cost: Of the call in 1e-9 USD; as expected when None.
        """
        expected = permit.expected
        self._news.answer(permit.epoch, 0 if tokens is None else tokens - expected.tokens)
        self._leave(permit, expected.cost if cost is None else cost)

    async def failed(
        self, permit: Permit, error_class: ErrorClass, retry_after_s: float | None
    ) -> bool:
        """Give a permit back after a failure, and hear what the fleet makes of it.

        Args:
            permit: What `enter` returned.
            error_class: Why the call failed.
            retry_after_s: What the provider asked us to wait.

        Returns:
            Whether the model is parked and this failure is of the kind that parks it: then it says
            nothing about the item, which should go back to its queue.
        """
        self._news.failure(permit.epoch, error_class, retry_after_s, probe=permit.probe)
        charged = error_class in CHARGED
        if not charged:
            self._news.nothing(permit.expected.tokens, probe=False)
        heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._heard.append(heard)
        self._urgent = True
        self._leave(permit, permit.expected.cost if charged else 0)
        await heard
        return SIGNS[error_class] is Sign.DEAD and self._grant is not None and self._grant.parked

    def abandon(self, permit: Permit) -> None:
        """Give a permit back whose call showed nothing."""
        self._news.nothing(permit.expected.tokens, probe=permit.probe)
        self._leave(permit, 0)

    def observe(self, hint: RateHint) -> None:
        """Take note of what a response says about rate limits."""
        if self._news.hint(hint):
            self._urgent = True
            self._stir()

    def close(self) -> None:
        """Turn away all who wait; calls in flight go on."""
        self._closed.set()
        self._room.turn_away(ShuttingDownError)
        self._urgent = True
        self._bell.set()

    async def finish(self) -> None:
        """Wait until the last call and its cost are told, or nobody listens."""
        if self._pump is not None:
            await asyncio.wait([self._pump], timeout=FINISH_S)

    @property
    def parked(self) -> bool:
        """Whether the model is parked and did not come back at the first probes."""
        if self._pump is None or self._grant is None:  # what was heard last may have passed
            return False
        return self._grant.parked and self._grant.failed_probes >= PARKED_AFTER_PROBES

    async def over_budget(self) -> list[str]:
        """Return the runs that have spent what they may."""
        lines = [line for line in self._room if line.over]
        over = await asyncio.gather(*map(self._still_over, lines))
        return [line.run_id for line, is_over in zip(lines, over, strict=True) if is_over]

    @property
    def supply(self) -> int:
        """How many items of the model this worker should hold, those in flight included."""
        grant = self._grant
        if grant is None:
            return FIRST_ITEMS
        if grant.parked:
            return PROBERS
        slots = ANY_NUMBER if grant.slots is None else max(1, grant.slots)
        if grant.rate is None:
            return 2 * slots
        return min(2 * slots, self._held + max(PROBERS, math.ceil(grant.rate * SUPPLY_S)))

    async def _check(self, line: Line) -> None:
        if self._grant is not None and self._grant.parked and self._room.waiting >= PROBERS:
            await self._open_for(SENT_BACK_AFTER_S)
            if not self._closed.is_set():
                raise SentBackError
        if line.over and await self._still_over(line):
            raise OverBudgetError
        if self._closed.is_set():
            raise ShuttingDownError

    async def _still_over(self, line: Line) -> bool:
        """Whether the cap that a run has reached was not raised meanwhile."""
        budget = await self._ports.budget(line.run_id)
        if budget is not None and budget != line.budget:
            line.budget, line.over = budget, False
        return line.over

    def _begin(self, line: Line, expected: Expected) -> Permit | None:
        grant = self._grant
        if grant is None or _now_s() > self._asked_at + LEASE_S or self._places.free <= 0:
            return None
        if grant.slots is not None and self._held >= grant.slots:
            return None
        if grant.metered:
            if self._permits <= 0:
                return None
            self._permits -= 1
        self._held += 1
        self._probing |= grant.probe
        self._places.take()
        line.begin(expected)
        return Permit(line, expected, grant.epoch, grant.probe)

    def _admit(self) -> None:
        self._room.admit(self._begin)

    def _leave(self, permit: Permit, cost: int) -> None:
        permit.line.end(permit.expected, cost)
        self._held -= 1
        self._probing &= not permit.probe
        self._places.leave()
        self._freed = True
        self._stir()

    def _stir(self) -> None:
        """Have the pump ask where that could help."""
        if self._pump is None:
            self._pump = asyncio.create_task(self._run())
            self._pump.add_done_callback(self._ended)
        elif self._urgent or self._worth_asking:
            self._bell.set()

    @property
    def _worth_asking(self) -> bool:
        """Whether a waiter could get through by asking before the time."""
        grant = self._grant
        if not self._room.waiting or grant is None or grant.limited:
            return False
        if grant.slots is not None and self._held >= grant.slots:
            return not self._blocked
        return self._freed or (self._permits <= 0 if grant.metered else not self._blocked)

    async def _run(self) -> None:
        retry_s = RETRY_S
        while True:
            heard, self._heard = self._heard, []
            try:
                wait_s = await self._exchange()
                retry_s = RETRY_S
            except UnreachableError as error:
                closed = self._closed.is_set()
                if closed and not (self._held or self._heard):
                    self._news.take()  # nobody will hear it
                    return
                log.warning("limiter_unreachable", problem=str(error), retry_in_s=retry_s)
                await (asyncio.sleep(retry_s) if closed else self._open_for(retry_s))
                wait_s, retry_s = 0.0, min(2 * retry_s, LONGEST_RETRY_S)
            finally:
                for future in heard:
                    if not future.done():
                        future.set_result(None)
            if wait_s is None:
                return
            await self._rest(wait_s * (1 + JITTER * self._ports.generator.random()))

    async def _exchange(self) -> float | None:
        """Ask once; return the seconds to the next time, None when there is nothing to ask for."""
        self._urgent = self._freed = False
        if self._grant is not None and self._grant.probe:
            self._permits = 0  # a probe that did not begin is given back
        asked = [(line, run) for line in self._room if (run := line.ask()) is not None]
        told = self._news.take()
        held, waiting = self._held, self._room.waiting
        ask = Ask(
            model=self._model,
            held=held,
            waiting=waiting,
            tokens=self._tokens,
            limits=self.limits,
            shared=self.shared,
            told=told,
            runs=[run for _, run in asked],
            probing=self._probing,
        )
        now = _now_s()
        try:
            grant = await self._ports.ask(ask)
        except UnreachableError:
            self._news.put_back(told)
            for line, run in asked:
                line.put_back(run)
            raise
        self._asked_at = now
        self._take(grant)
        settled = [
            await self._settle(line, run, granted)
            for (line, run), granted in zip(asked, grant.runs, strict=True)
        ]
        self._admit()
        self._blocked = self._room.waiting > 0
        if held or waiting or self._held or self._room.waiting or self._news or self._heard:
            return grant.wait_s if all(settled) else 0.0
        self._asked_at = -math.inf  # the lease is given back
        return None

    def _take(self, grant: Grant) -> None:
        parked_before = self._grant is not None and self._grant.parked
        if grant.parked != parked_before:
            log.warning("model_parked" if grant.parked else "model_back", model=self._model)
        self._grant, self._permits = grant, grant.permits
        self._news.enter_epoch(grant.epoch)
        if grant.parked:
            self._room.send_back(SentBackError, keep=PROBERS, even_called=True)
        elif grant.rate is not None:
            # A broker that pushes may have sent more than was asked for.
            self._room.send_back(SentBackError, keep=2 * self.supply, even_called=False)

    async def _settle(self, line: Line, asked: RunAsk, granted: RunGrant) -> bool:
        """Take note of what a run may do; return whether asking again at once is in vain."""
        if granted.unknown:
            line.put_back(asked)
            line.stored = await self._ports.spent(line.run_id)
            return False
        line.take(granted)
        if not line.over:
            return True
        if not await self._still_over(line):
            return False
        log.warning("run_over_budget", run=line.run_id, model=self._model)
        self._room.turn_away(OverBudgetError, only=line)
        return True

    async def _rest(self, wait_s: float) -> None:
        ends = self._asked_at + wait_s
        if not (self._urgent or self._worth_asking):
            self._bell.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, ends - _now_s())):
                    await self._bell.wait()
        gap_s = min(ends, self._asked_at + SHORTEST_GAP_S) - _now_s()
        if gap_s > 0 and not self._urgent:
            await asyncio.sleep(gap_s)

    async def _open_for(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), seconds)

    def _ended(self, pump: "asyncio.Task[None]") -> None:
        self._pump = None
        if pump.cancelled():
            return  # with the loop
        error = pump.exception()
        if error is not None:
            # A bug: whoever waits fails with it, and the next one to come tries anew.
            log.error("gate_failed", model=self._model, exc_info=error)
            self._room.turn_away(GateError)
        if self._room.waiting or self._news:
            self._stir()


def _now_s() -> float:
    return asyncio.get_running_loop().time()

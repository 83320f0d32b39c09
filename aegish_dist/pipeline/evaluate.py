"""Evaluating one item: look, wait at the limiter, call, retry, record.

Runs inside a worker process, hundreds of items at once on one event loop. No transaction spans a
call: the look-up and the insert are transactions of their own, made in groups by the caller's
ports.
"""

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import NamedTuple

from aegish_dist.core.completion import Completion
from aegish_dist.core.cost import Price, cost_usd
from aegish_dist.core.failures import Failure, GiveUp, Proof, RetryAfter, Step, decide
from aegish_dist.core.parsing import PARSER_VERSION, judge
from aegish_dist.core.verdict import CallError, ErrorClass, Item, Outcome, Timing, Verdict
from aegish_dist.db.verdict_rows import VerdictKey
from aegish_dist.db.verdicts import LookUp
from aegish_dist.errors import (
    CatalogError,
    ConfigError,
    ItemShedError,
    LimiterFailedError,
    ProviderError,
    RedeliveredError,
    ShuttingDownError,
    UnservedModelError,
)
from aegish_dist.logs import get_logger
from aegish_dist.pipeline.expectation import UsageEstimator
from aegish_dist.pipeline.health import Health
from aegish_dist.providers.contract import ModelClient
from aegish_dist.ratelimit.budget import Budget
from aegish_dist.ratelimit.model_limiter import ModelLimiter
from aegish_dist.ratelimit.run_queue import Permit

log = get_logger(__name__)

GIVEN_BACK_AFTER_S = 15.0
"""How long an item is held whose model lacks a key here."""
HELD_AFTER_FAILURE_S = 5.0
"""How long an item is held whose failure is no verdict, unless its model is parked before."""
SECOND_LOOK_AFTER_S = 10.0
"""An item that waited longer for its call is looked up again: a copy of its message may have been
done by another worker, and a look-up costs nothing beside a call."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A model of a run, ready to be called."""

    client: ModelClient
    """Speaks to the provider with the run's prompt and parameters."""
    limiter: ModelLimiter
    """Admits calls to this model, whatever the run."""
    expectation: UsageEstimator
    """What a call will use."""
    price: Price | None
    """The run's price list."""
    budget: Budget | None = None
    """What the run may cost; None: no bound."""


class Evaluated(NamedTuple):
    """A verdict on its way to the store."""

    item: Item
    """Its item, as the message names it."""
    key: VerdictKey
    """The same in those of the store."""
    verdict: Verdict
    """The verdict."""


@dataclass(slots=True)
class _Clock:
    """Where the time of one item went, in seconds."""

    queue: float
    limiter: float = 0.0
    backoff: float = 0.0
    service: float = 0.0
    started: float = field(default_factory=time.monotonic)
    looked_up: float = field(default_factory=time.monotonic)
    """When the store was asked last whether the verdict exists."""

    def timing(self) -> Timing:
        total = self.queue + time.monotonic() - self.started
        parts = (self.queue, self.limiter, self.backoff, self.service, total)
        return Timing(*(round(part * 1000, 3) for part in parts))


class Evaluator:
    """Turns items into stored verdicts."""

    def __init__(
        self,
        *,
        look_up: Callable[[Item], Awaitable[LookUp | None]],
        answered: Callable[[int], Awaitable[bool]],
        record: Callable[[Evaluated], Awaitable[None]],
        caller: Callable[[str, str], Awaitable[Caller]],
        health: Health,
        worker: str,
        generator: random.Random,
    ) -> None:
        """Compose an evaluator.

        Args:
            look_up: Finds an item's command and whether its verdict exists; None: no such item.
            answered: Finds whether a model of a run, by its key in the store, has any answer there.
            record: Returns once the verdict is committed.
            caller: Gives the caller for a run id and a model id.
            health: Of the store; no call begins while it is not good.
            worker: Name written beside every verdict.
            generator: Source of the jitter between attempts.
        """
        self._look_up = look_up
        self._answered_in_run = answered
        self._record = record
        self._caller = caller
        self._health = health
        self._worker = worker
        self._generator = generator
        self._stopping = asyncio.Event()
        self._unserved: set[str] = set()
        self._held: dict[Item, asyncio.Future[None] | None] = {}
        self.in_flight: Counter[tuple[str, str]] = Counter()
        """Items held, by run id and model."""

    @property
    def takes_items(self) -> bool:
        """Whether new items are welcome: answers to them could be stored."""
        return self._health.good

    def stop(self) -> None:
        """Begin no further call; calls in flight go on."""
        self._stopping.set()

    async def evaluate(
        self, item: Item, enqueued_at: float | None, is_held: Callable[[], bool] = lambda: True
    ) -> None:
        """Bring one item to its verdict; when this returns, the verdict is committed.

        An item whose verdict exists, or that no run plans, costs no call. Neither does one that is
        under way in this process already: brokers deliver twice what they believe lost.

        Args:
            item: What to evaluate.
            enqueued_at: When it was published, in seconds since the epoch; None when unknown.
            is_held: Whether the broker still counts its message as delivered to this worker.

        Raises:
            RequeueError: The worker stops or cannot call this model, the model is parked or takes
                too few, or the broker passed the item on: it has to go back to its queue.
            OverBudgetError: The run has spent what it may; the item stays without a verdict.
        """
        if item in self._held:
            await self._end_of(item)
            return
        clock = _Clock(max(0.0, time.time() - enqueued_at) if enqueued_at else 0.0)
        key = (item.run_id, item.model)
        self.in_flight[key] += 1
        self._held[item] = None
        error: BaseException | None = None
        try:
            await self._settle(item, clock, is_held)
        except BaseException as caught:
            error = caught
            raise
        finally:
            copies = self._held.pop(item)
            if copies is not None and not copies.done():
                _finish(copies, error)
            self.in_flight[key] -= 1
            if not self.in_flight[key]:
                del self.in_flight[key]  # the run may have ended

    async def _end_of(self, item: Item) -> None:
        """Wait for the first copy of an item, and end as it does."""
        copies = self._held[item]
        if copies is None:
            copies = self._held[item] = asyncio.get_running_loop().create_future()
        await asyncio.shield(copies)

    async def _settle(self, item: Item, clock: _Clock, is_held: Callable[[], bool]) -> None:
        found = await self._look_up(item)
        clock.looked_up = time.monotonic()
        if found is None:
            log.warning("unknown_item", run=item.run_id, model=item.model, sample=item.sample_key)
            return
        if found.done:
            return
        caller = await self._serving(item, clock)
        try:
            verdict = await self._judge(caller, item, found, clock, is_held)
        except LimiterFailedError:  # a bug, which the next one to wait may meet again
            await self._pause(HELD_AFTER_FAILURE_S, clock)
            raise
        if verdict is not None:
            await self._record(Evaluated(item, found.key, verdict))

    async def _serving(self, item: Item, clock: _Clock) -> Caller:
        try:
            return await self._caller(item.run_id, item.model)
        except (ConfigError, CatalogError) as error:
            if item.model not in self._unserved:
                self._unserved.add(item.model)
                log.error("model_not_served_here", model=item.model, problem=str(error))
            # Held a while, lest it be delivered here again at once.
            await self._pause(GIVEN_BACK_AFTER_S, clock)
            raise UnservedModelError from error

    async def _judge(
        self,
        caller: Caller,
        item: Item,
        found: LookUp,
        clock: _Clock,
        is_held: Callable[[], bool],
    ) -> Verdict | None:
        """Return the verdict; None when another worker has stored one meanwhile.

        Raises:
            ItemShedError: The failure says nothing about the item.
        """
        errors: list[CallError] = []
        first_call = 0
        while True:
            permit = await self._permit(caller, item, found.command, clock, called=bool(errors))
            if permit is None:
                return None
            if not (is_held() or self._held[item]):  # a copy may have come here again
                caller.limiter.release(permit)
                raise RedeliveredError
            first_call = first_call or permit.number
            try:
                completion = await self._attempt(caller, permit, found.command, clock)
            except ProviderError as error:
                errors.append(_call_error(error, len(errors) + 1))
                cut = error.cut
            else:
                return self._answered(completion, caller.price, clock, errors)
            last = errors[-1]
            failure = Failure(
                last.error_class, last.attempt, last.retry_after_s, permit.probe, last.status, cut
            )
            match await self._decide(caller.limiter, found.key, failure, first_call, clock):
                case GiveUp(outcome):
                    return self._given_up(outcome, clock, errors)
                case RetryAfter(seconds):
                    await self._pause(seconds, clock)
                case _:
                    await caller.limiter.answers.hold(HELD_AFTER_FAILURE_S)
                    raise ItemShedError

    async def _decide(
        self,
        limiter: ModelLimiter,
        key: VerdictKey,
        failure: Failure,
        first_call: int,
        clock: _Clock,
    ) -> GiveUp | RetryAfter | Step:
        """Gather as much evidence as the decision takes."""
        within_s = math.inf
        if failure.kind.proof is Proof.CIRCUIT_CLOSED:
            # Answers of the time before the provider went silent prove nothing.
            within_s = clock.service / 2
        evidence = limiter.answers.evidence(first_call, within_s)
        jitter = self._generator.random()
        step = decide(failure, evidence, jitter)
        if step is Step.AWAIT_ANSWER:
            evidence = await limiter.answers.wait(first_call, within_s)
            step = decide(failure, evidence, jitter)
        if step is Step.ASK_STORE:
            in_run = await self._answered_in_run(key.run_model_id)
            step = decide(failure, replace(evidence, answered_in_run=in_run), jitter)
        return step

    async def _permit(
        self, caller: Caller, item: Item, command: str, clock: _Clock, *, called: bool
    ) -> Permit | None:
        """Wait until a call may begin; None when it need not, as the verdict exists by now."""
        limiter, expected = caller.limiter, caller.expectation.of(command)
        while True:
            if not self._health.good:
                await self._recovered(clock)
            waiting_since = time.monotonic()
            permit = await limiter.acquire(item.run_id, expected, caller.budget, called=called)
            now = time.monotonic()
            clock.limiter += now - waiting_since
            try:
                if now - clock.looked_up > SECOND_LOOK_AFTER_S and await self._is_done(item, clock):
                    limiter.release(permit)
                    return None
            except BaseException:
                limiter.release(permit)
                raise
            if self._health.good:
                return permit
            limiter.release(permit)

    async def _is_done(self, item: Item, clock: _Clock) -> bool:
        found = await self._look_up(item)
        clock.looked_up = time.monotonic()
        return found is None or found.done

    async def _recovered(self, clock: _Clock) -> None:
        """Hold an item while no answer to it could be stored."""
        started = time.monotonic()
        waits = [
            asyncio.ensure_future(e) for e in (self._health.recovered(), self._stopping.wait())
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._stopping.is_set():
            raise ShuttingDownError
        clock.backoff += time.monotonic() - started

    async def _attempt(
        self, caller: Caller, permit: Permit, command: str, clock: _Clock
    ) -> Completion:
        limiter, expectation = caller.limiter, caller.expectation
        started = time.monotonic()
        try:
            completion = await caller.client.complete(command)
        except ProviderError as error:
            clock.service = time.monotonic() - started
            kind = ErrorClass(error.error_class)
            # Of a model that is slow with many commands, deadlines come in rows.
            silent_s = clock.service / 2 if kind is ErrorClass.DEADLINE else 0.0
            await limiter.failed(permit, kind, error.retry_after_s, str(error), silent_s=silent_s)
            raise
        except BaseException:
            limiter.release(permit)
            raise
        clock.service = time.monotonic() - started
        tokens, cost = expectation.used(completion)
        limiter.succeeded(permit, tokens=tokens, cost=cost)
        return completion

    async def _pause(self, seconds: float, clock: _Clock) -> None:
        started = time.monotonic()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
            raise ShuttingDownError
        clock.backoff += time.monotonic() - started

    def _answered(
        self, completion: Completion, price: Price | None, clock: _Clock, errors: list[CallError]
    ) -> Verdict:
        return replace(
            judge(completion),
            cost_usd=cost_usd(completion.usage, price),
            timing=clock.timing(),
            attempts=len(errors) + 1,
            worker=self._worker,
            created_at=datetime.now(UTC),
            call_errors=tuple(errors),
        )

    def _given_up(self, outcome: Outcome, clock: _Clock, errors: list[CallError]) -> Verdict:
        return Verdict(
            outcome=outcome,
            completion=None,
            error_class=errors[-1].error_class,
            parser_version=PARSER_VERSION,
            timing=clock.timing(),
            attempts=len(errors),
            worker=self._worker,
            created_at=datetime.now(UTC),
            call_errors=tuple(errors),
        )


def _finish(copies: "asyncio.Future[None]", error: BaseException | None) -> None:
    """Have the copies of a message end as the first one did."""
    if error is None:
        copies.set_result(None)
    elif isinstance(error, Exception):
        copies.set_exception(error)
    else:
        copies.cancel()


def _call_error(error: ProviderError, attempt: int) -> CallError:
    return CallError(
        attempt=attempt,
        error_class=ErrorClass(error.error_class),
        status=error.status,
        retry_after_s=error.retry_after_s,
        message=str(error),
        at=datetime.now(UTC),
    )

"""Evaluating one item: look it up, get its answer, record the verdict.

Runs inside a worker process, hundreds of items at once on one event loop. The look-up and the
insert are transactions of their own, made in groups by the caller's ports; no transaction spans a
call. What follows a failed call is decided by `core.failures`.
"""

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from aegish_dist.core.failures import Failure, GiveUp, Proof, RetryAfter, Step, decide
from aegish_dist.core.model import cost_usd
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.verdict import CallError, Completion, Item, Verdict
from aegish_dist.db.schema import VerdictKey
from aegish_dist.db.verdicts import LookUp
from aegish_dist.errors import (
    BatchedItemError,
    CatalogError,
    ConfigError,
    ItemShedError,
    LimiterFailedError,
    ProviderError,
    RedeliveredError,
    RunHeldError,
    UnreadableRunError,
    UnservedModelError,
)
from aegish_dist.logs import get_logger
from aegish_dist.opinions.parsing import judge, says_nothing
from aegish_dist.pipeline.caller import (
    Caller,
    CallGate,
    FailingItems,
    Health,
    ItemClock,
    counting,
    note_verdict,
)
from aegish_dist.ratelimit.fair_queue import Permit
from aegish_dist.telemetry.tracing import part_span

log = get_logger(__name__)

# Seconds that an item is held whose failure is no verdict, unless its circuit opens before.
HELD_AFTER_FAILURE_S = 5.0
# Seconds that an item is held whose model this worker cannot call: it may be delivered here again
# at once.
HELD_UNSERVED_S = 15.0
# Seconds of waiting after which an item is looked up again before its call: another worker may
# have stored the verdict of a copy of its message, and a look-up costs nothing beside a call.
SECOND_LOOK_AFTER_S = 10.0


class Evaluated(NamedTuple):
    item: Item
    key: VerdictKey
    verdict: Verdict


class Attempt(Struct, frozen=True):
    item: Item
    found: LookUp
    caller: Caller
    clock: ItemClock
    is_held: Callable[[], bool]


class Evaluator:
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
        note: Callable[[Item | None], None],
        store_deaths: Callable[[], Awaitable[None]],
    ) -> None:
        """Compose an evaluator.

        Args:
            look_up: Finds an item's command and whether its verdict exists; None: no such item.
            answered: Finds whether a model of a run, by its key in the store, has any answer there.
            caller: Returns the caller for a run id and a model id.
            health: Of the store; no call begins while it is not good.
            note: Called with an item before its answer is read, which may end the process, and with
                None afterwards.
            store_deaths: Stores which workers of this machine have ended so.
        """
        self._look_up = look_up
        self._answered_in_run = answered
        self._record = record
        self._caller = caller
        self._gate = CallGate(health)
        # Begins no further call; calls in flight go on.
        self.stop = self._gate.stop
        self.held = self._gate.held
        # Models, by run id, of which a call may begin only for items given up by batches.
        self.batched = self._gate.batched
        self._worker = worker
        self._generator = generator
        self._note = note
        self._unserved: set[str] = set()
        self._held: dict[Item, asyncio.Future[None] | None] = {}
        self.store_deaths = store_deaths
        self.failing = FailingItems()
        # Items held, by run id and model.
        self.in_flight: Counter[tuple[str, str]] = Counter()
        # Run id and model of the items that were begun since a reader took them out.
        self.begun: set[tuple[str, str]] = set()

    @property
    def takes_items(self) -> bool:
        """Whether new items may be fetched: verdicts on them could be stored."""
        return self._gate.health.good

    async def evaluate(
        self, item: Item, enqueued_at: float | None, is_held: Callable[[], bool] = lambda: True
    ) -> None:
        """Bring one item to its verdict; when this returns, the verdict is committed.

        An item whose verdict exists, or that no run plans, costs no call. Neither does an item that
        is under way in this process already: brokers deliver twice what they believe lost.

        Args:
            enqueued_at: Time of its publication in seconds since the epoch; None: unknown.
            is_held: Whether the broker still counts its message as delivered to this worker.

        Raises:
            RequeueError: The item has to go back to its queue; the subclass says why.
            OverBudgetError: The run has reached a cap; the item stays without a verdict.
        """
        if item in self._held:
            copies = self._held[item] or asyncio.get_running_loop().create_future()
            self._held[item] = copies
            await asyncio.shield(copies)
            return
        clock = ItemClock(max(0.0, time.time() - enqueued_at) if enqueued_at else 0.0)
        self._held[item] = None
        with counting(self.in_flight, item):
            # Only now: the thread that takes it out looks whether items of it are in flight.
            self.begun.add((item.run_id, item.model))
            try:
                await self._to_verdict(item, clock, is_held)
            except BaseException as error:
                _end_copies(self._held.pop(item), error)
                raise
            _end_copies(self._held.pop(item), None)

    async def _to_verdict(self, item: Item, clock: ItemClock, is_held: Callable[[], bool]) -> None:
        with part_span("look up"):
            found = await self._look_up(item)
        clock.looked_up = time.monotonic()
        if found is None:
            log.warning("unknown_item", run=item.run_id, model=item.model, sample=item.sample_key)
            return
        if found.done or found.batched:
            return
        if found.held:
            self.held.add(item.run_id)
            raise RunHeldError
        caller = await self._serving(item, clock)
        errors: list[CallError] = []
        try:
            verdict = await self._call_until_answered(
                Attempt(item, found, caller, clock, is_held), errors
            )
        except BatchedItemError:
            return  # it is asked in batches from now on
        except LimiterFailedError:  # a bug, which the next item to wait may meet again
            await self._gate.pause(HELD_AFTER_FAILURE_S, clock)
            raise
        finally:
            if errors:
                self.failing.forget(item)
        if verdict is not None:
            note_verdict(verdict)
            with part_span("store"):
                await self._record(Evaluated(item, found.key, verdict))

    async def _serving(self, item: Item, clock: ItemClock) -> Caller:
        try:
            return await self._caller(item.run_id, item.model)
        except (ConfigError, CatalogError, UnreadableRunError) as error:
            if item.model not in self._unserved:
                self._unserved.add(item.model)
                log.error("model_not_served_here", model=item.model, problem=str(error))
            with self.held.ends_wait(item.run_id):
                await self._gate.pause(HELD_UNSERVED_S, clock)
            raise UnservedModelError from error

    async def _call_until_answered(self, of: Attempt, errors: list[CallError]) -> Verdict | None:
        """Call a model until an item has its answer, or its failure is known to be its own.

        Returns None when another worker has stored a verdict meanwhile.
        """
        first_call = 0
        ends_wait = partial(self._gate.for_call, of.item, live=of.found.live)
        while True:
            with ends_wait():
                permit = await self._permit(of, called=bool(errors))
            if permit is None:
                return None
            # Of a message that the broker has taken back, a copy may have come here again.
            if not of.is_held() and self._held[of.item] is None:
                of.caller.limiter.release(permit)
                raise RedeliveredError
            first_call = first_call or permit.number
            try:
                completion = await _call(of, permit)
            except ProviderError as error:
                attempt, kind = len(errors) + 1, ErrorClass(error.error_class)
                status, wait_s, now = error.status, error.retry_after_s, datetime.now(UTC)
                errors.append(CallError(attempt, kind, status, wait_s, str(error), now))
                self.failing.note(of.item, errors)
                failure = Failure(kind, attempt, wait_s, permit.probe, status, error.cut)
                lost = Verdict(failure.kind.outcome, None, kind)
            else:
                self._note(of.item)
                try:
                    lost = judge(completion, of.found.command, of.caller.output)
                finally:
                    self._note(None)
                if not says_nothing(completion):
                    return self._signed(lost, of, errors)
                # The model's own, like a missed deadline, unless it says nothing to any command.
                kind, attempt = ErrorClass.DEADLINE, len(errors) + 1
                failure = Failure(kind, attempt, probe=permit.probe, empty=True)
            with ends_wait():
                step = await self._decide(of, failure, first_call)
            match step:
                case GiveUp():
                    return self._signed(lost, of, errors)
                case RetryAfter(seconds):
                    backing_off = counting(self.failing.backing_off, of.item)
                    # Refusals may go on as long as the run: others are called meanwhile.
                    is_refused = kind is ErrorClass.RATE_LIMIT
                    apart = of.caller.limiter.answers.between_calls if is_refused else nullcontext
                    with ends_wait(), backing_off, apart():
                        await self._gate.pause(seconds, of.clock)
                case _:
                    with ends_wait():
                        await of.caller.limiter.answers.hold(HELD_AFTER_FAILURE_S)
                    raise ItemShedError

    async def _permit(self, of: Attempt, *, called: bool) -> Permit | None:
        """Wait until a call may begin; None when its verdict has been stored meanwhile."""
        limiter, clock = of.caller.limiter, of.clock
        expected = of.caller.estimator.expected(of.found.command)
        while True:
            await self._gate.until_good(clock)
            waiting_since = time.monotonic()
            permit = await limiter.acquire(
                of.item.run_id, expected, of.caller.budget, called=called, contender=of.item.model
            )
            now = time.monotonic()
            clock.limiter += now - waiting_since
            with ExitStack() as unused:
                unused.callback(limiter.release, permit)
                if now - clock.looked_up > SECOND_LOOK_AFTER_S and await self._is_done(of):
                    return None
                if self._gate.health.good:
                    unused.pop_all()
                    return permit

    async def _is_done(self, of: Attempt) -> bool:
        found = await self._look_up(of.item)
        of.clock.looked_up = time.monotonic()
        return found is None or found.done

    async def _decide(
        self, of: Attempt, failure: Failure, first_call: int
    ) -> GiveUp | RetryAfter | Step:
        # Answers of the time before a provider went silent prove nothing.
        since_s = -math.inf
        if failure.kind.proof is Proof.CIRCUIT_CLOSED:
            since_s = time.monotonic() - (0 if failure.empty else of.clock.service / 2)
        answers = of.caller.limiter.answers
        queued = not failure.empty and answers.queued_within(of.clock.service)
        evidence = replace(answers.evidence(first_call, since_s), congested=queued)
        jitter = self._generator.random()
        step = decide(failure, evidence, jitter)
        if step is Step.AWAIT_ANSWER:
            evidence = await answers.wait(first_call, since_s)
            step = decide(failure, evidence, jitter)
        if step is Step.ASK_STORE:
            in_run = await self._answered_in_run(of.found.key.run_model_id)
            step = decide(failure, replace(evidence, answered_in_run=in_run), jitter)
        return step

    def _signed(self, verdict: Verdict, of: Attempt, errors: list[CallError]) -> Verdict:
        answer = verdict.completion
        return replace(
            verdict,
            cost_usd=None
            if answer is None
            else cost_usd(answer.usage, of.caller.price, of.clock.service),
            timing=of.clock.timing(),
            attempts=len(errors) + (answer is not None),
            worker=self._worker,
            created_at=datetime.now(UTC),
            call_errors=tuple(errors),
        )


def _end_copies(copies: "asyncio.Future[None] | None", error: BaseException | None) -> None:
    if copies is None or copies.done():
        return
    if error is None:
        copies.set_result(None)
    elif isinstance(error, Exception):
        copies.set_exception(error)
    else:
        copies.cancel()


async def _call(of: Attempt, permit: Permit) -> Completion:
    limiter, clock = of.caller.limiter, of.clock
    started = time.monotonic()
    try:
        completion = await of.caller.client.complete(of.found.command, of.item.epoch)
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
    if completion.took_ms is not None:  # the rest is a wait for a process, or for its start
        clock.limiter += clock.service - completion.took_ms / 1000
        clock.service = completion.took_ms / 1000
    tokens, cost = of.caller.estimator.used(completion, clock.service)
    if says_nothing(completion):
        # Of a model that leaves many commands without a word, empty answers come in rows.
        silent_s, kind = 4 * clock.service, ErrorClass.DEADLINE
        await limiter.failed(permit, kind, None, "the answer is empty", silent_s=silent_s)
        return completion
    limiter.succeeded(permit, tokens=tokens, cost=cost)
    return completion

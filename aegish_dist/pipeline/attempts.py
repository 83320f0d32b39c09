"""Attempts at one item, by the rule of `core.failures`; no transaction spans a call."""

import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from aegish_dist.core.completion import Completion
from aegish_dist.core.cost import cost_usd
from aegish_dist.core.failures import Failure, GiveUp, Proof, RetryAfter, Step, decide
from aegish_dist.core.parsing import PARSER_VERSION, judge
from aegish_dist.core.verdict import CallError, ErrorClass, Item, Verdict
from aegish_dist.db.verdicts import LookUp
from aegish_dist.errors import ItemShedError, ProviderError, RedeliveredError
from aegish_dist.pipeline.caller import Caller
from aegish_dist.pipeline.failing_items import FailingItems
from aegish_dist.pipeline.waiting import ItemClock, Waits
from aegish_dist.ratelimit.run_queue import Permit

HELD_AFTER_FAILURE_S = 5.0
"""Seconds that an item is held whose failure is no verdict, unless its circuit opens before."""
SECOND_LOOK_AFTER_S = 10.0
"""Seconds of waiting after which an item is looked up again before its call: another worker may
have stored the verdict of a copy of its message, and a look-up costs nothing beside a call."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An item on its way to an answer."""

    item: Item
    found: LookUp
    """Its keys and its command in the database."""
    caller: Caller
    clock: ItemClock
    is_wanted: Callable[[], bool]
    """Whether the broker still counts a message of it as delivered to this worker."""


class Attempts:
    """Calls models until an item has its answer, or its failure is known to be its own."""

    def __init__(
        self,
        look_up: Callable[[Item], Awaitable[LookUp | None]],
        answered: Callable[[int], Awaitable[bool]],
        waits: Waits,
        worker: str,
        generator: random.Random,
    ) -> None:
        """Compose the attempts.

        Args:
            look_up: Finds an item's command and whether its verdict exists; None: no such item.
            answered: Finds whether a model of a run, by its key in the store, has any answer there.
        """
        self._look_up = look_up
        self._answered_in_run = answered
        self._waits = waits
        self.failing = FailingItems()
        """Items whose calls have failed so far."""
        self._worker = worker
        self._generator = generator

    async def verdict(self, of: Attempt) -> Verdict | None:
        """Return the verdict; None when another worker has stored one meanwhile.

        Raises:
            RequeueError: The item has to go back to its queue.
        """
        errors: list[CallError] = []
        try:
            return await self._verdict(of, errors)
        finally:
            if errors:
                self.failing.forget(of.item)

    async def _verdict(self, of: Attempt, errors: list[CallError]) -> Verdict | None:
        first_call = 0
        ends_wait = partial(self._waits.for_call, of.item, live=of.found.live)
        while True:
            with ends_wait():
                permit = await self._permit(of, called=bool(errors))
            if permit is None:
                return None
            if not of.is_wanted():
                of.caller.limiter.release(permit)
                raise RedeliveredError
            first_call = first_call or permit.number
            try:
                completion = await _call(of, permit)
            except ProviderError as error:
                call = _call_error(error, len(errors) + 1)
                errors.append(call)
                self.failing.note(of.item, errors)
                wait_s, probe = call.retry_after_s, permit.probe
                failure = Failure(
                    call.error_class, call.attempt, wait_s, probe, call.status, error.cut
                )
            else:
                return self._signed(judge(completion), of, errors)
            with ends_wait():
                step = await self._decide(of, failure, first_call)
            match step:
                case GiveUp(outcome):
                    cause = errors[-1].error_class
                    lost = Verdict(outcome, None, cause, parser_version=PARSER_VERSION)
                    return self._signed(lost, of, errors)
                case RetryAfter(seconds):
                    with ends_wait(), self.failing.pausing(of.item):
                        await self._waits.pause(seconds, of.clock)
                case _:
                    with ends_wait():
                        await of.caller.limiter.answers.hold(HELD_AFTER_FAILURE_S)
                    raise ItemShedError

    async def _permit(self, of: Attempt, *, called: bool) -> Permit | None:
        """Wait until a call may begin; None when its verdict has been stored meanwhile."""
        limiter, clock = of.caller.limiter, of.clock
        expected = of.caller.estimator.expected(of.found.command)
        while True:
            await self._waits.until_good(clock)
            waiting_since = time.monotonic()
            permit = await limiter.acquire(
                of.item.run_id, expected, of.caller.budget, called=called
            )
            now = time.monotonic()
            clock.limiter += now - waiting_since
            try:
                if now - clock.looked_up > SECOND_LOOK_AFTER_S and await self._is_done(of):
                    limiter.release(permit)
                    return None
            except BaseException:
                limiter.release(permit)
                raise
            if self._waits.health.good:
                return permit
            limiter.release(permit)

    async def _is_done(self, of: Attempt) -> bool:
        found = await self._look_up(of.item)
        of.clock.looked_up = time.monotonic()
        return found is None or found.done

    async def _decide(
        self, of: Attempt, failure: Failure, first_call: int
    ) -> GiveUp | RetryAfter | Step:
        """Decide what follows a failure, with as much evidence as that takes."""
        within_s = math.inf
        if failure.kind.proof is Proof.CIRCUIT_CLOSED:
            # Answers of the time before the provider went silent prove nothing.
            within_s = of.clock.service / 2
        answers = of.caller.limiter.answers
        evidence = answers.evidence(first_call, within_s)
        jitter = self._generator.random()
        step = decide(failure, evidence, jitter)
        if step is Step.AWAIT_ANSWER:
            evidence = await answers.wait(first_call, within_s)
            step = decide(failure, evidence, jitter)
        if step is Step.ASK_STORE:
            in_run = await self._answered_in_run(of.found.key.run_model_id)
            step = decide(failure, replace(evidence, answered_in_run=in_run), jitter)
        return step

    def _signed(self, verdict: Verdict, of: Attempt, errors: list[CallError]) -> Verdict:
        answer = verdict.completion
        return replace(
            verdict,
            cost_usd=None if answer is None else cost_usd(answer.usage, of.caller.price),
            timing=of.clock.timing(),
            attempts=len(errors) + (answer is not None),
            worker=self._worker,
            created_at=datetime.now(UTC),
            call_errors=tuple(errors),
        )


async def _call(of: Attempt, permit: Permit) -> Completion:
    """Make one call, and give its permit back."""
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
    tokens, cost = of.caller.estimator.used(completion)
    limiter.succeeded(permit, tokens=tokens, cost=cost)
    return completion


def _call_error(error: ProviderError, attempt: int) -> CallError:
    return CallError(
        attempt=attempt,
        error_class=ErrorClass(error.error_class),
        status=error.status,
        retry_after_s=error.retry_after_s,
        message=str(error),
        at=datetime.now(UTC),
    )

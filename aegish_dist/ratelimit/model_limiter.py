"""Admits the calls of a worker process to one model.

A call waits here at the price of one future. What the newest lease permits begins without a round
trip. `Answers` knows which calls were answered lately, as evidence of the cause of a failure.
"""

import asyncio
import math
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aegish_dist.core.failures import KINDS, Evidence
from aegish_dist.core.model import Limits, ModelSpec, Program, RateHint, WireFormat, base_of
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.status import Waiting
from aegish_dist.errors import ItemShedError, OverBudgetError, ShuttingDownError
from aegish_dist.ratelimit.fair_queue import (
    Accounts,
    Budget,
    ExpectedUsage,
    FairQueue,
    Permit,
    ProcessSemaphore,
    RunQueue,
)
from aegish_dist.ratelimit.local_lease import (
    PREFETCH,
    LeaseRenewer,
    LocalLease,
    RequestLease,
    Slots,
    now_s,
)
from aegish_dist.ratelimit.usage_report import POLICY, Lease, LeaseRequest, RunLease

if TYPE_CHECKING:
    from aegish_dist.ratelimit.shared_limiter import SharedLimiter  # which loads redis


LONGEST_WAIT_S = 60.0  # of a failed call for the answer to another call
STEP_S = 0.25  # between two checks whether that came
IDLE_S = 2.0  # after this time without a call no answer is expected; fetching takes a while


class Answers:
    """The newest answers of one model in this worker."""

    def __init__(self, renewer: LeaseRenewer, lease: LocalLease) -> None:
        self.awaiting = 0  # items between two calls
        self._renewer = renewer
        self._lease = lease
        self._number = 0
        self._at_s = -math.inf

    def add(self, permit: Permit) -> None:
        self._number = max(self._number, permit.number)
        self._at_s = now_s()

    def within(self, seconds: float) -> bool:
        """Return whether a call was answered within the last `seconds`."""
        return now_s() - self._at_s < seconds

    def evidence(self, number: int, since_s: float = -math.inf) -> Evidence:
        """Return the evidence about a failure: the answers since a moment to calls begun later.

        Args:
            number: Number of the item's first failed call.
        """
        lease = self._lease.lease
        return Evidence(
            circuit_open=lease.circuit_open,
            failed_probes=lease.failed_probes,
            answered=(self._number > number and self._at_s > since_s) or None,
        )

    def queued_within(self, seconds: float) -> bool:
        """Return whether calls queued for long at the provider within the last `seconds`."""
        since_s = self._lease.lease.congested_s
        age_s = now_s() - self._lease.told_at_s
        return since_s is not None and since_s + age_s < seconds

    async def wait(self, number: int, since_s: float = -math.inf) -> Evidence:
        """Wait until a call that began later is answered, or until no answer is expected."""
        busy_s = began_s = now_s()
        with self.between_calls():
            while True:
                evidence = self.evidence(number, since_s)
                if evidence.circuit_open or evidence.answered:
                    return evidence
                if self._renewer.busy:
                    busy_s = now_s()
                if now_s() >= min(began_s + LONGEST_WAIT_S, busy_s + IDLE_S):
                    return replace(evidence, answered=False)
                await self._renewer.sleep(STEP_S)
                if self._renewer.closed:
                    raise ShuttingDownError

    @contextmanager
    def between_calls(self) -> Iterator[None]:
        """Count an item that waits between two calls: others have to be there for the slots."""
        self.awaiting += 1
        try:
            yield
        finally:
            self.awaiting -= 1

    async def hold(self, seconds: float) -> None:
        """Wait until the time is over, the circuit opens or the limiter closes."""
        ends_s = now_s() + seconds
        while not self._lease.lease.circuit_open and not self._renewer.closed and now_s() < ends_s:
            await self._renewer.sleep(STEP_S)


SHED_AFTER_S = 1.0  # an item is held so long at an open circuit: it would return at once


class ModelLimiter:
    """Admits calls to one model."""

    def __init__(
        self,
        model: str,
        request_lease: RequestLease,
        *,
        accounts: Accounts,
        semaphore: ProcessSemaphore,
        generator: random.Random,
    ) -> None:
        self._queue = FairQueue(model, accounts)
        self.local = LocalLease(model, semaphore, now_s)
        self._renewer = LeaseRenewer(model, request_lease, generator, self._queue, self.local)
        self._hinted_per_minute: float | None = None
        self.answers = Answers(self._renewer, self.local)
        semaphore.subscribe(model, self._admit)

    def set_limits(self, limits: Limits, shared: Limits) -> None:
        self._renewer.limits = limits
        self._renewer.shared = shared

    async def acquire(
        self,
        run_id: str,
        expected: ExpectedUsage,
        budget: Budget | None = None,
        *,
        called: bool = False,
        contender: str | None = None,
    ) -> Permit:
        """Wait until a call may begin; give the permit back by `succeeded`, `failed` or `release`.

        Args:
            called: Whether this is a further attempt, which waits while the model is rate-limited.
            contender: The model with its arm; None: it has none.

        Raises:
            ItemShedError: The circuit is open, or far more calls wait than the model takes.
            LimiterFailedError: A bug ended the renewal of leases.
        """
        run = self._queue.of_run(run_id, budget, contender)
        if run.over or self.local.lease.circuit_open or self._renewer.closed:
            await self._check(run)
            # The queue may have been forgotten meanwhile.
            run = self._queue.of_run(run_id, budget, contender)
        self._queue.expect(run, expected)
        if not self._queue.waiting and run.permits != 0:
            permit = self.local.acquire(run, expected)
            if permit is not None:
                return permit
        future = self._queue.wait(run, expected, called=called)
        self._admit()  # other runs may wait only for their budgets
        self._renewer.wake()
        try:
            return await future
        except asyncio.CancelledError:
            permit = self._queue.cancel(run, future)
            if permit is not None:
                self.release(permit)
            raise

    def succeeded(self, permit: Permit, *, tokens: int | None, cost: int | None) -> None:
        """Give a permit back after an answer; `cost` in 1e-9 USD; None: as expected."""
        expected = permit.expected
        self.answers.add(permit)
        took_s = now_s() - permit.at_s
        excess = 0 if tokens is None else tokens - expected.tokens
        self._renewer.report.add_answer(permit.epoch, excess, took_s)
        self.local.release(permit, expected.cost if cost is None else cost)
        self._renewer.wake()

    async def failed(
        self,
        permit: Permit,
        error_class: ErrorClass,
        retry_after_s: float | None,
        reason: str,
        *,
        silent_s: float = 0.0,
    ) -> None:
        """Give a permit back after a failure, and wait until the fleet's reaction is known.

        The failure counts for the circuit breaker only if no call was answered within the last
        `silent_s` seconds. With 0 it always counts.
        """
        charged = KINDS[error_class].charged
        self._renewer.report.add_failure(
            permit.epoch,
            error_class,
            retry_after_s,
            probe=permit.probe,
            reason=reason,
            others_answered=self.answers.within(silent_s),
        )
        cost = permit.expected.cost
        if not charged:
            cost = 0
            # Whether it was a probe stands in the failure.
            self._renewer.report.add_unused(permit.expected.tokens, probe=False)
        # Of this report, before another one begins.
        arrival = self._renewer.reported()
        self.local.release(permit, cost)
        self._renewer.wake(urgent=True)
        await arrival

    def release(self, permit: Permit) -> None:
        """Give a permit back whose call was not made or ended unknown."""
        self._renewer.report.add_unused(permit.expected.tokens, probe=permit.probe)
        self.local.release(permit, cost=0)
        self._renewer.wake()

    def observe(self, hint: RateHint) -> None:
        """Note the rate limits in a response; a new limit is reported at once."""
        self._renewer.report.hint = hint
        if hint.requests_per_minute != self._hinted_per_minute:
            self._hinted_per_minute = hint.requests_per_minute
            self._renewer.wake(urgent=True)

    def close(self) -> None:
        """Fail all waiting calls; those in flight go on."""
        self._queue.fail(ShuttingDownError)
        self._renewer.close()

    async def finish(self) -> None:
        await self._renewer.finish()

    @property
    def parked(self) -> bool:
        """Whether the circuit is open and the first probes have failed, as `status` shows it."""
        return self._renewer.parked

    @property
    def why_parked(self) -> str | None:
        """When a parked model is called next, and the provider's words; None: not parked."""
        if not self.parked:
            return None
        lease = self.local.lease
        called = datetime.fromtimestamp(lease.probe_at or 0.0, UTC)
        words = f"next call at {called:%H:%M:%S} UTC"
        if lease.reason:
            words += f"; {lease.reason}"
        return words

    @property
    def waiting(self) -> dict[tuple[str, str], int]:
        """Waiting calls by run id and contender; one without waiting calls is absent."""
        waiting = {}
        for run in self._queue:
            if run.waiters:
                waiting[run.run_id, run.contender] = len(run.waiters)
        return waiting

    async def over_budget(self) -> list[tuple[str, str]]:
        """Return run id and contender wherever a cap is reached."""
        runs = list(self._queue)
        answers = await asyncio.gather(*map(self._queue.still_over, runs))
        over = []
        for run, is_over in zip(runs, answers, strict=True):
            if is_over:
                over.append((run.run_id, run.contender))
        return over

    @property
    def prefetch_target(self) -> int:
        """How many items of the model this worker should hold, those in flight included."""
        return self.local.prefetch_target + self.answers.awaiting

    async def _check(self, run: RunQueue) -> None:
        """Raise an error if the run's next call may not wait."""
        if self.local.lease.circuit_open and self._queue.waiting >= PREFETCH.probers:
            await self._renewer.sleep(SHED_AFTER_S)
            if not self._renewer.closed:
                raise ItemShedError
        if await self._queue.still_over(run):
            raise OverBudgetError
        if self._renewer.closed:
            raise ShuttingDownError

    def _admit(self) -> None:
        self._queue.admit(self.local.acquire)


class Limiters:
    """Creates the limiter of a model, which all its arms share, when it is first needed."""

    def __init__(
        self,
        shared: "SharedLimiter",
        spent: Callable[[str], Awaitable[Mapping[str, int]]],
        budget: Callable[[str], Awaitable[Budget | None]],
        calls: int,
    ) -> None:
        """Compose the limiters; `calls` bounds the calls in flight of this process."""
        self._shared = shared
        self._make = partial(
            ModelLimiter,
            accounts=Accounts(spent, budget),
            semaphore=ProcessSemaphore(calls),
            generator=random.Random(),  # noqa: S311  # nosec B311 # jitter, not a secret
        )
        self.by_model: dict[str, ModelLimiter] = {}
        self._newest: dict[str, str] = {}
        self._places: defaultdict[str, Slots] = defaultdict(Slots)  # by provider
        self._closed = False

    def of(self, spec: ModelSpec, run_id: str, program: Program | None = None) -> ModelLimiter:
        """Return the limiter of a model of a run; the newest run sets the limits."""
        local = spec.wire is WireFormat.BASELINE
        model = base_of(spec.id)
        limiter = self.by_model.get(model)
        if limiter is None:
            limiter = self._make(model, _permit_all if local else self._shared.lease)
            self.by_model[model] = limiter
            limiter.local.places = self._places[spec.provider]
            if self._closed:
                limiter.close()
        if run_id >= self._newest.get(model, ""):
            self._newest[model] = run_id
            limiter.set_limits(Limits() if local else spec.limits, spec.shared)
            if program is not None:
                limiter.local.places.most = program.processes
        return limiter

    def prefetch_target(self, model: str) -> int:
        limiter = self.by_model.get(model)
        if limiter is None:
            return PREFETCH.first_items
        return limiter.prefetch_target

    @property
    def parked(self) -> dict[str, str]:
        """The parked models, each with `why_parked`."""
        parked = {}
        for model, limiter in self.by_model.items():
            if why := limiter.why_parked:
                parked[model] = why
        return parked

    def waiting(self, run_id: str, model: str) -> Waiting:
        """Return how many calls of a run wait for a permit, and why; no backoff is known here."""
        limiter = self.by_model.get(base_of(model))
        if limiter is None:
            return Waiting(0, 0)
        calls = limiter.waiting.get((run_id, model), 0)
        local = limiter.local
        return Waiting(
            limiter=calls,
            backoff=0,
            blocked_by=local.blocked_by if calls else None,
            refused=local.lease.refused,
        )

    async def over_budget(self) -> list[tuple[str, str]]:
        over = []
        for limiter in list(self.by_model.values()):
            over += await limiter.over_budget()
        return over

    def close(self) -> None:
        self._closed = True
        for limiter in self.by_model.values():
            limiter.close()

    async def finish(self) -> None:
        await asyncio.gather(*(limiter.finish() for limiter in self.by_model.values()))


async def _permit_all(request: LeaseRequest) -> Lease:
    """Permit every call to a model inside this package, which has no limit."""
    runs = tuple(RunLease(run.run, run.waiting) for run in request.runs)
    return Lease(epoch=0, permits=request.waiting, wait_s=POLICY["leases"]["renew_s"], runs=runs)

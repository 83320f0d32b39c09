"""The rate limiters of a worker process, one per model."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from aegish_dist.core.model import Limits, ModelSpec
from aegish_dist.core.status import Waiting
from aegish_dist.ratelimit.local_lease import ProcessSemaphore
from aegish_dist.ratelimit.model_limiter import ModelLimiter
from aegish_dist.ratelimit.policy import POLICY, PREFETCH
from aegish_dist.ratelimit.protocol import Lease, LeaseRequest, RunLease
from aegish_dist.ratelimit.run_queue import Accounts, Budget
from aegish_dist.ratelimit.shared_limiter import SharedLimiter


class Limiters:
    """Makes the limiter of a model when it is first needed."""

    def __init__(
        self,
        shared: SharedLimiter,
        spent: Callable[[str], Awaitable[Mapping[str, int]]],
        budget: Callable[[str], Awaitable[Budget | None]],
        calls: int,
    ) -> None:
        """Compose the limiters.

        Args:
            spent: Returns what each model of a run has cost according to the database, in 1e-9 USD.
            budget: Returns the caps of a run as they are now; None: no cap.
            calls: Most calls in flight of this process over all models, at least 1.
        """
        self._shared = shared
        self._make = partial(
            ModelLimiter,
            accounts=Accounts(spent, budget),
            semaphore=ProcessSemaphore(calls),
            generator=random.Random(),  # noqa: S311  # nosec B311 # jitter, not a secret
        )
        self._limiters: dict[str, ModelLimiter] = {}
        self._newest: dict[str, str] = {}
        self._closed = False

    def of(self, spec: ModelSpec, run_id: str) -> ModelLimiter:
        """Return the limiter of a model.

        Args:
            run_id: Id of the run that the specification is from; the newest run decides the limits.
        """
        local = spec.wire.http is None
        limiter = self._limiters.get(spec.id)
        if limiter is None:
            limiter = self._make(spec.id, _permit_all if local else self._shared.lease)
            self._limiters[spec.id] = limiter
            if self._closed:
                limiter.close()
        if run_id >= self._newest.get(spec.id, ""):
            self._newest[spec.id] = run_id
            limiter.set_limits(Limits() if local else spec.limits, spec.shared)
        return limiter

    def prefetch_target(self, model: str) -> int:
        """Return how many items of a model this worker should hold, those in flight included."""
        limiter = self._limiters.get(model)
        return PREFETCH.first_items if limiter is None else limiter.prefetch_target

    @property
    def by_model(self) -> Mapping[str, ModelLimiter]:
        """The limiters made so far, by canonical model id."""
        return self._limiters

    @property
    def parked(self) -> dict[str, str | None]:
        """The parked models, each with the provider's words about its failure."""
        return {model: each.reason for model, each in self._limiters.items() if each.parked}

    @property
    def waiting(self) -> dict[tuple[str, str], Waiting]:
        """Calls that wait for a permit by run id and model, and why."""
        return {
            (run_id, model): Waiting(calls, 0, each.blocked_by)
            for model, each in self._limiters.items()
            for run_id, calls in each.waiting.items()
        }

    async def over_budget(self) -> list[tuple[str, str]]:
        """Return run id and model for each cap that is reached."""
        limiters = list(self._limiters.items())
        return [(run, model) for model, each in limiters for run in await each.over_budget()]

    def close(self) -> None:
        """Fail all waiting calls, and all that follow."""
        self._closed = True
        for limiter in self._limiters.values():
            limiter.close()

    async def finish(self) -> None:
        """Wait until everything is reported, some seconds at most."""
        await asyncio.gather(*(limiter.finish() for limiter in self._limiters.values()))


async def _permit_all(request: LeaseRequest) -> Lease:
    """Answer for a model inside this package, which has no limit."""
    return Lease(
        epoch=0,
        permits=request.waiting,
        metered=False,
        limited=False,
        wait_s=POLICY.leases.renew_s,
        runs=tuple(
            RunLease(run.run, run.waiting, over=False, unknown=False) for run in request.runs
        ),
    )

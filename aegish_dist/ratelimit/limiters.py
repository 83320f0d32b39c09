"""The limiters of a worker process, one per model."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping

from aegish_dist.core.limits import Limits
from aegish_dist.core.model import ModelSpec
from aegish_dist.ratelimit.budget import Budget
from aegish_dist.ratelimit.local_lease import FIRST_ITEMS, ProcessSemaphore
from aegish_dist.ratelimit.model_limiter import ModelLimiter
from aegish_dist.ratelimit.ports import Ports
from aegish_dist.ratelimit.protocol import Lease, LeaseRequest, RunLease
from aegish_dist.ratelimit.redis_store import SharedLimiter

LOCAL_LEASE_S = 1.0


class Limiters:
    """Makes a limiter when its model is first called."""

    def __init__(
        self,
        limiter: SharedLimiter,
        spent: Callable[[str], Awaitable[Mapping[str, int]]],
        budget: Callable[[str], Awaitable[Budget | None]],
        calls: int,
    ) -> None:
        """Compose the limiters.

        Args:
            limiter: Shared with the fleet.
            spent: Gives what each model of a run has cost so far according to the store, in
                1e-9 USD.
            budget: Gives the caps of a run as they are now.
            calls: How many may be in flight at once, over all models.
        """
        generator = random.Random()  # noqa: S311  # nosec B311 # jitter, not a secret
        places = ProcessSemaphore(calls)
        self._ports = Ports(limiter.lease, spent, budget, generator, places)
        self._local = Ports(_grant_all, spent, budget, generator, places)
        self._limiters: dict[str, ModelLimiter] = {}
        self._newest: dict[str, str] = {}
        self._closed = False

    def of(self, spec: ModelSpec, run_id: str) -> ModelLimiter:
        """Return the limiter of a model.

        Args:
            spec: The model.
            run_id: Whose; the newest run decides the limits.
        """
        local = spec.wire.http is None
        limits = Limits() if local else spec.limits
        limiter = self._limiters.get(spec.id)
        if limiter is None:
            ports = self._local if local else self._ports
            limiter = self._limiters[spec.id] = ModelLimiter(spec.id, limits, spec.shared, ports)
            if self._closed:
                limiter.close()
        if run_id >= self._newest.get(spec.id, ""):
            self._newest[spec.id] = run_id
            limiter.set_limits(limits, spec.shared)
        return limiter

    def prefetch_target(self, model: str) -> int:
        """Return how many items of a model this worker should hold, those in flight included."""
        limiter = self._limiters.get(model)
        return FIRST_ITEMS if limiter is None else limiter.prefetch_target

    @property
    def parked(self) -> dict[str, str | None]:
        """The models that are parked, each with the provider's words about its failure."""
        return {
            model: limiter.reason for model, limiter in self._limiters.items() if limiter.parked
        }

    async def over_budget(self) -> list[tuple[str, str]]:
        """Return run id and model of what has reached a cap."""
        limiters = list(self._limiters.items())
        return [(run, model) for model, limiter in limiters for run in await limiter.over_budget()]

    def close(self) -> None:
        """Turn away all who wait, and all who will come."""
        self._closed = True
        for limiter in self._limiters.values():
            limiter.close()

    async def finish(self) -> None:
        """Wait until everything is told."""
        await asyncio.gather(*(limiter.finish() for limiter in self._limiters.values()))


async def _grant_all(ask: LeaseRequest) -> Lease:
    """Answer for a model inside this package, which nobody limits."""
    return Lease(
        epoch=0,
        slots=None,
        permits=ask.waiting,
        metered=False,
        limited=False,
        wait_s=LOCAL_LEASE_S,
        runs=tuple(RunLease(run.run, run.waiting, over=False, unknown=False) for run in ask.runs),
    )

"""The gates of a worker process, one per model."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping

from aegish_dist.core.limits import Limits
from aegish_dist.core.model import ModelSpec, WireFormat
from aegish_dist.ratelimit.fair_queue import Budget
from aegish_dist.ratelimit.local_lease import FIRST_ITEMS
from aegish_dist.ratelimit.model_limiter import Gate
from aegish_dist.ratelimit.ports import Ports
from aegish_dist.ratelimit.process_semaphore import Places
from aegish_dist.ratelimit.protocol import Ask, Grant, RunGrant
from aegish_dist.ratelimit.redis_store import Limiter

LOCAL_LEASE_S = 1.0


class Gates:
    """Makes a gate when its model is first called."""

    def __init__(
        self,
        limiter: Limiter,
        spent: Callable[[str], Awaitable[Mapping[str, int]]],
        budget: Callable[[str], Awaitable[Budget | None]],
        calls: int,
    ) -> None:
        """Compose the gates.

        Args:
            limiter: Shared with the fleet.
            spent: Gives what each model of a run has cost so far according to the store, in
                1e-9 USD.
            budget: Gives the caps of a run as they are now.
            calls: How many may be in flight at once, over all models.
        """
        generator = random.Random()  # noqa: S311  # nosec B311 # jitter, not a secret
        places = Places(calls)
        self._ports = Ports(limiter.ask, spent, budget, generator, places)
        self._local = Ports(_grant_all, spent, budget, generator, places)
        self._gates: dict[str, Gate] = {}
        self._newest: dict[str, str] = {}
        self._closed = False

    def of(self, spec: ModelSpec, run_id: str) -> Gate:
        """Return the gate of a model.

        Args:
            spec: The model.
            run_id: Whose; the newest run decides the limits.
        """
        local = spec.wire is WireFormat.BASELINE
        limits = Limits() if local else spec.limits
        gate = self._gates.get(spec.id)
        if gate is None:
            ports = self._local if local else self._ports
            gate = self._gates[spec.id] = Gate(spec.id, limits, spec.shared, ports)
            if self._closed:
                gate.close()
        if run_id >= self._newest.get(spec.id, ""):
            self._newest[spec.id] = run_id
            gate.limit(limits, spec.shared)
        return gate

    def supply(self, model: str) -> int:
        """Return how many items of a model this worker should hold, those in flight included."""
        gate = self._gates.get(model)
        return FIRST_ITEMS if gate is None else gate.supply

    @property
    def parked(self) -> dict[str, str | None]:
        """The models that are parked, each with the provider's words about its failure."""
        return {model: gate.reason for model, gate in self._gates.items() if gate.parked}

    async def over_budget(self) -> list[tuple[str, str]]:
        """Return run id and model of what has reached a cap."""
        gates = list(self._gates.items())
        return [(run, model) for model, gate in gates for run in await gate.over_budget()]

    def close(self) -> None:
        """Turn away all who wait, and all who will come."""
        self._closed = True
        for gate in self._gates.values():
            gate.close()

    async def finish(self) -> None:
        """Wait until everything is told."""
        await asyncio.gather(*(gate.finish() for gate in self._gates.values()))


async def _grant_all(ask: Ask) -> Grant:
    """Answer for a model inside this package, which nobody limits."""
    return Grant(
        epoch=0,
        slots=None,
        permits=ask.waiting,
        metered=False,
        limited=False,
        wait_s=LOCAL_LEASE_S,
        runs=tuple(RunGrant(run.run, run.waiting, over=False, unknown=False) for run in ask.runs),
    )

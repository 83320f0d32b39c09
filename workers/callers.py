"""The callers of a worker process: made when first needed, the latest are kept."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from aegish_dist.core.secrets import SecretStr
from aegish_dist.db.runs import Assignment
from aegish_dist.errors import StoreError
from aegish_dist.models import CatalogCredentials
from aegish_dist.pipeline.caller import Caller, UsageEstimator, traced
from aegish_dist.providers.session import ProviderSession
from aegish_dist.ratelimit.limiters import Limiters
from workers.store import budget_of

KEPT_CALLERS = 500
"""Each holds the prompt of its run. One that is dropped is made again by one look-up."""


class Callers:
    """Callers by run and model."""

    def __init__(self, make: Callable[[str, str], Coroutine[Any, Any, Caller]]) -> None:
        """Keep no caller yet.

        Args:
            make: Makes the caller of a run id and a model id.
        """
        self._make = make
        self._made: dict[tuple[str, str], asyncio.Task[Caller]] = {}

    async def __call__(self, run_id: str, model: str) -> Caller:
        """Return the caller of a run and a model; calls while it is made wait for the same one."""
        key = (run_id, model)
        task = self._made.pop(key, None) or asyncio.create_task(self._make(run_id, model))
        self._made[key] = task
        if len(self._made) > KEPT_CALLERS:
            del self._made[next(iter(self._made))]
        try:
            return await asyncio.shield(task)
        except Exception:
            self._made.pop(key, None)
            raise


@dataclass(frozen=True, slots=True)
class CallerFactory:
    """Makes the caller of a model of a run from what the store and the environment hold."""

    assignment: Callable[[tuple[str, str]], Awaitable[Assignment | None]]
    """Reads model, prompt and parameters by run id and model id."""
    providers: ProviderSession
    limiters: Limiters
    credentials: CatalogCredentials
    """Keys, and the models that they may be used for."""

    async def __call__(self, run_id: str, model: str) -> Caller:
        """Return a new caller.

        Raises:
            StoreError: The run has no prompt for the model.
        """
        assignment = await self.assignment((run_id, model))
        if assignment is None:
            raise StoreError(f"run {run_id} has no prompt for model '{model}': it was imported")
        spec, prompt, parameters = assignment.spec, assignment.prompt, assignment.parameters
        key = self.credentials.now().key(spec.destination)
        limiter = self.limiters.of(spec, run_id)
        client = self.providers.client(
            spec, prompt, parameters, None if key is None else SecretStr(key), limiter.observe
        )
        budget = budget_of(parameters)
        estimator = UsageEstimator(prompt, spec.price, budget)
        return Caller(traced(client, spec, parameters), limiter, estimator, spec.price, budget)

"""The ways from a gate to the limiter and to the store."""

import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from aegish_dist.ratelimit.budget import Budget
from aegish_dist.ratelimit.local_lease import ProcessSemaphore
from aegish_dist.ratelimit.protocol import Lease, LeaseRequest


@dataclass(frozen=True, slots=True)
class Ports:
    """What a gate needs from outside."""

    ask: Callable[[LeaseRequest], Awaitable[Lease]]
    """Asks the limiter; raises LimiterUnreachableError."""
    spent: Callable[[str], Awaitable[Mapping[str, int]]]
    """Gives what each model of a run has cost so far according to the store, in 1e-9 USD."""
    budget: Callable[[str], Awaitable[Budget | None]]
    """Gives the caps of a run as they are now; somebody may have raised them."""
    generator: random.Random
    """Source of the jitter."""
    places: ProcessSemaphore
    """Of the process, which all its limiters share."""

"""The cost caps of runs, and the ways to what the database knows of their cost."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

NANO_USD = 1_000_000_000
"""Costs are whole billionths of a dollar: sums of them are exact, in Lua too up to 9 million
dollars."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Caps on the cost of a run, in 1e-9 USD; None: no cap."""

    run_cap: int | None = None
    """Cap on all its models together."""
    model_cap: int | None = None
    """Cap on each of them."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """The database's view of a run's cost, by run id."""

    spent: Callable[[str], Awaitable[Mapping[str, int]]]
    """Returns the cost of each model up to now, in 1e-9 USD."""
    budget: Callable[[str], Awaitable[Budget | None]]
    """Returns the caps as they are now, which an operator may have raised; None: no cap."""

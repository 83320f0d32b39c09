"""The cost caps of a run."""

from dataclasses import dataclass

NANO_USD = 1_000_000_000
"""Costs travel as whole billionths of a dollar."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a run may cost, in 1e-9 USD; None: no bound."""

    run_cap: int | None = None
    """All its models together."""
    model_cap: int | None = None
    """Each of them."""

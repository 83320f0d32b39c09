"""Batches of this dialect."""

from aegish_dist.simulator.batches.routes import BatchRoute

ROUTES: tuple[BatchRoute, ...] = ()
"""Paths of this dialect."""

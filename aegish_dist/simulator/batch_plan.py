"""How a simulated provider treats batches."""

from dataclasses import dataclass

from aegish_dist.simulator.chance import LatencyDistribution, LatencyKind

_TWO_SECONDS = LatencyDistribution(LatencyKind.CONSTANT, 2.0)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Times of the batches of a simulated provider."""

    duration: LatencyDistribution = _TWO_SECONDS
    """Seconds from the start of a batch to its end."""

"""A verdict together with what it is about: how results travel from files to replay."""

from dataclasses import dataclass

from aegish_dist.core.sample import Sample
from aegish_dist.core.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Recording:
    """One line of a verdict export, or one sample of an imported log."""

    model: str
    dataset: str
    """Name of the dataset the sample belongs to."""
    sample: Sample
    epoch: int
    """1-based repeat."""
    verdict: Verdict
    generation: int = 0
    """0 for the first try, n for the n-th retry."""
    simulated: bool = False
    """Whether the answer came from the simulator: no evidence about any real model."""
    negative_time: bool = False
    """Whether a time of it was below zero where it was read, and therefore counts as unknown."""

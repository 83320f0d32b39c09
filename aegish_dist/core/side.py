"""One side of a comparison."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class ModelOfRun:
    """A model of a run."""

    run_id: str
    model: str

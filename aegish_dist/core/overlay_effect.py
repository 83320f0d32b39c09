"""The effect of an overlay on every score: two documents of the same verdicts, side by side."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Moved:
    """One number without an overlay and under it."""

    without: float | None
    """Under the labels of the datasets; None when undefined."""
    under: float | None
    """Under the corrected labels; None when undefined."""

    @property
    def difference(self) -> float | None:
        """`under` minus `without`; None when either is undefined."""
        if self.without is None or self.under is None:
            return None
        return self.under - self.without


@dataclass(frozen=True, slots=True)
class ModelEffect:
    """One model of a run."""

    model: str
    rank: Moved
    metrics: Mapping[str, Moved]

    @property
    def document(self) -> dict[str, Any]:
        """The machine interface."""
        return {
            "model": self.model,
            "rank": _document(self.rank),
            "metrics": {name: _document(moved) for name, moved in self.metrics.items()},
        }


def overlay_effect(without: Mapping[str, Any], under: Mapping[str, Any]) -> list[ModelEffect]:
    """Compare the documents of two snapshots of the same verdicts.

    Returns:
        The models in the order of the ranking under the overlay.
    """
    before, after = _entries(without), _entries(under)
    ranks = {place["model"]: place["rank"] for place in without["ranking"]}
    return [
        ModelEffect(
            model=place["model"],
            rank=Moved(ranks[place["model"]], place["rank"]),
            metrics=_moved(before[place["model"]], after[place["model"]]),
        )
        for place in under["ranking"]
    ]


def _entries(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {entry["model"]: entry["metrics"] for entry in document["models"]}


def _moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Moved]:
    return {
        name: Moved(before.get(name, {}).get("value"), numbers.get("value"))
        for name, numbers in after.items()
    }


def _document(moved: Moved) -> dict[str, float | None]:
    return {"without": moved.without, "with": moved.under, "difference": moved.difference}

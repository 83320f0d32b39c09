"""The numbers of a log of Inspect AI, summed while its samples are written."""

import math
from dataclasses import dataclass, field
from typing import Any

from aegish_dist.core.sample import Target

METRICS = {
    Target.MALICIOUS: "malicious_detection_rate",
    Target.HARMLESS: "harmless_acceptance_rate",
}


@dataclass(slots=True)
class _Mean:
    """A mean over samples of the mean over a sample's scored epochs."""

    n: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        self.n += 1
        self.total += value
        self.squares += value * value

    @property
    def value(self) -> float | None:
        return self.total / self.n if self.n else None

    @property
    def stderr(self) -> float | None:
        """As Inspect AI's `stderr`: the samples' standard deviation over the root of n."""
        if self.n < 2:
            return None
        spread = max(0.0, self.squares - self.total * self.total / self.n)
        return math.sqrt(spread / (self.n - 1) / self.n)


@dataclass(slots=True)
class RuleScores:
    """The samples of a log under one rule set."""

    name: str
    reducer: str | None
    """How Inspect AI calls the mean over epochs; None with one epoch."""
    _all: _Mean = field(default_factory=_Mean)
    _by_target: dict[Target, _Mean] = field(default_factory=dict)
    _unscored: int = 0

    def add(self, target: Target, judged: list[bool | None]) -> float | None:
        """Count a sample.

        Args:
            judged: Of each epoch whether it is right, None where it is unscored.

        Returns:
            The mean over the scored epochs; None without one.
        """
        scored = [each for each in judged if each is not None]
        if not scored:
            self._unscored += 1
            return None
        value = sum(scored) / len(scored)
        for mean in (self._all, self._by_target.setdefault(target, _Mean())):
            mean.add(value)
        return value

    def results(self) -> dict[str, Any]:
        """Return what the header of the log says; what is undefined is left out."""
        values = {"accuracy": self._all.value, "stderr": self._all.stderr}
        for target, mean in sorted(self._by_target.items()):
            values |= {METRICS[target]: mean.value, f"{METRICS[target]}_stderr": mean.stderr}
        return {
            "name": self.name,
            "scorer": self.name,
            "reducer": self.reducer,
            "scored_samples": self._all.n,
            "unscored_samples": self._unscored,
            "params": {},
            "metrics": {
                name: {"name": name, "value": value, "params": {}}
                for name, value in values.items()
                if value is not None
            },
        }

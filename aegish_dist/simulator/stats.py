"""What a simulated provider counts about itself, served at `/stats`."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Stats:
    """Counters since the start."""

    requests: Counter[str] = field(default_factory=Counter)
    """Valid requests per model, faults included."""
    faults: Counter[str] = field(default_factory=Counter)
    """Faults served, by kind."""
    throttled: int = 0
    """Requests turned away by the rate limit."""
    in_flight: int = 0
    """Calls being handled."""
    in_flight_max: int = 0
    """The most calls ever handled at once."""

    def enter(self) -> None:
        """Count a call in."""
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)

    def leave(self) -> None:
        """Count a call out."""
        self.in_flight -= 1

    def as_dict(self) -> dict[str, Any]:
        """Return the counters for JSON."""
        return {
            "requests": dict(self.requests),
            "faults": dict(self.faults),
            "throttled": self.throttled,
            "in_flight": self.in_flight,
            "in_flight_max": self.in_flight_max,
        }

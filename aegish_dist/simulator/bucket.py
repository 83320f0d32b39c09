"""The rate limit of a simulated provider: a token bucket per model."""

import math
from dataclasses import dataclass

from aegish_dist.errors import ConfigError


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Requests a model accepts."""

    requests_per_minute: float
    burst: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.requests_per_minute < math.inf:
            raise ConfigError(
                f"requests_per_minute is {self.requests_per_minute}; it must be above 0"
            )
        if self.burst < 1:
            raise ConfigError(f"burst is {self.burst}; it must be 1 or more")


class TokenBucket:
    """Counts requests against a limit, by the clock of its caller."""

    def __init__(self, limit: RateLimit, now_s: float) -> None:
        self.limit = limit
        self._per_second = limit.requests_per_minute / 60
        self._tokens = float(limit.burst)
        self._updated_s = now_s

    def take(self, now_s: float) -> float:
        """Take one request if there is one.

        Args:
            now_s: A clock in seconds that never goes back.

        Returns:
            0 when the request is accepted, else the seconds until one would be.
        """
        refilled = self._tokens + (now_s - self._updated_s) * self._per_second
        self._tokens = min(float(self.limit.burst), refilled)
        self._updated_s = now_s
        # A client that waits exactly so long must not fail on the last bit of a float.
        if self._tokens >= 1 - 1e-9:
            self._tokens = max(0.0, self._tokens - 1)
            return 0.0
        return (1 - self._tokens) / self._per_second

    @property
    def remaining(self) -> int:
        """Requests that would be accepted now."""
        return int(self._tokens)

    @property
    def full_in_s(self) -> float:
        """Seconds until the whole burst is available again."""
        return (self.limit.burst - self._tokens) / self._per_second

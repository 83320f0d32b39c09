"""The numbers of the rate limiter: those of the script in Redis, and those of a worker alone.

`policy.toml` states the first, with units, reasons and sources. Jitter: Floyd & Jacobson, "The
synchronization of periodic routing messages", SIGCOMM 1993.
"""

import tomllib
from importlib.resources import files

from msgspec import Struct

POLICY: dict[str, dict[str, float]] = tomllib.loads(
    files(__package__).joinpath("policy.toml").read_text(encoding="utf-8")
)


class RenewalPolicy(Struct, frozen=True):
    """How a worker asks for leases."""

    clock_margin_s: float = 1.0
    """Seconds by which a worker's lease ends before the script's, to cover the round trip."""
    gather_s: float = 0.01  # least time between two requests for a model: reports share one
    retry_s: float = 0.2  # to the first retry while Redis does not answer; each retry doubles it
    longest_retry_s: float = 5.0  # longest wait between such retries
    finish_s: float = 5.0  # longest time for the last report of a worker
    jitter: float = 0.1  # waits are longer by up to this part, so that workers do not ask in step


class PrefetchPolicy(Struct, frozen=True):
    """How many items of a model a worker fetches from the broker."""

    first_items: int = 40  # items of an unknown model: twice the window of the slow start
    per_slot: int = 2  # items for each call that may be in flight
    ahead_s: float = 1.0  # of its rate that a rate-limited model has beyond calls in flight
    unlimited: int = 1_000_000  # without limits, the broker's prefetch count bounds the items
    probers: int = 2  # items at an open circuit, and the least of a rate-limited model
    surplus: int = 2  # times the target may wait before items go back: brokers push more


CLAIM_S = 5.0
"""Seconds for which a model keeps at least its claim to slots that it held or wanted: longer than
the rest of 2 s after a queue was found empty, short beside the slow calls that would borrow."""

RENEWAL = RenewalPolicy()
PREFETCH = PrefetchPolicy()

"""The numbers of the rate limiter: those of the script in Redis, and those of a worker's items.

`policy.toml` states the first, with units, reasons and sources.
"""

import tomllib
from importlib.resources import files

from msgspec import Struct

POLICY: dict[str, dict[str, float]] = tomllib.loads(
    files(__package__).joinpath("policy.toml").read_text(encoding="utf-8")
)


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

PREFETCH = PrefetchPolicy()

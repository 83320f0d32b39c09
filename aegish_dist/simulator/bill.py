"""The bill of a simulated provider: what it charges for, exactly.

It counts on its own, with none of the product's code for costs, so that it can be their oracle.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated

from msgspec import Meta, Struct

from aegish_dist.core.text import JsonObject
from aegish_dist.core.verdict import Usage

Usd = Annotated[float, Meta(ge=0, le=1e9)]
_TOKENS_PER_UNIT = 1_000_000
_COUNTS = ("requests", "input_tokens", "cached_tokens", "output_tokens")
# Parts of a model's bill. The second repeats the charges whose answers no client could read.
_PARTS = ("live", "live_unreadable")


class Tariff(Struct, frozen=True, forbid_unknown_fields=True):
    """Prices of a model in USD per million tokens."""

    input: Usd = 0
    output: Usd = 0
    cached_input: Usd | None = None  # prompt tokens that came from a cache; as `input` when None

    def usd(self, charged: Mapping[str, int]) -> Decimal:
        cached_price = self.input if self.cached_input is None else self.cached_input
        cached = charged["cached_tokens"]
        # Cached tokens are a part of the input.
        fresh = charged["input_tokens"] - cached
        total = fresh * Decimal(str(self.input))
        total += cached * Decimal(str(cached_price))
        total += charged["output_tokens"] * Decimal(str(self.output))
        return total / _TOKENS_PER_UNIT


class Bill:
    """Everything that a simulated provider charges for."""

    def __init__(self, tariff: Tariff, tariffs: Mapping[str, Tariff]) -> None:
        self._tariff = tariff
        self._tariffs = tariffs
        self._accounts: defaultdict[str, dict[str, Counter[str]]] = defaultdict(
            lambda: {part: Counter(dict.fromkeys(_COUNTS, 0)) for part in _PARTS}
        )

    def charge(self, model: str, usage: Usage, *, readable: bool) -> None:
        charge = {
            "requests": 1,
            "input_tokens": usage.input_tokens or 0,
            "cached_tokens": usage.cache_read_tokens or 0,
            "output_tokens": usage.output_tokens or 0,
        }
        for part in _PARTS[:1] if readable else _PARTS:
            self._accounts[model][part].update(charge)

    @property
    def models(self) -> set[str]:
        """Models that something was charged for."""
        return set(self._accounts)

    def parts(self, model: str) -> JsonObject:
        """Return the parts of a model's bill for JSON, all zero if nothing was charged."""
        tariff = self._tariffs.get(model, self._tariff)
        parts: JsonObject = {}
        for part, charged in self._accounts[model].items():
            usd = tariff.usd(charged)
            parts[part] = {**charged, "usd": str(usd)}
        return parts

    def as_dict(self) -> JsonObject:
        """Return the bill for JSON; amounts in USD are exact texts."""
        models: JsonObject = {}
        total = Decimal(0)
        for name in sorted(self.models):
            parts = self.parts(name)
            usd = parts["live"]["usd"]
            models[name] = {"usd": usd, **parts}
            total += Decimal(usd)

        return {"usd": str(total), "models": models}

"""The bill of a simulated provider: what it charges for, exactly, live and in batches apart.

It counts on its own, with none of the product's code for costs, so that it can be their oracle.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any

from msgspec import Meta, Struct

from aegish_dist.core.verdict import Usage

Usd = Annotated[float, Meta(ge=0, le=1e9)]
_TOKENS_PER_UNIT = 1_000_000
_COUNTS = ("requests", "input_tokens", "cached_tokens", "output_tokens")
_PARTS = ("live", "batch", "live_unreadable", "batch_unreadable")
"""Parts of a model's bill. The last two repeat the charges whose answers no client could read."""


class Tariff(Struct, frozen=True, forbid_unknown_fields=True):
    """Prices of a model in USD per million tokens."""

    input: Usd = 0
    output: Usd = 0
    cached_input: Usd | None = None  # prompt tokens that came from a cache; as `input` when None

    def usd(self, charged: Mapping[str, int]) -> Decimal:
        fresh, cached = charged["input_tokens"], charged["cached_tokens"]
        cached_price = self.input if self.cached_input is None else self.cached_input
        total = (fresh - cached) * Decimal(str(self.input)) + cached * Decimal(str(cached_price))
        return (total + charged["output_tokens"] * Decimal(str(self.output))) / _TOKENS_PER_UNIT


class Bill:
    """Everything that a simulated provider charges for."""

    def __init__(
        self, tariff: Tariff, tariffs: Mapping[str, Tariff], batch_share: float = 0.5
    ) -> None:
        self._tariff, self._tariffs = tariff, tariffs
        self._share = Decimal(str(batch_share))
        self._batches: Counter[str] = Counter()
        self._named: Counter[str] = Counter()
        self._accounts: defaultdict[str, dict[str, Counter[str]]] = defaultdict(
            lambda: {part: Counter(dict.fromkeys(_COUNTS, 0)) for part in _PARTS}
        )

    def charge(self, model: str, usage: Usage, *, readable: bool, name: str | None = None) -> None:
        """Charge an answer; `name` is that of a request of a batch, None for a live call."""
        tokens = usage.input_tokens, usage.cache_read_tokens, usage.output_tokens
        charge = dict(zip(_COUNTS, (1, *(each or 0 for each in tokens)), strict=True))
        part = "live" if name is None else "batch"
        for each in [part] if readable else [part, f"{part}_unreadable"]:
            self._accounts[model][each].update(charge)
        if name is not None:
            self._named[name] += 1

    def count_batch(self, first_name: str) -> None:
        """Count a batch by its token: the name of its first request up to the first hyphen."""
        self._batches[first_name.partition("-")[0]] += 1

    def as_dict(self) -> dict[str, Any]:
        """Return the bill for JSON; amounts in USD are exact texts."""
        models = {name: self._model(name) for name in sorted(self._accounts)}
        return {
            "usd": str(sum((Decimal(each["usd"]) for each in models.values()), Decimal(0))),
            "models": models,
            "batches": self._batches.total(),
            "tokens": len(self._batches),
            "tokens_used_twice": sorted(token for token, n in self._batches.items() if n > 1),
            "charged_twice": self._named.total() - len(self._named),
        }

    def _model(self, name: str) -> dict[str, Any]:
        tariff = self._tariffs.get(name, self._tariff)
        parts: dict[str, Any] = {}
        for part, charged in self._accounts[name].items():
            share = self._share if part.startswith("batch") else Decimal(1)
            parts[part] = {**charged, "usd": str(tariff.usd(charged) * share)}
        usd = Decimal(parts["live"]["usd"]) + Decimal(parts["batch"]["usd"])
        return {"usd": str(usd), **parts}

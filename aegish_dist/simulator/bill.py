"""The bill of a simulated provider: what it charges for, exactly, live and in batches apart.

It counts on its own, with none of the product's code for costs, so that it can be their oracle.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Struct, field

from aegish_dist.core.verdict import Usage
from aegish_dist.errors import ConfigError

_TOKENS_PER_UNIT = 1_000_000


class Tariff(Struct, frozen=True):
    """Prices of a model in USD per million tokens."""

    input: Decimal = Decimal(0)
    output: Decimal = Decimal(0)
    cached_input: Decimal | None = None
    """Prompt tokens that came from a cache; as `input` when None."""

    def __post_init__(self) -> None:
        for name in ("input", "output", "cached_input"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < Decimal("Infinity"):
                raise ConfigError(f"{name} is {value}; a price is finite and 0 or more")

    def usd(self, charges: "Charges") -> Decimal:
        cached = self.input if self.cached_input is None else self.cached_input
        fresh_tokens = charges.input_tokens - charges.cached_tokens
        total = fresh_tokens * self.input + charges.cached_tokens * cached
        return (total + charges.output_tokens * self.output) / _TOKENS_PER_UNIT


class Charges(Struct):
    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    def add(self, usage: Usage) -> None:
        self.requests += 1
        self.input_tokens += usage.input_tokens or 0
        self.cached_tokens += usage.cache_read_tokens or 0
        self.output_tokens += usage.output_tokens or 0


class ModelCharges(Struct):
    live: Charges = field(default_factory=Charges)
    batch: Charges = field(default_factory=Charges)
    live_unreadable: Charges = field(default_factory=Charges)
    """The part of `live` that a fault kept from the client."""
    batch_unreadable: Charges = field(default_factory=Charges)
    """The part of `batch` whose line is cut, so that no client can read it."""


class Bill:
    """Everything that a simulated provider charges for."""

    def __init__(
        self,
        tariff: Tariff | None = None,
        tariffs: Mapping[str, Tariff] | None = None,
        batch_share: float = 0.5,
    ) -> None:
        self.batches: Counter[str] = Counter()
        self._tariff = tariff or Tariff()
        self._tariffs = dict(tariffs or {})
        self._share = Decimal(str(batch_share))
        self._accounts: defaultdict[str, ModelCharges] = defaultdict(ModelCharges)
        self._named: Counter[str] = Counter()

    def charge_live(self, model: str, usage: Usage, *, readable: bool) -> None:
        """Charge an answer to a live call."""
        account = self._accounts[model]
        account.live.add(usage)
        if not readable:
            account.live_unreadable.add(usage)

    def charge_batch(self, model: str, usage: Usage, name: str, *, readable: bool) -> None:
        account = self._accounts[model]
        account.batch.add(usage)
        self._named[name] += 1
        if not readable:
            account.batch_unreadable.add(usage)

    def count_batch(self, first_name: str) -> None:
        """Count a batch by its token: the name of its first request up to the first hyphen."""
        self.batches[first_name.partition("-")[0]] += 1

    @property
    def twice(self) -> int:
        """Charges for a request of a batch whose name was charged before."""
        return self._named.total() - len(self._named)

    def as_dict(self) -> dict[str, Any]:
        """Return the bill for JSON; amounts in USD are exact texts."""
        models = {name: self._model(name) for name in sorted(self._accounts)}
        return {
            "usd": str(sum((Decimal(each["usd"]) for each in models.values()), Decimal(0))),
            "models": models,
            "batches": self.batches.total(),
            "tokens": len(self.batches),
            "tokens_used_twice": sorted(token for token, n in self.batches.items() if n > 1),
            "charged_twice": self.twice,
        }

    def _model(self, name: str) -> dict[str, Any]:
        account, tariff = self._accounts[name], self._tariffs.get(name, self._tariff)
        parts: dict[str, Any] = msgspec.to_builtins(account)
        for part, charges in parts.items():
            share = self._share if part.startswith("batch") else Decimal(1)
            charges["usd"] = str(tariff.usd(getattr(account, part)) * share)
        usd = Decimal(parts["live"]["usd"]) + Decimal(parts["batch"]["usd"])
        return {"usd": str(usd), **parts}

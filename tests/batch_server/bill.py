"""The bill of a provider that sells batches: live calls and batches apart, and second payments."""

from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from aegish_dist.core.verdict import Usage
from aegish_dist.simulator.bill import Bill, Tariff


class BatchBill(Bill):
    """Adds to the bill of live calls what is charged for batches.

    `models.NAME.batch` and `batch_unreadable` are as the live parts. `batches` counts the batches,
    `tokens` the tokens that they were created with, `tokens_used_twice` names those of more than
    one batch, and `charged_twice` counts charges for a request that was charged before.
    """

    def __init__(self, tariff: Tariff, tariffs: Mapping[str, Tariff], share: float = 0.5) -> None:
        """Take the prices of live calls, and the share of them that a request of a batch costs."""
        super().__init__(tariff, tariffs)
        self._share = Decimal(str(share))
        self._batched = Bill(tariff, tariffs)
        self._batches: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()

    def charge_request(self, model: str, name: str, usage: Usage, *, readable: bool) -> None:
        """Charge the answer to a request of a batch."""
        self._batched.charge(model, usage, readable=readable)
        self._requests[name] += 1

    def count_batch(self, first_name: str) -> None:
        """Count a batch by its token: the name of its first request up to the first hyphen."""
        self._batches[first_name.partition("-")[0]] += 1

    def as_dict(self) -> dict[str, Any]:
        models: dict[str, Any] = {}
        for name in sorted(self.models | self._batched.models):
            live, batched = self.parts(name), self._batched.parts(name)
            parts = live | {
                part.replace("live", "batch"): self._at_share(charged)
                for part, charged in batched.items()
            }
            usd = Decimal(parts["live"]["usd"]) + Decimal(parts["batch"]["usd"])
            models[name] = {"usd": str(usd), **parts}
        total = sum((Decimal(model["usd"]) for model in models.values()), Decimal(0))
        return {
            "usd": str(total),
            "models": models,
            "batches": self._batches.total(),
            "tokens": len(self._batches),
            "tokens_used_twice": sorted(token for token, n in self._batches.items() if n > 1),
            "charged_twice": self._requests.total() - len(self._requests),
        }

    def _at_share(self, charged: dict[str, Any]) -> dict[str, Any]:
        return charged | {"usd": str(Decimal(charged["usd"]) * self._share)}

"""The bill of a provider that sells batches: live calls and batches apart, and second payments."""

from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from aegish_dist.core.verdict import Usage
from aegish_dist.simulator.bill import Bill, Tariff

SHARE = Decimal("0.5")
"""Of the live price, which a request of a batch costs."""


class BatchBill(Bill):
    """Adds to the bill of live calls what is charged for batches.

    `models.NAME.batch` is as the live part. `batches` counts the batches, `tokens_used_twice` names
    the tokens of more than one batch, and `charged_twice` counts charges for a request that was
    charged before.
    """

    def __init__(self, tariff: Tariff, tariffs: Mapping[str, Tariff]) -> None:
        super().__init__(tariff, tariffs)
        self._batched = Bill(tariff, tariffs)
        self._tokens: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()

    def charge_request(self, model: str, name: str, usage: Usage) -> None:
        """Charge the answer to a request of a batch."""
        self._batched.charge(model, usage, readable=True)
        self._requests[name] += 1

    def count_batch(self, first_name: str) -> None:
        """Count a batch by its token: the name of its first request up to the first hyphen."""
        self._tokens[first_name.partition("-")[0]] += 1

    def as_dict(self) -> dict[str, Any]:
        models: dict[str, Any] = {}
        for name in sorted(self.models | self._batched.models):
            live, batch = self.parts(name), self._batched.parts(name)["live"]
            batch_usd = Decimal(batch["usd"]) * SHARE
            usd = Decimal(live["live"]["usd"]) + batch_usd
            models[name] = {"usd": str(usd), **live, "batch": batch | {"usd": str(batch_usd)}}
        return {
            "usd": str(sum((Decimal(model["usd"]) for model in models.values()), Decimal(0))),
            "models": models,
            "batches": self._tokens.total(),
            "tokens_used_twice": [token for token, times in self._tokens.items() if times > 1],
            "charged_twice": self._requests.total() - len(self._requests),
        }

"""Isolation by provider and by client: one that asks for everything takes it from itself alone.

Each party has a share of its own, and no share is lent. So what a party holds changes nothing for
another one. Isolation by run is `reading` in `db/engine.py`.
"""

from collections import defaultdict
from typing import Generic, TypeVar

Claim = TypeVar("Claim")


class Shares(Generic[Claim]):
    """Claims of parties on something that could run out; each party has a fixed share."""

    def __init__(self, share: int) -> None:
        self._share = share
        self._held: defaultdict[str, dict[Claim, int]] = defaultdict(dict)

    def left(self, party: str) -> int:
        return self._share - sum(self._held[party].values())

    def hold(self, party: str, claim: Claim, amount: int = 1) -> bool:
        """Set the amount of a claim; return False, and change nothing, if it exceeds the share."""
        claims = self._held[party]
        fits = amount <= self.left(party) + claims.get(claim, 0)
        if fits:
            claims[claim] = amount
        return fits

    def release(self, party: str, claim: Claim) -> None:
        self._held[party].pop(claim, None)
        if not self._held[party]:
            del self._held[party]

    def oldest(self, party: str) -> Claim | None:
        return next(iter(self._held[party]), None)

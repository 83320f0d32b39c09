"""A drill: a run, a fault in the middle of it, and what became of every item.

Counted is as Jepsen counts a set test: an item is attempted when it is enqueued, acknowledged when
a reader has seen its verdict, lost when it was acknowledged and is gone, or never gets a verdict.
"""

import math
import random
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from decimal import Decimal

import pytest
from msgspec import Struct, field
from sqlalchemy.exc import SQLAlchemyError

from tests.chaos.fleet import Fleet, Identity, Layout
from tests.services import wait_until

ITEMS_PER_MODEL = 60
COMPLETE_S = 75.0  # patience after the end of a fault; nothing here should need more than a minute
SETTLE_S = 20.0  # until nothing is called, waits or is held any more
ERRORS = frozenset({"TIMEOUT_ERROR", "API_ERROR"})  # outcomes that say of a call that it failed


class Fault(Struct, frozen=True):
    """One fault, with the run that it strikes."""

    name: str
    title: str
    strike: "Callable[[Drill], None]"
    """Begins the fault, and returns when it is over and its remedy, if it needs one, was given."""
    layout: Layout = field(default_factory=Layout)
    latency: str = "uniform:0.2,0.5"  # of each call, in seconds
    time_limit_s: float = 60.0
    moment: tuple[float, float] = (0.1, 0.6)
    """The fault begins when this share of the calls has begun; drawn between these bounds."""
    items_per_model: int = ITEMS_PER_MODEL
    twice: int | None = None
    """Calls that may be made twice; None: as many as were in flight when the fault began."""
    errors: int = 0  # verdicts that may say that their call failed
    cap_usd: Decimal | None = None  # cap on the cost of a run that is asked in batches


class Result(Struct, frozen=True):
    fault: str
    seed: int
    attempted: int
    acknowledged: int  # items whose verdict a reader saw at some moment
    lost: int  # items acknowledged and gone, or without a verdict at the end
    doubled: int  # verdicts beyond the first of an item
    paid_twice: int  # calls beyond the first of a command that the provider worked on
    in_flight: int  # calls begun and not stored at each blow of the fault
    errors: int  # items whose verdict says that the call failed
    recovered_s: float  # from the end of the fault until every item had a verdict
    problem: str  # why the drill came to no end; empty when it did

    def broken(self, fault: Fault) -> list[str]:
        """Return which promises were not kept, in words; nothing when all were."""
        bound = self.in_flight if fault.twice is None else fault.twice
        promises = {
            self.problem: not self.problem,
            f"{self.lost} lost": self.lost == 0,
            f"{self.doubled} stored twice": self.doubled == 0,
            f"{self.paid_twice} paid twice, {bound} allowed": self.paid_twice <= bound,
            f"{self.errors} errors stored, {fault.errors} allowed": self.errors <= fault.errors,
        }
        return [words for words, kept in promises.items() if not kept]


class Drill:
    def __init__(self, fleet: Fleet, fault: Fault, seed: int) -> None:
        self.fleet, self.fault = fleet, fault
        self.chance = random.Random(f"{fault.name} {seed}")
        self.run_id = ""
        self._seed = seed
        self._seen: set[Identity] = set()
        self._in_flight = 0

    @property
    def planned(self) -> int:
        return 2 * self.fault.items_per_model

    def outcomes(self) -> Mapping[str, int]:
        return self.fleet.cluster.status(self.run_id).outcomes

    def run(self) -> Result:
        """Run it to the end, which is when all items have a verdict and nothing is called."""
        problem, recovered_s = "", math.inf
        try:
            self._submit()
            self.fault.strike(self)
            over_at = time.monotonic()
            wait_until(self._complete, f"{self.planned} verdicts", COMPLETE_S)
            recovered_s = time.monotonic() - over_at
            self._settle()
        except (pytest.fail.Exception, AssertionError) as error:
            problem = str(error)
        return self._result(recovered_s, problem)

    def _submit(self) -> None:
        fleet = self.fleet
        fleet.ensure_workers()
        fleet.provider.reset(self.fault.latency)
        name = f"{self.fault.name}-{self._seed}-{time.time_ns():x}"
        commands = [f"echo {name} {number}" for number in range(self.fault.items_per_model)]
        self.run_id = fleet.submit(name, commands, self.fault.time_limit_s, self.fault.cap_usd)
        moment = int(self.planned * self.chance.uniform(*self.fault.moment))
        wait_until(lambda: fleet.provider.calls >= moment, f"{moment} calls", COMPLETE_S)
        self.begin()

    def begin(self) -> None:
        """Count what is in flight, which each blow of a fault may have called again."""
        stored = self._look()
        self._in_flight += self.fleet.provider.calls - stored  # the newest: others begin meanwhile

    def rest(self, seconds: float) -> None:
        """Let a fault last, and read meanwhile what the store acknowledges."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self._look()
            time.sleep(min(0.25, max(0.0, until - time.monotonic())))

    def _look(self) -> int:
        with suppress(SQLAlchemyError):
            self._seen.update(self.fleet.stored(self.run_id))
        return len(self._seen)

    def _complete(self) -> bool:
        # Polled often, and each look reads the whole run.
        time.sleep(0.1)
        return self._look() >= self.planned

    def _settle(self) -> None:
        def settled() -> bool:
            return self.fleet.provider.in_flight == 0 and self.fleet.waiting(self.run_id) == 0

        wait_until(settled, "the queues to empty", SETTLE_S)
        self.fleet.require_workers()

    def _result(self, recovered_s: float, problem: str) -> Result:
        fleet = self.fleet
        rows = fleet.stored(self.run_id)
        identities = set(rows)
        outcomes = self.outcomes()
        return Result(
            fault=self.fault.name,
            seed=self._seed,
            attempted=self.planned,
            acknowledged=len(self._seen),
            lost=len(self._seen - identities) + self.planned - len({i[:3] for i in identities}),
            doubled=len(rows) - len(identities),
            paid_twice=max(fleet.provider.paid_twice, fleet.provider.calls - self.planned),
            in_flight=self._in_flight,
            errors=sum(count for name, count in outcomes.items() if name in ERRORS),
            recovered_s=round(recovered_s, 2),
            problem=problem,
        )

"""The gate of one worker, in virtual time, with a limiter that answers as told."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from aegish_dist.core.limits import Limits, RateHint
from aegish_dist.core.verdict import ErrorClass
from aegish_dist.ratelimit.errors import GateError, SentBackError, ShuttingDownError
from aegish_dist.ratelimit.fair_queue import IDLE_LINES, Budget, Expected, OverBudgetError, Permit
from aegish_dist.ratelimit.local_lease import ANY_NUMBER, PROBERS
from aegish_dist.ratelimit.model_limiter import Gate
from aegish_dist.ratelimit.ports import Ports
from aegish_dist.ratelimit.process_semaphore import Places
from aegish_dist.ratelimit.protocol import Ask, Grant, RunGrant, UnreachableError
from tests.virtual_time import run_virtually

FREE = Grant(0, slots=None, permits=0, metered=False, limited=False, wait_s=1.0)
PARKED = replace(FREE, metered=True, limited=True, parked=True)
ONE = Expected(10, 5)


class FakeLimiter:
    """Gives one grant after another, the last one for ever; remembers what it was asked."""

    def __init__(self, *grants: Grant | Exception) -> None:
        self.grants = list(grants)
        self.asks: list[Ask] = []
        self.spent = {"lab/guard": 30}
        self.budget = Budget(run_cap=1)

    async def ask(self, ask: Ask) -> Grant:
        await asyncio.sleep(0.001)
        self.asks.append(ask)
        grant = self.grants.pop(0) if len(self.grants) > 1 else self.grants[0]
        if isinstance(grant, Exception):
            raise grant
        return grant

    async def spent_by(self, run_id: str) -> dict[str, int]:
        return self.spent

    async def budget_of(self, run_id: str) -> Budget:
        await asyncio.sleep(0.001)
        return self.budget

    def gate(self, places: Places | None = None) -> Gate:
        chance = random.Random(1)
        places = places or Places(ANY_NUMBER)
        ports = Ports(self.ask, self.spent_by, self.budget_of, chance, places)
        return Gate("lab/guard", Limits(), Limits(), ports)


def play(limiter: FakeLimiter, test: Callable[[Gate], Coroutine[Any, Any, None]]) -> None:
    """Play a test with a gate; everything has to be told in the end."""

    async def run() -> None:
        gate = limiter.gate()
        await test(gate)
        gate.close()
        await gate.finish()

    run_virtually(run())


async def entered(gate: Gate, run_id: str = "run", number: int = 1) -> list[Permit]:
    """Enter so many times, all of which have to succeed within ten seconds."""
    entries = (gate.enter(run_id, ONE) for _ in range(number))
    return list(await asyncio.wait_for(asyncio.gather(*entries), 10))


def test_an_unlimited_model_costs_few_round_trips() -> None:
    """Calls begin without asking: 2,000 in ten seconds ask twice a second, and all is told."""
    limiter = FakeLimiter(FREE)

    async def test(gate: Gate) -> None:
        for _ in range(100):
            for permit in await entered(gate, number=20):
                gate.answered(permit, tokens=12, cost=None)
            await asyncio.sleep(0.1)

    play(limiter, test)

    assert 10 <= len(limiter.asks) <= 22
    assert sum(ask.told.answers for ask in limiter.asks) == 2000
    assert sum(ask.told.tokens for ask in limiter.asks) == 4000
    assert limiter.asks[-1].held == limiter.asks[-1].waiting == 0


def test_permits_are_counted() -> None:
    """As many calls begin as the limiter permits; the others wait for the next answer."""
    limiter = FakeLimiter(
        replace(FREE, metered=True, limited=True, permits=2, wait_s=0.5, rate=4.0),
        replace(FREE, metered=True, permits=3, wait_s=0.5, rate=4.0),
    )

    async def test(gate: Gate) -> None:
        loop = asyncio.get_running_loop()
        entries = [asyncio.create_task(gate.enter("run", ONE)) for _ in range(5)]
        started = loop.time()
        await asyncio.sleep(0.1)
        assert sum(entry.done() for entry in entries) == 2
        for permit in await asyncio.gather(*entries):
            gate.abandon(permit)
        assert 0.5 <= loop.time() - started <= 0.6

    play(limiter, test)

    assert [(ask.held, ask.waiting) for ask in limiter.asks[:2]] == [(0, 5), (2, 3)]


def test_slots_bound_the_calls_in_flight() -> None:
    """Whoever leaves makes room for the next one, without a round trip."""
    limiter = FakeLimiter(replace(FREE, slots=2))

    async def test(gate: Gate) -> None:
        first, second = await entered(gate, number=2)
        third = asyncio.create_task(gate.enter("run", ONE))
        await asyncio.sleep(0.05)
        asked = len(limiter.asks)
        assert not third.done()
        gate.answered(first, tokens=None, cost=None)
        await asyncio.sleep(0)
        assert third.done()
        assert len(limiter.asks) == asked
        gate.abandon(second)
        gate.abandon(third.result())

    play(limiter, test)


def test_a_lease_ends() -> None:
    """Without an answer of the limiter no call begins after its lease."""
    away = UnreachableError("away")
    limiter = FakeLimiter(FREE, away, away, away, away, away, away, FREE)

    async def test(gate: Gate) -> None:
        (permit,) = await entered(gate)
        await asyncio.sleep(5)
        late = asyncio.create_task(gate.enter("run", ONE))
        await asyncio.sleep(0.5)
        assert not late.done()
        gate.answered(permit, tokens=None, cost=None)
        gate.abandon(await asyncio.wait_for(late, 30))

    play(limiter, test)

    heard = limiter.asks[7:]
    assert sum(ask.told.answers for ask in heard) == 1


def test_a_failure_is_told_at_once() -> None:
    """Whoever failed hears whether the fleet has parked the model."""
    limiter = FakeLimiter(FREE, FREE, replace(PARKED, wait_s=1.0))

    async def test(gate: Gate) -> None:
        first, second = await entered(gate, number=2)
        started = asyncio.get_running_loop().time()
        await gate.failed(first, ErrorClass.SERVER, None, "no")
        assert not gate.evidence(0).parked
        await gate.failed(second, ErrorClass.SERVER, None, "no")
        assert gate.evidence(0).parked
        assert asyncio.get_running_loop().time() - started < 0.1

    play(limiter, test)

    assert [ask.told.failures for ask in limiter.asks[:3]] == [0, 1, 1]


def test_a_failure_waits_for_an_answer_to_a_later_call() -> None:
    """That of an earlier one proves nothing; with no call left it waits two seconds only."""
    limiter = FakeLimiter(FREE)

    async def test(gate: Gate) -> None:
        loop = asyncio.get_running_loop()
        earlier, failed, later = await entered(gate, number=3)
        await gate.failed(failed, ErrorClass.DEADLINE, None, "no")
        gate.answered(earlier, tokens=None, cost=None)
        assert gate.evidence(failed.number).answered is None
        watching = asyncio.create_task(gate.watch(failed.number))
        await asyncio.sleep(3)
        assert not watching.done()
        gate.answered(later, tokens=None, cost=None)
        assert (await watching).answered
        assert gate.evidence(failed.number, 1.0).answered
        await asyncio.sleep(2)
        assert not gate.evidence(failed.number, 1.0).answered  # too long ago
        assert not gate.evidence(later.number).answered
        started = loop.time()
        assert (await gate.watch(later.number)).answered is False
        assert 2 <= loop.time() - started <= 2.5

    play(limiter, test)


def test_a_failure_does_not_wait_for_ever() -> None:
    """Another call under way may never end; and a parked model ends all waiting."""
    limiter = FakeLimiter(FREE)

    async def test(gate: Gate) -> None:
        failed, other = await entered(gate, number=2)
        await gate.failed(failed, ErrorClass.DEADLINE, None, "no")
        supply = gate.supply
        watching = [asyncio.create_task(gate.watch(failed.number)) for _ in range(2)]
        await asyncio.sleep(59)
        assert gate.supply == supply + 2
        assert not any(each.done() for each in watching)
        await asyncio.sleep(2)
        assert [each.result().answered for each in watching] == [False, False]
        assert gate.supply == supply
        watching.append(asyncio.create_task(gate.watch(failed.number)))
        await asyncio.sleep(1)
        limiter.grants = [replace(PARKED, failed_probes=3, reason="no key")]
        await asyncio.sleep(2)
        found = watching[-1].result()
        assert (found.parked, found.failed_probes, gate.reason) == (True, 3, "no key")
        started = asyncio.get_running_loop().time()
        await gate.hold(5)
        assert asyncio.get_running_loop().time() == started
        gate.abandon(other)

    play(limiter, test)


def test_closing_ends_a_watch() -> None:
    """What was not decided by then goes back."""
    limiter = FakeLimiter(FREE)

    async def test(gate: Gate) -> None:
        failed, other = await entered(gate, number=2)
        await gate.failed(failed, ErrorClass.DEADLINE, None, "no")
        watching = asyncio.create_task(gate.watch(failed.number))
        await asyncio.sleep(1)
        gate.close()
        with pytest.raises(ShuttingDownError):
            await asyncio.wait_for(watching, 1)
        gate.abandon(other)

    play(limiter, test)


def test_a_parked_model_keeps_few_items() -> None:
    """Two wait for the probes, the others go back, and so do those that come later."""
    limiter = FakeLimiter(PARKED)

    async def test(gate: Gate) -> None:
        entries = [asyncio.create_task(gate.enter("run", ONE)) for _ in range(5)]
        await asyncio.sleep(0.1)
        assert [entry.done() for entry in entries] == [False] * PROBERS + [True] * 3
        started = asyncio.get_running_loop().time()
        with pytest.raises(SentBackError):
            await gate.enter("run", ONE)
        assert asyncio.get_running_loop().time() - started == pytest.approx(1.0)
        assert gate.supply == PROBERS
        gate.close()
        results = await asyncio.gather(*entries, return_exceptions=True)
        assert [type(each) for each in results] == [ShuttingDownError] * 2 + [SentBackError] * 3

    play(limiter, test)


def test_a_model_is_called_parked_after_two_probes() -> None:
    """And only while somebody of this worker waits to hear of it."""
    limiter = FakeLimiter(replace(PARKED, failed_probes=1), replace(PARKED, failed_probes=2))

    async def test(gate: Gate) -> None:
        waiting = asyncio.create_task(gate.enter("run", ONE))
        await asyncio.sleep(0.1)
        assert not gate.parked
        await asyncio.sleep(1.5)
        assert gate.parked
        waiting.cancel()
        await asyncio.sleep(3)
        assert not gate.parked

    play(limiter, test)


def test_money_is_asked_of_the_store() -> None:
    """When the limiter has lost what a run cost, it is told, and then asked again at once."""
    lost = RunGrant("run", 0, over=False, unknown=True)
    found = RunGrant("run", 2, over=False, unknown=False)
    limiter = FakeLimiter(replace(FREE, runs=(lost,)), replace(FREE, runs=(found,)))

    async def test(gate: Gate) -> None:
        entries = [
            asyncio.create_task(gate.enter("run", ONE, Budget(run_cap=100))) for _ in range(3)
        ]
        await asyncio.sleep(0.05)
        assert sum(entry.done() for entry in entries) == 2
        assert limiter.asks[1].runs[0].stored == {"total": 30, "models": {"lab/guard": 30}}
        for permit in await asyncio.gather(*entries[:2]):
            gate.answered(permit, tokens=None, cost=7)
        gate.abandon(await asyncio.wait_for(entries[2], 5))
        limiter.grants = [FREE]

    play(limiter, test)


def test_a_run_over_budget() -> None:
    """Its items are turned away, now and later; those of other runs are not."""
    over = RunGrant("dear", 0, over=True, unknown=False)
    limiter = FakeLimiter(replace(FREE, runs=(over,)), FREE)

    async def test(gate: Gate) -> None:
        for _ in range(2):
            with pytest.raises(OverBudgetError):
                await gate.enter("dear", ONE, Budget(run_cap=1))
        assert await gate.over_budget() == ["dear"]
        (permit,) = await entered(gate, "cheap")
        gate.abandon(permit)

    play(limiter, test)


def test_a_raised_cap() -> None:
    """The store is asked before anybody is turned away, and whenever somebody comes later."""
    over, one, two = (RunGrant("dear", n, over=n == 0, unknown=False) for n in range(3))
    grants = [replace(FREE, runs=(run,)) for run in (over, one, over, two)]
    limiter = FakeLimiter(*grants)

    async def test(gate: Gate) -> None:
        limiter.budget = Budget(run_cap=2)
        gate.abandon(await asyncio.wait_for(gate.enter("dear", ONE, Budget(run_cap=1)), 5))
        limiter.grants = grants[2:]
        with pytest.raises(OverBudgetError):
            await gate.enter("dear", ONE, Budget(run_cap=1))
        assert await gate.over_budget() == ["dear"]

        limiter.budget = Budget(run_cap=3)
        entries = (gate.enter("dear", ONE, Budget(run_cap=1)) for _ in range(2))
        for permit in await asyncio.wait_for(asyncio.gather(*entries), 5):
            gate.abandon(permit)
        assert await gate.over_budget() == []
        limiter.grants = [FREE]

    play(limiter, test)

    assert [run.cap for ask in limiter.asks for run in ask.runs if run.waiting] == [1, 2, 2, 3]


def test_a_cancelled_call_takes_no_slot() -> None:
    """Whoever gives up, waiting or let through, makes room."""
    limiter = FakeLimiter(replace(FREE, slots=1))

    async def test(gate: Gate) -> None:
        (first,) = await entered(gate)
        waiting = [asyncio.create_task(gate.enter("run", ONE)) for _ in range(2)]
        await asyncio.sleep(0.01)
        gate.abandon(first)
        waiting[0].cancel()  # in the moment in which it was let through
        permit = await asyncio.wait_for(waiting[1], 5)
        gate.abandon(permit)

    play(limiter, test)


def test_a_new_limit_is_told_at_once() -> None:
    """The fleet should not find it out by 429s."""
    limiter = FakeLimiter(FREE)

    async def test(gate: Gate) -> None:
        (permit,) = await entered(gate)
        gate.observe(RateHint(60, 59))
        await asyncio.sleep(0.05)
        assert limiter.asks[-1].told.hint == RateHint(60, 59)
        gate.abandon(permit)

    play(limiter, test)


def test_a_bug_does_not_hang() -> None:
    """An asker that breaks fails those who wait, and the next one tries again."""
    limiter = FakeLimiter(KeyError("bug"), FREE)

    async def test(gate: Gate) -> None:
        with pytest.raises(GateError):
            await gate.enter("run", ONE)
        (permit,) = await entered(gate)
        gate.abandon(permit)

    play(limiter, test)


def test_an_ending_loop_takes_the_gate_along() -> None:
    """Nothing is left behind when the loop ends while a call is in flight and things are untold."""
    limiter = FakeLimiter(FREE)
    gates: list[Gate] = []

    async def run() -> None:
        gates.append(limiter.gate())
        (permit,) = await entered(gates[0])
        gates[0].answered(permit, tokens=None, cost=None)

    run_virtually(run())

    assert not gates[0]._pump.running


def test_the_last_news_of_a_fleet_without_limiter() -> None:
    """A gate that closes while nobody can be asked gives up after the last call, asking rarely."""
    limiter = FakeLimiter(FREE, UnreachableError("away"))

    async def test(gate: Gate) -> None:
        first, second = await entered(gate, number=2)
        gate.close()
        await asyncio.sleep(30)
        gate.answered(first, tokens=None, cost=None)
        await gate.failed(second, ErrorClass.SERVER, None, "no")
        await asyncio.wait_for(gate.finish(), 30)
        assert not gate._pump.running

    play(limiter, test)

    assert len(limiter.asks) < 30


def test_a_run_without_cap_does_not_wait_for_money() -> None:
    """It passes one whose money is all in flight, without asking."""
    limiter = FakeLimiter(replace(FREE, runs=(RunGrant("dear", 0, over=False, unknown=False),)))

    async def test(gate: Gate) -> None:
        dear = asyncio.create_task(gate.enter("dear", ONE, Budget(run_cap=1)))
        await asyncio.sleep(0.1)
        started = asyncio.get_running_loop().time()
        for permit in await entered(gate, "cheap", number=5):
            gate.abandon(permit)
        assert asyncio.get_running_loop().time() == started
        dear.cancel()

    play(limiter, test)


def test_an_unused_probe_is_told() -> None:
    """While all places are taken nobody probes, and the limiter hears of it."""
    probe = replace(PARKED, permits=1, probe=True, wait_s=0.5)
    limiter = FakeLimiter(probe, PARKED, probe, PARKED)

    async def run() -> None:
        places = Places(1)
        gate = limiter.gate(places)
        places.take()
        entry = asyncio.create_task(gate.enter("run", ONE))
        await asyncio.sleep(0.6)
        places.leave()
        permit = await asyncio.wait_for(entry, 5)
        assert permit.probe
        await asyncio.sleep(2)
        gate.answered(permit, tokens=None, cost=None)
        gate.close()
        await gate.finish()

    run_virtually(run())

    assert [ask.probing for ask in limiter.asks[:4]] == [False, False, False, True]
    assert not limiter.asks[-1].probing


@pytest.mark.parametrize(
    ("error_class", "cost", "tokens"),
    [
        (ErrorClass.DEADLINE, 5, 0),
        (ErrorClass.MALFORMED, 5, 0),
        (ErrorClass.CONNECTION, 5, 0),
        (ErrorClass.RATE_LIMIT, 0, -10),
        (ErrorClass.SERVER, 0, -10),
    ],
)
def test_failures_that_cost(error_class: ErrorClass, cost: int, tokens: int) -> None:
    """A provider that may have worked on a call may charge for it, whatever became of it."""
    enough = RunGrant("run", 9, over=False, unknown=False)
    limiter = FakeLimiter(replace(FREE, runs=(enough,)))

    async def test(gate: Gate) -> None:
        permit = await gate.enter("run", ONE, Budget(run_cap=100))
        limiter.grants = [replace(FREE, runs=(enough,) if cost else ()), FREE]
        await gate.failed(permit, error_class, None, "no")

    play(limiter, test)

    assert sum(run.spent for ask in limiter.asks for run in ask.runs) == cost
    assert sum(ask.told.tokens for ask in limiter.asks) == tokens


def test_a_run_forgotten_while_the_store_is_asked() -> None:
    """Whoever asked for a raised cap meanwhile gets through all the same, and its cost is told."""
    over, enough = (RunGrant("dear", n, over=n == 0, unknown=False) for n in (0, 9))
    limiter = FakeLimiter(replace(FREE, runs=(over,)), FREE)

    async def test(gate: Gate) -> None:
        with pytest.raises(OverBudgetError):
            await gate.enter("dear", ONE, Budget(run_cap=1))
        limiter.budget = Budget(run_cap=2)
        late = asyncio.create_task(gate.enter("dear", ONE, Budget(run_cap=1)))
        await asyncio.sleep(0)
        for number in range(IDLE_LINES):
            gate._room.line(f"run{number}", None)
        gate._room.forget_idle()
        limiter.grants = [replace(FREE, runs=(enough,))]
        permit = await asyncio.wait_for(late, 5)
        limiter.grants = [replace(FREE, runs=(enough,)), FREE]
        gate.answered(permit, tokens=None, cost=3)

    play(limiter, test)

    assert sum(run.spent for ask in limiter.asks for run in ask.runs) == 3


def test_ended_runs_are_forgotten() -> None:
    """A gate keeps no line of every run it has ever seen."""
    limiter = FakeLimiter(FREE)

    async def test(gate: Gate) -> None:
        for number in range(3 * IDLE_LINES):
            (permit,) = await entered(gate, f"run{number}")
            gate.answered(permit, tokens=None, cost=None)
        await asyncio.sleep(3)
        assert len(list(gate._room)) == IDLE_LINES

    play(limiter, test)


def test_closing_while_the_store_is_asked() -> None:
    """Whoever comes to a run over budget in that moment is turned away like all others."""
    over = RunGrant("dear", 0, over=True, unknown=False)
    limiter = FakeLimiter(replace(FREE, runs=(over,)), FREE)

    async def test(gate: Gate) -> None:
        with pytest.raises(OverBudgetError):
            await gate.enter("dear", ONE, Budget(run_cap=1))
        limiter.budget = Budget(run_cap=2)
        late = asyncio.create_task(gate.enter("dear", ONE, Budget(run_cap=1)))
        await asyncio.sleep(0)
        gate.close()
        with pytest.raises(ShuttingDownError):
            await late

    play(limiter, test)


def test_nobody_answers_at_the_end() -> None:
    """A worker that ends does not wait for ever to tell its last news."""

    async def never(_: Ask) -> Grant:
        return await asyncio.get_running_loop().create_future()

    async def run() -> None:
        gate = FakeLimiter(FREE).gate()
        (permit,) = await entered(gate)
        gate._pump._ports = replace(gate._pump._ports, ask=never)
        gate.abandon(permit)
        gate.close()
        await asyncio.wait_for(gate.finish(), 20)

    run_virtually(run())

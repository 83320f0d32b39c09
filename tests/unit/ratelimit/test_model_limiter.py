"""The limiter of one worker, in virtual time, with a fleet that gives prepared answers."""

import asyncio
import gc
import random
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any
from weakref import ref

import pytest
from fakeredis import FakeAsyncRedis
from msgspec.structs import replace
from structlog.testing import capture_logs

from aegish_dist.core.failures import LONGEST_RETRY_AFTER_S
from aegish_dist.core.model import ModelSpec, Program, RateHint, WireFormat
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.errors import (
    ItemShedError,
    LimiterFailedError,
    LimiterUnreachableError,
    OverBudgetError,
    ShuttingDownError,
)
from aegish_dist.ratelimit.fair_queue import (
    IDLE_QUEUES,
    Accounts,
    Budget,
    ExpectedUsage,
    Permit,
    ProcessSemaphore,
)
from aegish_dist.ratelimit.local_lease import PREFETCH
from aegish_dist.ratelimit.model_limiter import Limiters, ModelLimiter
from aegish_dist.ratelimit.shared_limiter import SharedLimiter
from aegish_dist.ratelimit.usage_report import POLICY, Lease, LeaseRequest, RunLease, StoredCost
from tests.virtual_time import run_virtually

pytestmark = pytest.mark.virtual_time

FREE = Lease(0, slots=None, permits=0, metered=False, limited=False, wait_s=1.0)
PARKED = replace(FREE, metered=True, limited=True, circuit_open=True)
ONE = ExpectedUsage(10, 5)


class FakeFleet:
    """Gives one lease after another, the last one for ever; remembers what it was asked."""

    def __init__(self, *leases: Lease | Exception) -> None:
        self.leases = list(leases)
        self.requests: list[LeaseRequest] = []
        self.spent = {"lab/guard": 30}
        self.budget = Budget(run_cap=1)
        self.silent = False
        self.budget_after_s = 0.001

    async def ask(self, ask: LeaseRequest) -> Lease:
        await asyncio.sleep(0.001)
        self.requests.append(ask)
        while self.silent:
            await asyncio.sleep(60)
        lease = self.leases.pop(0) if len(self.leases) > 1 else self.leases[0]
        if isinstance(lease, Exception):
            raise lease
        return lease

    @property
    def reported_usd(self) -> int:
        """Sum of what runs have spent, by all requests."""
        return sum(run.spent for ask in self.requests for run in ask.runs)

    async def spent_by(self, run_id: str) -> dict[str, int]:
        return self.spent

    async def budget_of(self, run_id: str) -> Budget:
        await asyncio.sleep(self.budget_after_s)
        return self.budget

    def limiter(self, slots: int = PREFETCH.unlimited) -> ModelLimiter:
        self.semaphore = ProcessSemaphore(slots)
        return ModelLimiter(
            "lab/guard",
            self.ask,
            accounts=Accounts(self.spent_by, self.budget_of),
            semaphore=self.semaphore,
            generator=random.Random(1),
        )


@asynccontextmanager
async def limited(
    *leases: Lease | Exception, slots: int = PREFETCH.unlimited
) -> AsyncIterator[tuple[FakeFleet, ModelLimiter]]:
    fleet = FakeFleet(*leases)
    limiter = fleet.limiter(slots)
    yield fleet, limiter
    limiter.close()
    await limiter.finish()


async def entered(limiter: ModelLimiter, run_id: str = "run", number: int = 1) -> list[Permit]:
    entries = (limiter.acquire(run_id, ONE) for _ in range(number))
    return list(await asyncio.wait_for(asyncio.gather(*entries), 10))


def waiting_call(limiter: ModelLimiter) -> asyncio.Task[Permit]:
    return asyncio.create_task(limiter.acquire("run", ONE))


def dear_call(limiter: ModelLimiter) -> Coroutine[Any, Any, Permit]:
    """Ask for a call of a run with a cap."""
    return limiter.acquire("dear", ONE, Budget(run_cap=1))


async def refused(limiter: ModelLimiter) -> None:
    with pytest.raises(OverBudgetError):
        await dear_call(limiter)


def answered(limiter: ModelLimiter, permit: Permit) -> None:
    """End a call of which neither tokens nor cost are known."""
    limiter.succeeded(permit, tokens=None, cost=None)


async def missed_deadline(limiter: ModelLimiter, permit: Permit) -> None:
    await limiter.failed(permit, ErrorClass.DEADLINE, None, "no")


def done(entries: Iterable[asyncio.Task[Permit]]) -> int:
    return sum(entry.done() for entry in entries)


def now_s() -> float:
    return asyncio.get_running_loop().time()


async def test_an_unlimited_model_costs_few_round_trips() -> None:
    """Calls begin without asking: 2,000 in ten seconds ask twice a second, and all is reported."""
    async with limited(FREE) as (fleet, limiter):
        for _ in range(100):
            for permit in await entered(limiter, number=20):
                limiter.succeeded(permit, tokens=12, cost=None)
            await asyncio.sleep(0.1)
    assert 10 <= len(fleet.requests) <= 22
    assert sum(ask.report.answers for ask in fleet.requests) == 2000
    assert sum(ask.report.tokens for ask in fleet.requests) == 4000
    assert fleet.requests[-1].held == fleet.requests[-1].waiting == 0


async def test_permits_are_counted() -> None:
    second = replace(FREE, metered=True, permits=3, wait_s=0.5, rate=4.0)
    first = replace(second, limited=True, permits=2)
    async with limited(first, second) as (fleet, limiter):
        entries = [waiting_call(limiter) for _ in range(5)]
        started = now_s()
        await asyncio.sleep(0.1)
        assert done(entries) == 2
        for permit in await asyncio.gather(*entries):
            limiter.release(permit)
        assert 0.5 <= now_s() - started <= 0.6
    assert [(ask.held, ask.waiting) for ask in fleet.requests[:2]] == [(0, 5), (2, 3)]


async def test_slots_bound_the_calls_in_flight() -> None:
    async with limited(replace(FREE, slots=2)) as (fleet, limiter):
        first, second = await entered(limiter, number=2)
        third = waiting_call(limiter)
        await asyncio.sleep(0.05)
        asked = len(fleet.requests)
        assert not third.done()
        answered(limiter, first)
        await asyncio.sleep(0)
        assert third.done()
        assert len(fleet.requests) == asked
        limiter.release(second)
        limiter.release(third.result())


async def test_a_lease_ends() -> None:
    away = LimiterUnreachableError("away")
    async with limited(FREE, away, away, away, away, away, away, FREE) as (fleet, limiter):
        (permit,) = await entered(limiter)
        await asyncio.sleep(5)
        late = waiting_call(limiter)
        await asyncio.sleep(0.5)
        assert not late.done()
        answered(limiter, permit)
        limiter.release(await asyncio.wait_for(late, 30))
    heard = fleet.requests[7:]
    assert sum(ask.report.answers for ask in heard) == 1


async def test_a_failure_is_reported_at_once() -> None:
    async with limited(FREE, FREE, replace(PARKED, wait_s=1.0)) as (fleet, limiter):
        first, second = await entered(limiter, number=2)
        started = now_s()
        await limiter.failed(first, ErrorClass.SERVER, None, "no")
        assert not limiter.answers.evidence(0).circuit_open
        await limiter.failed(second, ErrorClass.SERVER, None, "no")
        assert limiter.answers.evidence(0).circuit_open
        assert now_s() - started < 0.1
    assert [ask.report.failures for ask in fleet.requests[:3]] == [0, 1, 1]


async def test_a_failure_waits_for_an_answer_to_a_later_call() -> None:
    async with limited(FREE) as (_, limiter):
        earlier, failed, later = await entered(limiter, number=3)
        await missed_deadline(limiter, failed)
        answered(limiter, earlier)
        assert limiter.answers.evidence(failed.number).answered is None
        watching = asyncio.create_task(limiter.answers.wait(failed.number))
        await asyncio.sleep(3)
        assert not watching.done()
        answered(limiter, later)
        assert (await watching).answered
        assert limiter.answers.evidence(failed.number, now_s() - 1).answered
        await asyncio.sleep(2)
        assert not limiter.answers.evidence(failed.number, now_s() - 1).answered  # too long ago
        assert not limiter.answers.evidence(later.number).answered
        started = now_s()
        assert (await limiter.answers.wait(later.number)).answered is False
        assert 2 <= now_s() - started <= 2.5


async def test_a_failure_does_not_wait_for_ever() -> None:
    async with limited(FREE) as (fleet, limiter):
        failed, other = await entered(limiter, number=2)
        await missed_deadline(limiter, failed)
        prefetch_target = limiter.prefetch_target
        watching = [asyncio.create_task(limiter.answers.wait(failed.number)) for _ in range(2)]
        await asyncio.sleep(59)
        assert limiter.prefetch_target == prefetch_target + 2
        assert not any(each.done() for each in watching)
        await asyncio.sleep(2)
        assert [each.result().answered for each in watching] == [False, False]
        assert limiter.prefetch_target == prefetch_target
        watching.append(asyncio.create_task(limiter.answers.wait(failed.number)))
        await asyncio.sleep(1)
        fleet.leases = [replace(PARKED, failed_probes=3, reason="no key")]
        await asyncio.sleep(2)
        found = watching[-1].result()
        assert (found.circuit_open, found.failed_probes) == (True, 3)
        assert limiter.local.lease.reason == "no key"
        started = now_s()
        await limiter.answers.hold(5)
        assert now_s() == started
        limiter.release(other)


async def test_closing_ends_a_watch() -> None:
    async with limited(FREE) as (_, limiter):
        failed, other = await entered(limiter, number=2)
        await missed_deadline(limiter, failed)
        watching = asyncio.create_task(limiter.answers.wait(failed.number))
        await asyncio.sleep(1)
        limiter.close()
        with pytest.raises(ShuttingDownError):
            await asyncio.wait_for(watching, 1)
        limiter.release(other)


async def test_a_parked_model_keeps_few_items() -> None:
    async with limited(PARKED) as (_, limiter):
        entries = [waiting_call(limiter) for _ in range(5)]
        await asyncio.sleep(0.1)
        assert [entry.done() for entry in entries] == [False] * PREFETCH.probers + [True] * 3
        started = now_s()
        with pytest.raises(ItemShedError):
            await limiter.acquire("run", ONE)
        assert now_s() - started == pytest.approx(1.0)
        assert limiter.prefetch_target == PREFETCH.probers
        limiter.close()
        results = await asyncio.gather(*entries, return_exceptions=True)
        assert [type(each) for each in results] == [ShuttingDownError] * 2 + [ItemShedError] * 3


async def test_a_model_is_called_parked_after_two_probes() -> None:
    """From then on it says when it is called next: 12:00 on 23 November 2026."""
    said = replace(PARKED, reason="HTTP 401: no", probe_at=1_795_435_200.0)
    leases = (replace(said, failed_probes=probes) for probes in (1, 2))
    async with limited(*leases) as (_, limiter):
        waiting = waiting_call(limiter)
        await asyncio.sleep(0.1)
        assert limiter.why_parked is None
        await asyncio.sleep(1.5)
        assert limiter.why_parked == "next call at 12:00:00 UTC; HTTP 401: no"
        waiting.cancel()
        await asyncio.sleep(3)
        assert not limiter.parked


async def test_money_is_asked_of_the_store() -> None:
    lost = RunLease("run", 0, over=False, unknown=True)
    found = RunLease("run", 2, over=False, unknown=False)
    leases = [replace(FREE, runs=(run,)) for run in (lost, found)]
    async with limited(*leases) as (fleet, limiter):
        budget = Budget(run_cap=100)
        entries = [asyncio.create_task(limiter.acquire("run", ONE, budget)) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert done(entries) == 2
        assert fleet.requests[1].runs[0].stored == StoredCost(30, {"lab/guard": 30})
        for permit in await asyncio.gather(*entries[:2]):
            limiter.succeeded(permit, tokens=None, cost=7)
        limiter.release(await asyncio.wait_for(entries[2], 5))
        fleet.leases = [FREE]


async def test_a_run_over_budget() -> None:
    over = RunLease("dear", 0, over=True, unknown=False)
    async with limited(replace(FREE, runs=(over,)), FREE) as (_, limiter):
        with capture_logs() as logs:
            for _ in range(2):
                with pytest.raises(OverBudgetError):
                    await dear_call(limiter)
        # Embedded runs say it in a sentence, and show warnings.
        assert {(each["event"], each["log_level"]) for each in logs} == {
            ("run_over_budget", "info")
        }
        assert [run for run, _ in await limiter.over_budget()] == ["dear"]
        (permit,) = await entered(limiter, "cheap")
        limiter.release(permit)


async def test_a_raised_cap() -> None:
    over, one, two = (RunLease("dear", n, over=n == 0, unknown=False) for n in range(3))
    leases = [replace(FREE, runs=(run,)) for run in (over, one, over, two)]
    async with limited(*leases) as (fleet, limiter):
        fleet.budget = Budget(run_cap=2)
        limiter.release(await asyncio.wait_for(dear_call(limiter), 5))
        fleet.leases[:] = leases[2:]
        await refused(limiter)
        assert [run for run, _ in await limiter.over_budget()] == ["dear"]
        fleet.budget = Budget(run_cap=3)
        entries = (dear_call(limiter) for _ in range(2))
        for permit in await asyncio.wait_for(asyncio.gather(*entries), 5):
            limiter.release(permit)
        assert await limiter.over_budget() == []
        fleet.leases = [FREE]
    assert [run.cap for ask in fleet.requests for run in ask.runs if run.waiting] == [1, 2, 2, 3]


async def test_a_cancelled_call_takes_no_slot() -> None:
    async with limited(replace(FREE, slots=1)) as (_, limiter):
        (first,) = await entered(limiter)
        waiting = [waiting_call(limiter) for _ in range(2)]
        await asyncio.sleep(0.01)
        limiter.release(first)
        waiting[0].cancel()  # in the moment in which it was let through
        permit = await asyncio.wait_for(waiting[1], 5)
        limiter.release(permit)


async def test_a_new_limit_is_reported_at_once() -> None:
    """The fleet should not find it out by 429s. The same limit again waits for the next report."""
    async with limited(FREE) as (fleet, limiter):
        (permit,) = await entered(limiter)
        limiter.observe(RateHint(60, 59))
        await asyncio.sleep(0.05)
        assert fleet.requests[-1].report.hint == RateHint(60, 59)
        reported = len(fleet.requests)
        limiter.observe(RateHint(60, 58))  # nearly every answer says what is left
        await asyncio.sleep(0.05)
        assert len(fleet.requests) == reported
        limiter.observe(RateHint(120, 100))
        await asyncio.sleep(0.05)
        assert [each.report.hint for each in fleet.requests[reported:]] == [RateHint(120, 100)]
        limiter.release(permit)


async def test_a_bug_does_not_hang() -> None:
    async with limited(KeyError("bug"), FREE) as (_, limiter):
        with pytest.raises(LimiterFailedError):
            await limiter.acquire("run", ONE)
        (permit,) = await entered(limiter)
        limiter.release(permit)


def test_an_ending_loop_ends_the_renewal() -> None:
    fleet = FakeFleet(FREE)
    problems: list[object] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: problems.append(context)
        )
        limiter = fleet.limiter()
        (permit,) = await entered(limiter)
        answered(limiter, permit)

    run_virtually(run())
    assert problems == []


async def test_the_last_report_of_a_fleet_without_limiter() -> None:
    async with limited(FREE, LimiterUnreachableError("away")) as (fleet, limiter):
        first, second = await entered(limiter, number=2)
        limiter.close()
        await asyncio.sleep(30)
        answered(limiter, first)
        await limiter.failed(second, ErrorClass.SERVER, None, "no")
        await asyncio.wait_for(limiter.finish(), 30)
        asked = len(fleet.requests)
        await asyncio.sleep(30)
        assert len(fleet.requests) == asked
    assert len(fleet.requests) < 30


async def test_a_run_without_cap_does_not_wait_for_money() -> None:
    nothing_left = RunLease("dear", 0, over=False, unknown=False)
    async with limited(replace(FREE, runs=(nothing_left,))) as (_, limiter):
        dear = asyncio.create_task(dear_call(limiter))
        await asyncio.sleep(0.1)
        started = now_s()
        for permit in await entered(limiter, "cheap", number=5):
            limiter.release(permit)
        assert now_s() == started
        dear.cancel()


async def test_an_unused_probe_is_reported() -> None:
    probe = replace(PARKED, permits=1, probe=True, wait_s=0.5)
    async with limited(probe, PARKED, probe, PARKED, slots=1) as (fleet, limiter):
        fleet.semaphore.acquire("lab/other")
        entry = waiting_call(limiter)
        await asyncio.sleep(0.6)
        fleet.semaphore.release("lab/other")
        permit = await asyncio.wait_for(entry, 5)
        assert permit.probe
        await asyncio.sleep(2)
        answered(limiter, permit)
    assert [ask.probing for ask in fleet.requests[:4]] == [False, False, False, True]
    assert not fleet.requests[-1].probing


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
async def test_failures_that_cost(error_class: ErrorClass, cost: int, tokens: int) -> None:
    """A provider that may have worked on a call may charge for it, whatever became of it."""
    enough = RunLease("run", 9, over=False, unknown=False)
    async with limited(replace(FREE, runs=(enough,))) as (fleet, limiter):
        permit = await limiter.acquire("run", ONE, Budget(run_cap=100))
        fleet.leases = [replace(FREE, runs=(enough,) if cost else ()), FREE]
        await limiter.failed(permit, error_class, None, "no")
    assert fleet.reported_usd == cost
    assert sum(ask.report.tokens for ask in fleet.requests) == tokens


async def test_a_run_forgotten_while_the_store_is_asked() -> None:
    """An item that asked for a raised cap meanwhile is called all the same, and its cost reported."""
    over, enough = (RunLease("dear", n, over=n == 0, unknown=False) for n in (0, 9))
    async with limited(replace(FREE, runs=(over,)), FREE) as (fleet, limiter):
        await refused(limiter)
        fleet.budget = Budget(run_cap=2)
        fleet.budget_after_s = 5.0
        late = asyncio.create_task(dear_call(limiter))
        await asyncio.sleep(0)
        for number in range(IDLE_QUEUES):
            (permit,) = await entered(limiter, f"run{number}")
            limiter.release(permit)
        await asyncio.sleep(3)
        fleet.leases = [replace(FREE, runs=(enough,))]
        permit = await asyncio.wait_for(late, 5)
        fleet.leases = [replace(FREE, runs=(enough,)), FREE]
        limiter.succeeded(permit, tokens=None, cost=3)
    assert fleet.reported_usd == 3


async def test_ended_runs_are_forgotten() -> None:
    async with limited(FREE) as (_, limiter):
        queues = []
        for number in range(3 * IDLE_QUEUES):
            (permit,) = await entered(limiter, f"run{number}")
            queues.append(ref(permit.run))
            answered(limiter, permit)
        del permit
        await asyncio.sleep(3)
        gc.collect()
        assert sum(queue() is not None for queue in queues) == IDLE_QUEUES


async def test_closing_while_the_store_is_asked() -> None:
    over = RunLease("dear", 0, over=True, unknown=False)
    async with limited(replace(FREE, runs=(over,)), FREE) as (fleet, limiter):
        await refused(limiter)
        fleet.budget = Budget(run_cap=2)
        late = asyncio.create_task(dear_call(limiter))
        await asyncio.sleep(0)
        limiter.close()
        with pytest.raises(ShuttingDownError):
            await late


async def test_nobody_answers_at_the_end() -> None:
    fleet = FakeFleet(FREE)
    limiter = fleet.limiter()
    (permit,) = await entered(limiter)
    fleet.silent = True
    limiter.release(permit)
    limiter.close()
    await asyncio.wait_for(limiter.finish(), 20)


async def test_the_newest_run_decides_the_limits() -> None:
    """An operator who corrects a limit and submits again need not restart the workers.

    All arms of a model share it.
    """
    fleet = FakeFleet(FREE)
    shared = SharedLimiter(FakeAsyncRedis(), "a")
    limiters = Limiters(shared, fleet.spent_by, fleet.budget_of, 100)
    for run_id, arm, limit in (("0b", "", 3), ("0c", "#low", 5), ("0a", "#a", 90)):
        spec = ModelSpec(f"lab/guard{arm}", WireFormat.OPENAI, "guard", max_in_flight=limit)
        limiter = limiters.of(spec, run_id)
    arms = [f"lab/guard#{'low' if n % 2 else 'a'}" for n in range(20)]
    entries = [asyncio.create_task(limiter.acquire("0a", ONE, contender=arm)) for arm in arms]
    await asyncio.sleep(0.1)
    assert done(entries) == 5  # of all arms together, which take turns
    assert sum(limiters.waiting("0a", arm).limiter for arm in {*arms}) == 15
    assert {limiters.waiting("0a", arm).limiter for arm in {*arms}} == {7, 8}
    for entry in entries[:5]:
        limiter.release(entry.result())
    limiters.close()
    await asyncio.gather(*entries, return_exceptions=True)
    await limiters.finish()


async def test_no_more_calls_begin_than_a_program_has_processes() -> None:
    """Models of one provider share them, and a call that only waits ends with the limiter."""
    fleet = FakeFleet(FREE)
    shared = SharedLimiter(FakeAsyncRedis(), "a")
    limiters = Limiters(shared, fleet.spent_by, fleet.budget_of, 100)
    specs = [ModelSpec(f"hook/{name}", WireFormat.EXEC, name) for name in "ab"]
    both = [limiters.of(spec, "0a", Program(command=("hook",), processes=2)) for spec in specs]
    entries = [asyncio.create_task(both[n % 2].acquire("0a", ONE)) for n in range(6)]
    ended: set[int] = set()
    for _ in range(3):
        await asyncio.sleep(0.1)
        calling = {n for n, entry in enumerate(entries) if entry.done()} - ended
        assert len(calling) == 2
        ended.add(min(calling))
        both[min(calling) % 2].release(entries[min(calling)].result())
    limiters.close()
    found = await asyncio.gather(*entries, return_exceptions=True)
    assert [type(each) for each in found].count(ShuttingDownError) == 1
    await limiters.finish()


def test_the_fleet_and_the_items_call_the_same_wait_long() -> None:
    assert POLICY["pacing"]["longest_pause_s"] == LONGEST_RETRY_AFTER_S

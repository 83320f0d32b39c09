"""The limiter's decisions, on a real Redis and inside this process: the same script on both.

Most tests give the time themselves, so that minutes pass in milliseconds.
"""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from fakeredis import FakeAsyncRedis, FakeServer
from msgspec.structs import replace
from redis.asyncio import Redis

from aegish_dist.core.model import Limits, RateHint
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.errors import (
    LimiterUnreachableError,
    OverBudgetError,
    QueueError,
    ShuttingDownError,
)
from aegish_dist.ratelimit.fair_queue import Accounts, Budget, ExpectedUsage
from aegish_dist.ratelimit.local_lease import ProcessSemaphore
from aegish_dist.ratelimit.model_limiter import ModelLimiter
from aegish_dist.ratelimit.policy import POLICY, PREFETCH
from aegish_dist.ratelimit.shared_limiter import SharedLimiter, probe_now
from aegish_dist.ratelimit.usage_report import (
    Lease,
    LeaseRequest,
    RunLease,
    RunRequest,
    StoredCost,
    UsageReport,
)
from tests.services import free_port

START = 1_000.0
MANY = 10_000
FREE = Limits()

Test = Callable[[Callable[[str], SharedLimiter]], Awaitable[None]]
Play = Callable[[Test], None]
"""Plays a test that opens limiters by the names of their workers."""


@pytest.fixture(params=["redis", "fakeredis"])
def play(request: pytest.FixtureRequest) -> Play:
    """A fleet on an empty server of either kind."""
    if request.param == "redis":
        url: str = request.getfixturevalue("redis_url")
        return lambda test: asyncio.run(_play(test, lambda: Redis.from_url(url)))
    server = FakeServer()
    return lambda test: asyncio.run(_play(test, lambda: FakeAsyncRedis(server=server)))


async def _play(test: Test, connect: Callable[[], Redis]) -> None:
    limiters: list[SharedLimiter] = []

    def open_limiter(worker: str) -> SharedLimiter:
        limiters.append(SharedLimiter(connect(), worker))
        return limiters[-1]

    try:
        await test(open_limiter)
    finally:
        for limiter in limiters:
            await limiter.__aexit__()


def ask(
    *,
    model: str = "lab/guard",
    held: int = 0,
    waiting: int = 0,
    tokens: int = 1,
    limits: Limits = FREE,
    shared: Limits = FREE,
    report: UsageReport | None = None,
    runs: tuple[RunRequest, ...] = (),
    probing: bool = False,
) -> LeaseRequest:
    """An ask of which a test gives only what matters."""
    return LeaseRequest(
        model, held, waiting, tokens, limits, shared, report or UsageReport(), runs, probing
    )


def test_requests_per_minute(play: Play) -> None:
    """Two workers together begin calls at the listed rate, after a burst of half a second."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        limiters = [open_limiter("a"), open_limiter("b")]
        begun = 0
        for step in range(601):
            for limiter in limiters:
                lease = await limiter.lease(
                    ask(waiting=MANY, limits=Limits(requests_per_minute=600)), START + step / 10
                )
                assert lease.metered
                begun += lease.permits
        assert 600 <= begun <= 600 + 1 + 5

    play(test)


def test_tokens_per_minute(play: Play) -> None:
    """Calls of 100 tokens pass at a hundredth of the token rate; excess tokens are made up for."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        limiter = open_limiter("a")
        limits = Limits(tokens_per_minute=60_000)

        async def begun(first: int, last: int, excess: int) -> int:
            calls = 0
            for step in range(first, last):
                report = UsageReport(tokens=excess * calls_before)
                lease = await limiter.lease(
                    ask(waiting=MANY, tokens=100, limits=limits, report=report), START + step / 10
                )
                calls += lease.permits
            return calls

        calls_before = 0
        assert await begun(0, 601, 0) == pytest.approx(600, abs=7)
        # 3,000 tokens more than expected are three seconds of the limit.
        await limiter.lease(
            ask(tokens=100, limits=limits, report=UsageReport(tokens=3000)), START + 60
        )
        assert await begun(601, 901, 0) == pytest.approx(300 - 30, abs=7)

    play(test)


def test_models_of_one_provider(play: Play) -> None:
    """Limits of a provider hold for all its models together, and for no others."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        limiter = open_limiter("a")
        shared = Limits(requests_per_minute=600, max_in_flight=10)
        begun = 0
        for step in range(301):
            for model in ("lab/a", "lab/b"):
                lease = await limiter.lease(
                    ask(model=model, waiting=3, shared=shared), START + step / 10
                )
                begun += lease.permits
        assert begun == pytest.approx(300, abs=7)

        first = await limiter.lease(
            ask(model="lab/a", held=8, waiting=8, shared=shared), START + 31
        )
        second = await limiter.lease(ask(model="lab/b", waiting=8, shared=shared), START + 31)
        other = await limiter.lease(ask(model="other/a", waiting=8), START + 31)
        assert first.slots is not None
        assert second.slots == 10 - max(8, first.slots)
        assert other.permits == 8

    play(test)


def test_leases_of_a_dead_worker(play: Play) -> None:
    """The lease of a killed worker ends five seconds after its last request."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        dead, alive = open_limiter("dead"), open_limiter("alive")
        limits = Limits(max_in_flight=4)
        assert (await dead.lease(ask(waiting=9, limits=limits), START)).slots == 4

        slots = [
            (await alive.lease(ask(waiting=9, limits=limits), START + after)).slots
            for after in (0, 2.5, 4.9, 5.1)
        ]

        assert slots == [0, 0, 0, 4]

    play(test)


def test_workers_share_the_calls_in_flight(play: Play) -> None:
    """Those who want more than there is get equal parts; never more are let through than may be."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        limits = Limits(max_in_flight=12)
        workers = {name: open_limiter(name) for name in "abcd"}
        slots = dict.fromkeys(workers, 0)
        for step in range(5):
            for name, limiter in workers.items():
                # Each has as many calls in flight as it may, and could use many more.
                lease = await limiter.lease(
                    ask(held=slots[name], waiting=50, limits=limits), START + step
                )
                assert lease.slots is not None
                slots[name] = lease.slots
                assert sum(slots.values()) <= 12
        assert slots == dict.fromkeys(workers, 3)

        # One that needs little leaves the rest to the others.
        for step in range(5, 8):
            for name, limiter in workers.items():
                held, waiting = (1, 0) if name == "a" else (slots[name], 50)
                lease = await limiter.lease(
                    ask(held=held, waiting=waiting, limits=limits), START + step
                )
                slots[name] = lease.slots or 0
        assert slots["b"] + slots["c"] + slots["d"] >= 9

    play(test)


def test_slow_start(play: Play) -> None:
    """An unknown model starts with twenty calls in flight and gets one more for each answer."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        limiter = open_limiter("a")
        first = await limiter.lease(ask(waiting=500), START)
        second = await limiter.lease(
            ask(held=20, waiting=480, report=UsageReport(answers=20, alive=True)), START + 1
        )
        third = await limiter.lease(
            ask(held=40, waiting=440, report=UsageReport(answers=60, alive=True)), START + 2
        )
        assert (first.slots, second.slots, third.slots) == (20, 40, 100)
        assert not third.metered

    play(test)


def test_a_stated_concurrency_is_used_at_once(play: Play) -> None:
    """A catalog that says how many calls a model takes makes a slow start needless."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        limits = Limits(max_in_flight=100)
        assert (await open_limiter("a").lease(ask(waiting=500, limits=limits), START)).slots == 100

    play(test)


def test_headers_end_the_slow_start(play: Play) -> None:
    """A limit that the provider tells is kept from then on, below it while little is left."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        limiter = open_limiter("a")
        hint = UsageReport(hint=RateHint(600, 300), alive=True)
        known = await limiter.lease(ask(waiting=MANY, report=hint), START)
        assert (known.slots, known.metered, known.rate) == (None, True, 10)

        scarce = UsageReport(hint=RateHint(600, 0), alive=True)
        assert (await limiter.lease(ask(waiting=MANY, report=scarce), START + 1)).rate == 9

        plenty = UsageReport(hint=RateHint(1e8, 1e8), alive=True)
        assert not (await limiter.lease(ask(waiting=MANY, report=plenty), START + 2)).metered

    play(test)


def refused(epoch: int, number: int, **more: float) -> UsageReport:
    """News of so many 429s."""
    return UsageReport(epoch=epoch, refused=number, alive=True, pause_s=more.get("pause_s", 0.0))


def test_a_burst_of_refusals_is_one_event(play: Play) -> None:
    """However many workers report it, the rate decreases once; and again a while later."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        limits = Limits(requests_per_minute=600)
        workers = [open_limiter(name) for name in "abcd"]
        for step in range(100):  # ten seconds at the full rate
            lease = await workers[0].lease(
                ask(
                    waiting=99,
                    limits=limits,
                    report=UsageReport(answers=1, epoch_answers=1, alive=True),
                ),
                START + step / 10,
            )
        assert lease.rate == 10

        now = START + 10
        leases = [
            await limiter.lease(ask(waiting=99, limits=limits, report=refused(0, 2)), now + n / 100)
            for n, limiter in enumerate(workers)
        ]
        assert {lease.epoch for lease in leases} == {1}
        rates = {round((lease.rate or 0) * (n + 1), 6) for n, lease in enumerate(leases)}
        assert rates == {9.0}

        late = await workers[0].lease(ask(waiting=99, limits=limits, report=refused(0, 9)), now + 2)
        assert late.epoch == 1
        again = await workers[0].lease(
            ask(waiting=99, limits=limits, report=refused(1, 1)), now + 3
        )
        assert again.epoch == 2

    play(test)


def test_increase(play: Play) -> None:
    """After a decrease the rate grows again, step by step, with answers and not without."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        limiter = open_limiter("a")
        limits = Limits(requests_per_minute=600)
        await limiter.lease(ask(waiting=99, limits=limits), START)
        await limiter.lease(ask(waiting=99, limits=limits, report=refused(0, 1)), START + 2)
        rates = []
        for step in range(1, 80):
            answers = 1 if step > 20 else 0
            report = UsageReport(epoch=1, answers=answers, epoch_answers=answers, alive=True)
            lease = await limiter.lease(
                ask(waiting=99, limits=limits, report=report), START + 2 + step
            )
            rates.append(lease.rate or 0)
        assert set(rates[:20]) == {rates[0]}
        assert rates[0] < 10
        assert rates == sorted(rates)
        assert rates[-1] == 10

    play(test)


def test_retry_after(play: Play) -> None:
    """The whole fleet keeps away from the model as long as the provider asks one worker to."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        refused_one, other = open_limiter("refused"), open_limiter("other")
        limits = Limits(requests_per_minute=600)
        await refused_one.lease(ask(waiting=9, limits=limits), START)
        await refused_one.lease(
            ask(waiting=9, limits=limits, report=refused(0, 1, pause_s=7.0)), START + 2
        )
        permits = [
            (await other.lease(ask(waiting=9, limits=limits), START + 2 + after)).permits
            for after in (0.1, 3, 6.9, 7.5)
        ]
        assert permits[:3] == [0, 0, 0]
        assert permits[3] > 0

    play(test)


def test_overload_pauses_without_shrinking(play: Play) -> None:
    """A 503 stops the model for a second, at most every five; the rate stays what it was."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        limiter = open_limiter("a")
        limits = Limits(requests_per_minute=600)
        await limiter.lease(ask(waiting=9, limits=limits), START)
        seen = []
        for after, overloaded in ((0, 1), (0.9, 0), (1.1, 1), (1.2, 0), (6.0, 1)):
            report = UsageReport(overloaded=overloaded, failures=overloaded)
            lease = await limiter.lease(
                ask(waiting=9, limits=limits, report=report), START + 10 + after
            )
            seen.append((lease.permits > 0, lease.rate, lease.epoch))
        assert seen == [(may, 10, 0) for may in (False, False, True, True, False)]

    play(test)


DEAD = UsageReport(failures=1)


def test_breaker(play: Play) -> None:
    """Ten failures in a row over the fleet park the model; one probe at a time finds it again."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        a, b = open_limiter("a"), open_limiter("b")
        for number in range(9):
            lease = await (a, b)[number % 2].lease(ask(waiting=5, report=DEAD), START)
            assert (lease.circuit_open, lease.permits > 0) == (False, True)
        assert (await a.lease(ask(waiting=5, report=DEAD), START)).circuit_open
        early = await b.lease(ask(waiting=5), START + 1.9)
        assert (early.circuit_open, early.permits, early.failed_probes) == (True, 0, 0)

        probe, other = [await limiter.lease(ask(waiting=5), START + 2.1) for limiter in (a, b)]
        assert (probe.probe, probe.permits, other.permits) == (True, 1, 0)

        # Unsuccessful: the next one comes after twice the time.
        failed = UsageReport(failures=1, probe_failed=True)
        assert (await a.lease(ask(waiting=4, report=failed), START + 3)).failed_probes == 1
        assert (await b.lease(ask(waiting=5), START + 6.9)).permits == 0
        assert (await b.lease(ask(waiting=5), START + 7.1)).probe

        back = await b.lease(ask(waiting=4, report=UsageReport(answers=1, alive=True)), START + 8)
        assert (back.circuit_open, back.permits) == (False, 4)
        assert not (await a.lease(ask(waiting=4), START + 8)).circuit_open

    play(test)


def test_a_success_ends_the_row(play: Play) -> None:
    """Nine failures, an answer and nine more failures are no ten in a row."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        limiter = open_limiter("a")
        await limiter.lease(ask(waiting=5, report=UsageReport(failures=9)), START)
        lease = await limiter.lease(
            ask(waiting=5, report=UsageReport(answers=1, alive=True, failures=9)), START
        )
        assert not lease.circuit_open
        assert (await limiter.lease(ask(waiting=5, report=DEAD), START)).circuit_open

    play(test)


def test_probes_grow_rare(play: Play) -> None:
    """The wait between probes doubles up to five minutes."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        limiter = open_limiter("a")
        await limiter.lease(ask(waiting=5, report=UsageReport(failures=10)), START)
        now, waits = START, list[float]()
        while len(waits) < 10:
            asked_at = now
            while not (await limiter.lease(ask(waiting=5), now)).probe:
                now += 0.5
            waits.append(now - asked_at)
            await limiter.lease(
                ask(waiting=5, report=UsageReport(failures=1, probe_failed=True)), now
            )
        assert waits == [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]

    play(test)


def test_a_provider_that_asks_for_a_long_wait(play: Play) -> None:
    """It is parked until then, an hour at most; late answers do not end that, a probe does."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        a, b = open_limiter("a"), open_limiter("b")
        long = replace(refused(0, 1, pause_s=900.0), reason="HTTP 429: try again later")
        lease = await a.lease(ask(waiting=5, report=long), START)
        assert (lease.circuit_open, lease.permits, lease.reason) == (True, 0, long.reason)
        assert lease.failed_probes == POLICY.breaker.shown_probes  # said to be parked at once
        late = await b.lease(ask(waiting=5, report=UsageReport(answers=3, alive=True)), START + 1)
        assert (late.circuit_open, late.permits) == (True, 0)
        assert (await a.lease(ask(waiting=5), START + 899)).permits == 0
        assert (await a.lease(ask(waiting=5), START + 901)).probe
        again = await a.lease(ask(waiting=5, report=refused(0, 1, pause_s=1e9)), START + 902)
        assert again.circuit_open
        assert (await b.lease(ask(waiting=5), START + 902 + 3599)).permits == 0
        assert (await b.lease(ask(waiting=5), START + 902 + 3601)).probe
        alive = UsageReport(answers=1, alive=True)
        back = await b.lease(ask(waiting=4, report=alive), START + 902 + 3602)
        assert (back.circuit_open, back.permits > 0, back.reason) == (False, True, None)

    play(test)


def test_why_a_model_is_parked(play: Play) -> None:
    """The newest words of the provider are heard by every worker, for as long as it is parked."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        a, b = open_limiter("a"), open_limiter("b")
        first = await a.lease(
            ask(waiting=5, report=UsageReport(failures=9, reason="HTTP 500: oh")), START
        )
        assert first.reason is None
        await a.lease(ask(waiting=5, report=UsageReport(failures=1, reason="HTTP 401: no")), START)
        assert (await b.lease(ask(waiting=5), START + 1)).reason == "HTTP 401: no"
        back = await b.lease(ask(waiting=5, report=UsageReport(answers=1, alive=True)), START + 3)
        assert back.reason is None

    play(test)


async def test_a_probe_on_request(redis_url: str) -> None:
    """The next to ask probes a parked model, once, as if it had just been parked; others go on."""
    async with (
        SharedLimiter.connect(redis_url, "a") as a,
        SharedLimiter.connect(redis_url, "b") as b,
    ):
        now = START
        await a.lease(ask(waiting=5, report=UsageReport(failures=10)), now)
        await b.lease(ask(model="lab/alive", waiting=5, report=UsageReport(failures=9)), now)
        for _ in range(8):
            now += 300
            assert (await a.lease(ask(waiting=5), now)).probe
            failed = UsageReport(failures=1, probe_failed=True)
            lease = await a.lease(ask(waiting=5, report=failed), now)
        assert (lease.failed_probes, lease.permits) == (8, 0)

        await asyncio.to_thread(
            probe_now, redis_url, ["lab/guard", "lab/alive", "lab/never called"]
        )

        probe, other = [await limiter.lease(ask(waiting=5), now + 1) for limiter in (a, b)]
        assert (probe.circuit_open, probe.failed_probes, probe.probe) == (True, 0, True)
        assert (other.probe, other.permits) == (False, 0)
        await a.lease(ask(waiting=5, report=failed), now + 2)
        assert not (await b.lease(ask(waiting=5), now + 3.9)).probe
        assert (await b.lease(ask(waiting=5), now + 4.1)).probe
        back = await b.lease(ask(waiting=4, report=UsageReport(answers=1, alive=True)), now + 5)
        assert (back.circuit_open, back.permits) == (False, 4)

        assert not (await b.lease(ask(model="lab/alive", waiting=5), now)).circuit_open
        last = ask(model="lab/alive", waiting=5, report=DEAD)
        assert (await b.lease(last, now)).circuit_open


async def test_documents_of_the_version_before(redis_url: str) -> None:
    """Workers of both versions share a Redis while a fleet is upgraded."""
    model = {
        **{"since": 900, "epoch": 4, "epoch_at": 950, "answers": 9, "refusals": 0, "recent": 40.5},
        **{"counted_at": 999, "pause_until": 0, "overloaded_at": 0, "rate": 8, "top": 10},
        **{"grown_at": 999, "failures": 10, "unanswered": 3, "reason": "HTTP 500: oh"},
        "parked": {"wait": 4, "at": 1003, "failed": 1, "prober": "old"},
        "requests": {"level": 0.5, "at": 999},
        "leases": {"old": {"slots": 3, "held": 2, "wants": 3, "expires": 1004}},
    }
    ledger = {"total": 40, "models": {"lab/guard": 40}, "leases": {}}
    async with Redis.from_url(redis_url) as client:
        await client.set("aegish:limiter:model:lab/guard", json.dumps(model))
        await client.set("aegish:limiter:run:run", json.dumps(ledger))
    async with SharedLimiter.connect(redis_url, "new") as limiter:
        request = ask(waiting=9, limits=Limits(max_in_flight=5), runs=(run_ask(waiting=9),))
        found = await limiter.lease(request, START)
        assert (found.circuit_open, found.failed_probes, found.permits) == (True, 1, 0)
        assert (found.epoch, found.reason, found.rate) == (4, "HTTP 500: oh", 4)
        assert found.runs == (RunLease("run", 0),)
        probe = await limiter.lease(request, START + 4.5)  # the other's lease has ended
        assert (probe.probe, probe.permits) == (True, 1)


def test_no_probe_where_no_limiter_is() -> None:
    """A probe on request fails with one line that names the setting."""
    with pytest.raises(QueueError, match="AEGISH_DIST_LIMITER_URL"):
        probe_now(f"redis://127.0.0.1:{free_port()}/0", ["lab/guard"])


def test_a_prober_that_dies(play: Play) -> None:
    """Its probe goes to another worker when its lease has ended."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        dead, alive = open_limiter("dead"), open_limiter("alive")
        await dead.lease(ask(waiting=5, report=UsageReport(failures=10)), START)
        assert (await dead.lease(ask(waiting=5), START + 2.5)).probe
        assert not (await alive.lease(ask(waiting=5), START + 7)).probe
        assert (await alive.lease(ask(waiting=5), START + 8)).probe

    play(test)


def test_a_probe_without_a_place(play: Play) -> None:
    """A worker too busy to begin its probe leaves it to the next one to ask."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        busy, other = open_limiter("busy"), open_limiter("other")
        await busy.lease(ask(waiting=5, report=UsageReport(failures=10)), START)
        assert (await busy.lease(ask(waiting=5), START + 2.5)).probe
        assert not (await other.lease(ask(waiting=5), START + 2.6)).probe
        assert not (await busy.lease(ask(waiting=5), START + 2.7)).probe
        assert (await other.lease(ask(waiting=5), START + 2.8)).probe
        await other.lease(ask(held=1, waiting=4, probing=True), START + 3)
        assert not (await busy.lease(ask(waiting=5), START + 3.1)).probe

    play(test)


def run_ask(
    *,
    waiting: int = 10,
    held: int = 0,
    spent: int = 0,
    stored: StoredCost | None = None,
    cap: int | None = 100,
    model_cap: int | None = None,
) -> RunRequest:
    """A capped run whose calls cost 10 each."""
    return RunRequest("run", waiting, held, 10, spent, cap, model_cap, stored)


EMPTY = StoredCost(0, {})


def test_money(play: Play) -> None:
    """Calls begin while what was spent and what all workers have in flight is below the cap."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        a, b = open_limiter("a"), open_limiter("b")

        async def permits(
            limiter: SharedLimiter, after: float, run: RunRequest
        ) -> tuple[int, bool]:
            lease = await limiter.lease(
                ask(held=run.held // 10, waiting=run.waiting, runs=(run,)), START + after
            )
            assert not lease.runs[0].unknown
            return lease.runs[0].permits, lease.runs[0].over

        assert (await a.lease(ask(waiting=10, runs=(run_ask(),)), START)).runs[0].unknown
        stored = StoredCost(45, {"lab/guard": 45})
        assert await permits(a, 0, run_ask(waiting=4, stored=stored)) == (4, False)
        assert await permits(b, 0, run_ask()) == (2, False)  # 45 + 40 + 10 is still below 100
        assert await permits(b, 1, run_ask(held=20, waiting=8)) == (0, False)
        # The first worker's calls were cheaper than expected.
        assert await permits(a, 1, run_ask(spent=20)) == (2, False)
        assert await permits(a, 2, run_ask(spent=20, waiting=0)) == (0, False)
        assert await permits(b, 2, run_ask(spent=20)) == (0, True)  # 45 + 20 + 20 + 20

    play(test)


def test_money_of_each_model(play: Play) -> None:
    """One model of a run may be over its cap while the others go on."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        limiter = open_limiter("a")
        seen = []
        for model, spent in (("lab/a", 100), ("lab/b", 40)):
            run = run_ask(spent=spent, cap=1000, model_cap=100, stored=EMPTY)
            lease = await limiter.lease(ask(model=model, waiting=10, runs=(run,)), START)
            seen.append((lease.runs[0].permits, lease.runs[0].over))
        assert seen == [(0, True), (6, False)]

    play(test)


def test_money_of_a_dead_worker(play: Play) -> None:
    """The cost of its calls in flight does not count for ever."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        dead, alive = open_limiter("dead"), open_limiter("alive")
        await dead.lease(ask(waiting=10, runs=(run_ask(stored=EMPTY),)), START)
        permits = [
            (await alive.lease(ask(waiting=10, runs=(run_ask(),)), START + after)).runs[0].permits
            for after in (1, 5.5)
        ]
        assert permits == [0, 10]

    play(test)


async def budget(_: str) -> None:
    """Know of no cap."""


def limiter_on(limiter: SharedLimiter, limits: Limits = FREE) -> ModelLimiter:
    """A model_limiter of the test model; the store knows of no cost."""

    async def spent(_: str) -> dict[str, int]:
        return {}

    made = ModelLimiter(
        "lab/guard",
        limiter.lease,
        accounts=Accounts(spent, budget),
        semaphore=ProcessSemaphore(PREFETCH.unlimited),
        generator=random.Random(1),
    )
    made.set_limits(limits, FREE)
    return made


@pytest.mark.parametrize("actual", [10, 25])
def test_four_clients_with_one_budget(play: Play, actual: int) -> None:
    """However the calls interleave, a run costs no more than its cap and what was in flight."""
    cap, in_flight = 1000, 4 * 3

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        limiters = [limiter_on(open_limiter(name)) for name in "abcd"]
        chance = random.Random(7)
        cost = 0

        async def client(model_limiter: ModelLimiter) -> None:
            nonlocal cost
            with suppress(OverBudgetError):
                while True:
                    permit = await model_limiter.acquire(
                        "run", ExpectedUsage(1, 10), Budget(run_cap=cap)
                    )
                    await asyncio.sleep(chance.random() / 100)
                    cost += actual
                    model_limiter.succeeded(permit, tokens=1, cost=actual)

        await asyncio.wait_for(
            asyncio.gather(
                *(
                    client(model_limiter)
                    for model_limiter in limiters
                    for _ in range(in_flight // 4)
                )
            ),
            30,
        )
        for model_limiter in limiters:
            assert await model_limiter.over_budget() == ["run"]
            model_limiter.close()
            await model_limiter.finish()
        assert cap <= cost <= cap + in_flight * actual
        if actual == 10:
            assert cost == cap

    play(test)


def test_a_model_parks_and_returns(play: Play) -> None:
    """A worker hears at once that its failure has parked the model, and lets a probe through."""

    async def test(open_limiter: Callable[[str], SharedLimiter]) -> None:
        model_limiter = limiter_on(open_limiter("a"))
        parked = []
        for _ in range(10):
            permit = await model_limiter.acquire("run", ExpectedUsage())
            await model_limiter.failed(permit, ErrorClass.AUTH, None, "HTTP 401: wrong key")
            parked.append(model_limiter.answers.evidence(0).circuit_open)
        assert parked == [False] * 9 + [True]
        assert model_limiter.prefetch_target == 2

        probe = await asyncio.wait_for(model_limiter.acquire("run", ExpectedUsage()), 10)
        model_limiter.succeeded(probe, tokens=None, cost=None)
        permit = await asyncio.wait_for(model_limiter.acquire("run", ExpectedUsage()), 10)
        model_limiter.release(permit)
        model_limiter.close()
        await model_limiter.finish()
        with pytest.raises(ShuttingDownError):
            await model_limiter.acquire("run", ExpectedUsage())

    play(test)


def test_redis_that_is_away() -> None:
    """Asking says that it cannot be asked, and a model_limiter waits until it can."""

    async def run() -> Lease:
        async with SharedLimiter.connect(f"redis://127.0.0.1:{free_port()}/0", "a") as limiter:
            return await limiter.lease(ask(waiting=1))

    with pytest.raises(LimiterUnreachableError):
        asyncio.run(run())


def test_redis_that_takes_no_writes(redis_url: str) -> None:
    """It is waited for until an administrator repairs it; it is no bug that fails waiting calls."""

    async def run(replicas: int) -> Lease:
        async with (
            Redis.from_url(redis_url) as client,
            SharedLimiter.connect(redis_url, "a") as limiter,
        ):
            await client.config_set("min-replicas-to-write", replicas)
            try:
                return await limiter.lease(ask(waiting=1))
            finally:
                await client.config_set("min-replicas-to-write", 0)

    with pytest.raises(LimiterUnreachableError, match="replicas"):
        asyncio.run(run(1))
    assert asyncio.run(run(0)).permits == 1

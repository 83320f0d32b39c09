"""The limiter's decisions, on a real Redis and inside this process: the same script on both.

Most tests give the time themselves, so that minutes pass in milliseconds.
"""

import asyncio
import json
import math
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from fakeredis import FakeAsyncRedis, FakeServer
from msgspec.structs import replace
from redis.asyncio import Redis

from aegish_dist.core.model import Limits, RateHint
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.status import CallWait
from aegish_dist.errors import LimiterUnreachableError, OverBudgetError, QueueError
from aegish_dist.ratelimit.fair_queue import Accounts, Budget, ExpectedUsage, ProcessSemaphore
from aegish_dist.ratelimit.local_lease import PREFETCH, LocalLease
from aegish_dist.ratelimit.model_limiter import ModelLimiter
from aegish_dist.ratelimit.shared_limiter import SharedLimiter, probe_now
from aegish_dist.ratelimit.usage_report import (
    POLICY,
    Lease,
    LeaseRequest,
    RunLease,
    RunRequest,
    StoredCost,
    UsageReport,
)
from tests.defined import defined
from tests.recorded import document_of
from tests.services import free_port

START = 1_000.0
MANY = 10_000
FREE = Limits()
TEN_A_SECOND = Limits(requests_per_minute=600)
DEAD = UsageReport(failures=1)
TEN_DEAD = UsageReport(failures=10)
FAILED_PROBE = UsageReport(failures=1, probe_failed=True)
ALIVE = UsageReport(answers=1, alive=True)


class Fleet:
    """Limiters on one server, by the names of their workers."""

    def __init__(self, connect: Callable[[str], SharedLimiter]) -> None:
        self._connect = connect
        self._runner = asyncio.Runner()
        self._limiters: dict[str, SharedLimiter] = {}

    def __getitem__(self, worker: str) -> SharedLimiter:
        if worker not in self._limiters:
            self._limiters[worker] = self._connect(worker)
        return self._limiters[worker]

    def run(self, body: Coroutine[Any, Any, None]) -> None:
        self._runner.run(body)

    def ask(
        self,
        worker: str = "a",
        after: float = 0.0,
        report: UsageReport | None = None,
        *,
        model: str = "lab/guard",
        held: int = 0,
        waiting: int = 5,
        tokens: int = 1,
        limits: Limits = FREE,
        shared: Limits = FREE,
        runs: tuple[RunRequest, ...] = (),
        probing: bool = False,
    ) -> Lease:
        """Ask so many seconds after the start; a test gives only what matters."""
        request = LeaseRequest(
            model, held, waiting, tokens, limits, shared, report or UsageReport(), runs, probing
        )
        return self._runner.run(self[worker].lease(request, START + after))

    def close(self) -> None:
        for limiter in self._limiters.values():
            self._runner.run(limiter.__aexit__())
        self._runner.close()


@pytest.fixture
def on_redis(redis_url: str) -> Iterator[Fleet]:
    with closing(Fleet(lambda worker: SharedLimiter.connect(redis_url, worker))) as fleet:
        yield fleet


@pytest.fixture
def on_fake() -> Iterator[Fleet]:
    server = FakeServer()
    with closing(Fleet(lambda name: SharedLimiter(FakeAsyncRedis(server=server), name))) as fleet:
        yield fleet


@pytest.fixture(params=["on_redis", "on_fake"])
def fleet(request: pytest.FixtureRequest) -> Fleet:
    """A fleet on an empty server of either kind."""
    found: Fleet = request.getfixturevalue(request.param)
    return found


def test_requests_per_minute(fleet: Fleet) -> None:
    """Two workers together begin calls at the listed rate, after a burst of half a second."""
    begun = 0
    for step in range(601):
        for worker in "ab":
            lease = fleet.ask(worker, step / 10, waiting=MANY, limits=TEN_A_SECOND)
            assert lease.metered
            begun += lease.permits
    assert 600 <= begun <= 600 + 1 + 5


def test_tokens_per_minute(fleet: Fleet) -> None:
    """Calls of 100 tokens pass at a hundredth of the token rate; excess tokens are made up for."""
    limits = Limits(tokens_per_minute=60_000)

    def begun(first: int, last: int) -> int:
        asked: dict[str, Any] = {"waiting": MANY, "tokens": 100, "limits": limits}
        return sum(fleet.ask("a", n / 10, **asked).permits for n in range(first, last))

    assert begun(0, 601) == pytest.approx(600, abs=7)
    # 3,000 tokens more than expected are three seconds of the limit.
    fleet.ask("a", 60, UsageReport(tokens=3000), waiting=0, tokens=100, limits=limits)
    assert begun(601, 901) == pytest.approx(300 - 30, abs=7)


def test_models_of_one_provider(fleet: Fleet) -> None:
    """Limits of a provider hold for all its models together, and for no others."""
    shared = Limits(requests_per_minute=600, max_in_flight=10)
    begun = 0
    for step in range(301):
        for model in ("lab/a", "lab/b"):
            begun += fleet.ask("a", step / 10, model=model, waiting=3, shared=shared).permits
    assert begun == pytest.approx(300, abs=7)

    first = fleet.ask("a", 31, model="lab/a", held=8, waiting=8, shared=shared)
    second = fleet.ask("a", 31, model="lab/b", waiting=8, shared=shared)
    assert second.slots == 10 - max(8, defined(first.slots))
    assert fleet.ask("a", 31, model="other/a", waiting=8).permits == 8


def test_leases_of_a_dead_worker(fleet: Fleet) -> None:
    """The lease of a killed worker ends five seconds after its last request."""
    limits = Limits(max_in_flight=4)
    assert fleet.ask("dead", limits=limits).slots == 4
    slots = [fleet.ask("alive", after, limits=limits).slots for after in (0, 2.5, 4.9, 5.1)]
    assert slots == [0, 0, 0, 4]


def test_workers_share_the_calls_in_flight(fleet: Fleet) -> None:
    """Those who want more than there is get equal parts; never more are let through than may be."""
    limits = Limits(max_in_flight=12)
    slots = dict.fromkeys("abcd", 0)
    for step in range(5):
        for name in slots:
            # Each has as many calls in flight as it may, and could use many more.
            lease = fleet.ask(name, step, held=slots[name], waiting=50, limits=limits)
            slots[name] = defined(lease.slots)
            assert sum(slots.values()) <= 12
    assert slots == dict.fromkeys(slots, 3)

    # One that needs little leaves the rest to the others.
    for step in range(5, 8):
        for name in slots:
            held, waiting = (1, 0) if name == "a" else (slots[name], 50)
            lease = fleet.ask(name, step, held=held, waiting=waiting, limits=limits)
            slots[name] = defined(lease.slots)
    assert slots["b"] + slots["c"] + slots["d"] >= 9


def test_slow_start(fleet: Fleet) -> None:
    """An unknown model starts with twenty calls in flight and gets one more for each answer."""
    first = fleet.ask(waiting=500)
    second = fleet.ask("a", 1, UsageReport(answers=20, alive=True), held=20, waiting=480)
    third = fleet.ask("a", 2, UsageReport(answers=60, alive=True), held=40, waiting=440)
    assert (first.slots, second.slots, third.slots) == (20, 40, 100)
    assert not third.metered


LISTED = Limits(max_in_flight=500)


def answered(number: int) -> UsageReport:
    return UsageReport(answers=number, alive=True)


@pytest.mark.parametrize(
    ("own", "shared"),
    [(LISTED, FREE), (FREE, LISTED), (Limits(max_in_flight=MANY), LISTED), (LISTED, LISTED)],
)
def test_a_listed_limit_is_used_at_once(fleet: Fleet, own: Limits, shared: Limits) -> None:
    """The model's limit, or its provider's."""
    asked: dict[str, Any] = {"waiting": MANY, "limits": own, "shared": shared}
    first = fleet.ask(**asked)
    assert (first.slots, first.permits, first.metered) == (500, 500, False)
    assert fleet.ask("a", 1, answered(50), held=450, **asked).slots == 500


def test_workers_share_a_listed_limit_at_once(fleet: Fleet) -> None:
    """Together they never have more in flight than is listed."""
    slots = dict.fromkeys("ab", 0)
    for step in range(5):
        for name in slots:
            held = min(slots[name], 250)
            lease = fleet.ask(name, step / 10, held=held, waiting=MANY, limits=LISTED)
            slots[name] = lease.slots or 0
        assert sum(slots.values()) <= 500
    assert slots == {"a": 250, "b": 250}


def test_a_listed_limit_beside_a_rate(fleet: Fleet) -> None:
    """The rate alone says how calls begin, whether the catalog lists it or headers tell it."""
    both = Limits(requests_per_minute=600, max_in_flight=500)
    lease = fleet.ask(waiting=MANY, limits=both)
    assert (lease.slots, lease.rate) == (500, 10)
    told = UsageReport(hint=RateHint(600, 300), alive=True)
    lease = fleet.ask("a", 1, told, model="lab/tells", waiting=MANY, limits=LISTED)
    assert (lease.slots, lease.rate) == (500, 10)


def test_a_refusal_of_the_first_calls(fleet: Fleet) -> None:
    """A listed limit with a rate that is not stated begins as an unknown one, once for all of them."""
    assert fleet.ask(waiting=MANY, limits=LISTED).slots == 500
    first = fleet.ask("a", 0.1, refused(0, 1, begun=500), held=19, waiting=MANY, limits=LISTED)
    assert (first.epoch, first.slots, first.rate, first.permits) == (1, 20, None, 0)
    others = fleet.ask("a", 0.2, refused(0, 480), held=10, waiting=MANY, limits=LISTED)
    assert (others.epoch, others.slots, others.rate, others.permits) == (1, 20, None, 0)
    assert fleet.ask("a", 1.2, held=0, waiting=MANY, limits=LISTED).permits == 20
    assert fleet.ask("a", 2, answered(10), held=0, waiting=MANY, limits=LISTED).slots == 30


def test_a_refusal_after_the_start_of_a_listed_limit(fleet: Fleet) -> None:
    """Once three quarters of the listed calls are answered, a 429 tells of a rate."""
    fleet.ask(waiting=MANY, limits=LISTED)
    fleet.ask("a", 1, UsageReport(begun=500, answers=375, epoch_answers=375), limits=LISTED)
    late = fleet.ask("a", 2, refused(0, 9, begun=500), waiting=MANY, limits=LISTED)
    assert (late.epoch, late.slots) == (1, 500)
    assert late.rate is not None


def test_a_listed_limit_after_the_model_was_parked(fleet: Fleet) -> None:
    """One answered probe says little: calls begin slowly again, up to the limit."""
    fleet.ask(waiting=MANY, limits=LISTED)
    fleet.ask("a", 1, TEN_DEAD, waiting=MANY, limits=LISTED)
    assert fleet.ask("a", 4, waiting=MANY, limits=LISTED).probe
    back = fleet.ask("a", 5, ALIVE, waiting=MANY, limits=LISTED)
    assert (back.circuit_open, back.slots) == (False, 20)
    assert fleet.ask("a", 6, answered(20), waiting=MANY, limits=LISTED).slots == 40
    assert fleet.ask("a", 7, answered(900), waiting=MANY, limits=LISTED).slots == 500


def test_headers_end_the_slow_start(fleet: Fleet) -> None:
    """A limit that the provider tells is kept from then on, below it while little is left."""

    def told(after: float, *hint: float) -> Lease:
        return fleet.ask("a", after, UsageReport(hint=RateHint(*hint), alive=True), waiting=MANY)

    assert told(0, 1e8, 1e8).slots == 20  # no limit at all
    known = told(0, 600, 300)
    assert (known.slots, known.metered, known.rate) == (None, True, 10)
    assert told(1, 600, 0).rate == 9
    assert not told(2, 1e8, 1e8).metered


def refused(epoch: int, number: int, pause_s: float = 0.0, **more: Any) -> UsageReport:
    """News of so many 429s."""
    return UsageReport(epoch=epoch, refused=number, alive=True, pause_s=pause_s, **more)


def test_a_burst_of_refusals_is_one_event(fleet: Fleet) -> None:
    """However many workers report it, the rate decreases once; and again a while later."""

    def ask(worker: str, after: float, report: UsageReport) -> Lease:
        return fleet.ask(worker, after, report, waiting=99, limits=TEN_A_SECOND)

    for step in range(100):  # ten seconds at the full rate
        lease = ask("a", step / 10, UsageReport(begun=1, answers=1, epoch_answers=1, alive=True))
    assert lease.rate == 10

    weighed = sum(math.exp((step / 10 - 10) / 30) for step in range(100))
    lowered = round(10 * (1 - 2 / weighed) * 0.9, 6)
    leases = [ask(name, 10 + n / 100, refused(0, 2)) for n, name in enumerate("abcd")]
    assert {lease.epoch for lease in leases} == {1}
    assert {round((lease.rate or 0) * (n + 1), 6) for n, lease in enumerate(leases)} == {lowered}
    assert ask("a", 12, refused(0, 9)).epoch == 1
    assert ask("a", 13, refused(1, 1)).epoch == 1  # one of few calls says little
    assert ask("a", 14, refused(1, 8, begun=8)).epoch == 2


def test_the_share_refused_of_late(fleet: Fleet) -> None:
    """All workers know it, of calls of whatever epoch; it is forgotten as the mean of half a minute."""
    assert fleet.ask("a").refused is None
    for epoch in (0, 7):
        report = UsageReport(epoch=epoch)
        for _ in range(5):
            report.add_failure(0, ErrorClass.RATE_LIMIT, None, probe=False, reason="slow down")
            report.add_answer(0, 0, 1.0)
        lease = fleet.ask("ab"[epoch > 0], 0.5, report.followed_by(UsageReport(answers=5)))
        assert lease.refused == 0.333
    assert fleet.ask("c", 0.5).refused == 0.333
    old = math.exp(-30 / 30)
    later = fleet.ask("c", 30.5, UsageReport(answers=30, alive=True))
    assert later.refused == pytest.approx(10 * old / (30 * old + 30), abs=5e-4)


@pytest.mark.parametrize("of_provider", [None, 2])
def test_a_worker_knows_that_congestion_holds_its_calls(
    fleet: Fleet, of_provider: int | None
) -> None:
    """Ten answers a second, however many calls are in flight; and beside a lower limit of others."""
    lease, shared = fleet.ask(waiting=MANY), Limits(max_in_flight=of_provider)
    for step in range(60):
        held = lease.slots or 60
        report = UsageReport(begun=5, answers=5, latency_s=5 * held / 10, alive=True)
        lease = fleet.ask("a", step / 2, report, held=held, waiting=MANY)
    held = lease.slots or 0
    assert 0 < held < 40
    lease = fleet.ask("a", 30, held=held, waiting=MANY, shared=shared)
    local = LocalLease("lab/guard", ProcessSemaphore(MANY), lambda: 0.0)
    local.renew(lease, 0.0)
    local.held = held
    assert local.blocked_by is (CallWait.SLOTS if of_provider else CallWait.CONGESTION)


def test_retry_after(fleet: Fleet) -> None:
    """The whole fleet keeps away as long as the provider asks one worker to, five minutes at most."""
    fleet.ask("refused", limits=TEN_A_SECOND)
    fleet.ask("refused", 2, refused(0, 1, pause_s=300.0), limits=TEN_A_SECOND)
    for after in (0.1, 3, 299.9):
        assert fleet.ask("other", 2 + after, limits=TEN_A_SECOND).permits == 0
    assert fleet.ask("other", 2 + 300.5, limits=TEN_A_SECOND).permits > 0


def test_overload_pauses_without_shrinking(fleet: Fleet) -> None:
    """A 503 stops the model for a second, at most every five; the rate stays what it was."""
    fleet.ask(limits=TEN_A_SECOND)
    steps = ((0, 1, False), (0.9, 0, False), (1.1, 1, True), (1.2, 0, True), (6.0, 1, False))
    for after, overloaded, may_begin in steps:
        report = UsageReport(overloaded=overloaded, failures=overloaded)
        lease = fleet.ask("a", 10 + after, report, waiting=9, limits=TEN_A_SECOND)
        assert (lease.permits > 0, lease.rate, lease.epoch) == (may_begin, 10, 0)


def test_breaker(fleet: Fleet) -> None:
    """Ten failures in a row over the fleet park the model; one probe at a time finds it again."""
    for number in range(9):
        lease = fleet.ask("ab"[number % 2], 0, DEAD)
        assert (lease.circuit_open, lease.permits > 0) == (False, True)
    assert fleet.ask("a", 0, DEAD).circuit_open
    early = fleet.ask("b", 1.9)
    assert (early.circuit_open, early.permits, early.failed_probes) == (True, 0, 0)

    probe, other = fleet.ask("a", 2.1), fleet.ask("b", 2.1)
    assert (probe.probe, probe.permits, other.permits) == (True, 1, 0)

    # Unsuccessful: the next one comes after twice the time.
    assert fleet.ask("a", 3, FAILED_PROBE).failed_probes == 1
    assert fleet.ask("b", 6.9).permits == 0
    assert fleet.ask("b", 7.1).probe

    back = fleet.ask("b", 8, ALIVE)
    assert (back.circuit_open, back.permits) == (False, 5)
    assert not fleet.ask("a", 8).circuit_open


def test_a_success_ends_the_row(fleet: Fleet) -> None:
    """Nine failures, an answer and nine more failures are no ten in a row."""
    fleet.ask("a", 0, UsageReport(failures=9))
    assert not fleet.ask("a", 0, UsageReport(answers=1, alive=True, failures=9)).circuit_open
    assert fleet.ask("a", 0, DEAD).circuit_open


def test_probes_grow_rare(fleet: Fleet) -> None:
    fleet.ask("a", 0, TEN_DEAD)
    now = 0.0
    for wait in (2, 4, 8, 16, 32, 64, 128, 256, 300, 300):
        assert not fleet.ask("a", now + wait - 0.5).probe
        now += wait
        assert fleet.ask("a", now).probe
        fleet.ask("a", now, FAILED_PROBE)


def test_a_provider_that_asks_for_a_long_wait(fleet: Fleet) -> None:
    """It is parked until then, an hour at most; late answers do not end that, a probe does."""
    words = "HTTP 429: try again later"
    lease = fleet.ask("a", 0, refused(0, 1, pause_s=301.0, reason=words))
    assert (lease.circuit_open, lease.permits, lease.reason) == (True, 0, words)
    assert lease.failed_probes == POLICY["breaker"]["shown_probes"]  # said to be parked at once
    late = fleet.ask("b", 1, UsageReport(answers=3, alive=True))
    assert (late.circuit_open, late.permits) == (True, 0)
    assert fleet.ask("a", 300.9).permits == 0
    assert fleet.ask("a", 301.1).probe
    assert fleet.ask("a", 302, refused(0, 1, pause_s=1e9)).circuit_open
    assert fleet.ask("b", 302 + 3599).permits == 0
    assert fleet.ask("b", 302 + 3601).probe
    back = fleet.ask("b", 302 + 3602, ALIVE)
    assert (back.circuit_open, back.permits > 0, back.reason) == (False, True, None)


def test_why_a_model_is_parked(fleet: Fleet) -> None:
    """The newest words of the provider are heard by every worker, for as long as it is parked."""
    assert fleet.ask("a", 0, UsageReport(failures=9, reason="HTTP 500: oh")).reason is None
    fleet.ask("a", 0, UsageReport(failures=1, reason="HTTP 401: no"))
    assert fleet.ask("b", 1).reason == "HTTP 401: no"
    assert fleet.ask("b", 3, ALIVE).reason is None


def test_a_probe_on_request(on_redis: Fleet, redis_url: str) -> None:
    """The next to ask probes a parked model, once, as if it had just been parked; others go on."""
    fleet, now = on_redis, 0.0
    fleet.ask("a", now, TEN_DEAD)
    fleet.ask("b", now, UsageReport(failures=9), model="lab/alive")
    for _ in range(8):
        now += 300
        assert fleet.ask("a", now).probe
        lease = fleet.ask("a", now, FAILED_PROBE)
    assert (lease.failed_probes, lease.permits) == (8, 0)

    probe_now(redis_url, ["lab/guard", "lab/alive", "lab/never called"])

    probe, other = fleet.ask("a", now + 1), fleet.ask("b", now + 1)
    assert (probe.circuit_open, probe.failed_probes, probe.probe) == (True, 0, True)
    assert (other.probe, other.permits) == (False, 0)
    fleet.ask("a", now + 2, FAILED_PROBE)
    assert not fleet.ask("b", now + 3.9).probe
    assert fleet.ask("b", now + 4.1).probe
    back = fleet.ask("b", now + 5, ALIVE)
    assert (back.circuit_open, back.permits) == (False, 5)
    assert not fleet.ask("b", now, model="lab/alive").circuit_open
    assert fleet.ask("b", now, DEAD, model="lab/alive").circuit_open


def test_documents_of_the_version_before(on_redis: Fleet, redis_url: str) -> None:
    """Workers of both versions share a Redis while a fleet is upgraded."""

    async def write() -> None:
        async with Redis.from_url(redis_url) as client:
            for key, document in document_of("limiter_documents.json").items():
                await client.set(key, json.dumps(document))

    on_redis.run(write())
    limits = Limits(max_in_flight=5)
    asked: dict[str, Any] = {"waiting": 9, "limits": limits, "runs": (run_ask(waiting=9),)}
    found = on_redis.ask("new", 0, **asked)
    assert (found.circuit_open, found.failed_probes, found.permits) == (True, 1, 0)
    assert (found.epoch, found.reason, found.rate) == (4, "HTTP 500: oh", 4)
    assert found.runs == (RunLease("run", 0),)
    probe = on_redis.ask("new", 4.5, **asked)  # the other's lease has ended
    assert (probe.probe, probe.permits) == (True, 1)


def test_no_probe_where_no_limiter_is() -> None:
    with pytest.raises(QueueError, match="AEGISH_DIST_LIMITER_URL"):
        probe_now(f"redis://127.0.0.1:{free_port()}/0", ["lab/guard"])


def test_a_prober_that_dies(fleet: Fleet) -> None:
    """Its probe goes to another worker when its lease has ended."""
    fleet.ask("dead", 0, TEN_DEAD)
    assert fleet.ask("dead", 2.5).probe
    assert not fleet.ask("alive", 7).probe
    assert fleet.ask("alive", 8).probe


def test_a_probe_without_a_place(fleet: Fleet) -> None:
    """A worker too busy to begin its probe leaves it to the next one to ask; an idle one has none."""
    fleet.ask("busy", 0, TEN_DEAD)
    assert not fleet.ask("idle", 2.4, waiting=0).probe
    asked = [("busy", 2.5), ("other", 2.6), ("busy", 2.7), ("other", 2.8)]
    assert [fleet.ask(*each).probe for each in asked] == [True, False, False, True]
    fleet.ask("other", 3, held=1, waiting=4, probing=True)
    assert not fleet.ask("busy", 3.1).probe


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


def test_money(fleet: Fleet) -> None:
    """Calls begin while what was spent and what all workers have in flight is below the cap."""

    def permits(worker: str, after: float, **asked: Any) -> tuple[int, bool]:
        run = run_ask(**asked)
        lease = fleet.ask(worker, after, held=run.held // 10, waiting=run.waiting, runs=(run,))
        assert not lease.runs[0].unknown
        return lease.runs[0].permits, lease.runs[0].over

    assert fleet.ask(waiting=10, runs=(run_ask(),)).runs[0].unknown
    stored = StoredCost(45, {"lab/guard": 45})
    assert permits("a", 0, waiting=4, stored=stored) == (4, False)
    assert permits("b", 0) == (2, False)  # 45 + 40 + 10 is still below 100
    assert permits("b", 1, held=20, waiting=8) == (0, False)
    # The first worker's calls were cheaper than expected.
    assert permits("a", 1, spent=20) == (2, False)
    assert permits("a", 2, spent=20, waiting=0) == (0, False)
    assert permits("b", 2, spent=20) == (0, True)  # 45 + 20 + 20 + 20


def test_money_of_each_model(fleet: Fleet) -> None:
    """One model of a run may be over its cap while the others go on."""
    for model, spent, permits in (("lab/a", 100, 0), ("lab/b", 40, 6)):
        run = run_ask(spent=spent, cap=1000, model_cap=100, stored=EMPTY)
        lease = fleet.ask(model=model, waiting=10, runs=(run,)).runs[0]
        assert (lease.permits, lease.over) == (permits, spent == 100)


def test_money_of_each_arm(fleet: Fleet) -> None:
    """Arms share limits and the run's cap, and each has the model's cap to itself."""
    low, high = (
        replace(
            run_ask(spent=spent, cap=1000, model_cap=100, stored=EMPTY), contender=f"lab/a#{of}"
        )
        for of, spent in (("low", 100), ("high", 40))
    )
    lease = fleet.ask(model="lab/a", waiting=20, runs=(low, high))
    assert [(run.permits, run.over) for run in lease.runs] == [(0, True), (6, False)]
    shared = [replace(each, spent=0, cap=200, model_cap=None) for each in (low, high)]
    lease = fleet.ask("other", model="lab/a", waiting=20, runs=tuple(shared))
    assert [run.permits for run in lease.runs] == [0, 0]  # 200 - 140 - 60 in flight


def test_money_in_flight(fleet: Fleet) -> None:
    """Calls in flight of all workers count for a run, and those of one model for its own cap."""
    stored = StoredCost(50, {"lab/a": 20})
    fleet.ask("x", model="lab/a", runs=(run_ask(held=15, waiting=0, stored=stored),))
    fleet.ask("y", model="lab/b", runs=(run_ask(held=5, waiting=0),))

    def permits(worker: str, **run: Any) -> tuple[int, bool]:
        asked = run_ask(**{"held": 10, "waiting": 9, **run})
        lease = fleet.ask(worker, model="lab/a", held=1, waiting=9, runs=(asked,)).runs[0]
        return lease.permits, lease.over

    assert permits("w", spent=5, cap=105) == (2, False)  # 105 - 55 - (10 + 15 + 5) = 20
    assert permits("z", cap=105, held=0) == (0, False)  # the others are 10 + 2 * 10 in flight
    assert permits("w", cap=None, model_cap=70) == (2, False)  # 70 - 25 - (10 + 15) = 20
    assert permits("w", cap=55) == (0, True)


def test_money_of_a_dead_worker(fleet: Fleet) -> None:
    """The cost of its calls in flight does not count for ever."""
    fleet.ask("dead", waiting=10, runs=(run_ask(stored=EMPTY),))
    for after, permits in ((1, 0), (5.5, 10)):
        lease = fleet.ask("alive", after, waiting=10, runs=(run_ask(),))
        assert lease.runs[0].permits == permits


async def spent(_: str) -> dict[str, int]:
    return {}


async def budget(_: str) -> None:
    """Know of no cap."""


def limiter_on(limiter: SharedLimiter) -> ModelLimiter:
    """A limiter of the test model; the store knows of no cost."""
    made = ModelLimiter(
        "lab/guard",
        limiter.lease,
        accounts=Accounts(spent, budget),
        semaphore=ProcessSemaphore(PREFETCH.unlimited),
        generator=random.Random(1),
    )
    made.set_limits(FREE, FREE)
    return made


@pytest.mark.parametrize("actual", [10, 25])
@pytest.mark.parametrize("arms", [("lab/guard",), ("lab/guard#low", "lab/guard#high")])
def test_four_clients_with_one_budget(fleet: Fleet, actual: int, arms: tuple[str, ...]) -> None:
    """However the calls interleave, a run costs no more than its cap and what was in flight."""
    cap, in_flight = 1000, 4 * 3
    chance = random.Random(7)
    costs: list[int] = []

    async def client(limiter: ModelLimiter, arm: str) -> None:
        usage, budget = ExpectedUsage(1, 10), Budget(run_cap=cap)
        with suppress(OverBudgetError):
            while True:
                permit = await limiter.acquire("run", usage, budget, contender=arm)
                await asyncio.sleep(chance.random() / 100)
                costs.append(actual)
                limiter.succeeded(permit, tokens=1, cost=actual)

    async def body() -> None:
        limiters = [limiter_on(fleet[name]) for name in "abcd"]
        async with asyncio.timeout(30):
            await asyncio.gather(
                *(client(e, arms[n % len(arms)]) for e in limiters for n in range(in_flight // 4))
            )
        for each in limiters:
            assert {*await each.over_budget()} == {("run", arm) for arm in arms}
            each.close()
            await each.finish()

    fleet.run(body())
    assert cap <= sum(costs) <= cap + in_flight * actual
    if actual == 10:
        assert sum(costs) == cap


def test_redis_that_is_away() -> None:
    """Asking says that it cannot be asked, and a model_limiter waits until it can."""
    url = f"redis://127.0.0.1:{free_port()}/0"
    away = closing(Fleet(lambda worker: SharedLimiter.connect(url, worker)))
    with away as fleet, pytest.raises(LimiterUnreachableError):
        fleet.ask()


def test_redis_that_takes_no_writes(on_redis: Fleet, redis_url: str) -> None:
    """It is waited for until an administrator repairs it; it is no bug that fails waiting calls."""

    async def replicas(number: int) -> None:
        async with Redis.from_url(redis_url) as client:
            await client.config_set("min-replicas-to-write", number)

    on_redis.run(replicas(1))
    try:
        with pytest.raises(LimiterUnreachableError, match="replicas"):
            on_redis.ask(waiting=1)
    finally:
        on_redis.run(replicas(0))
    assert on_redis.ask(waiting=1).permits == 1

"""A fleet whose provider gets into trouble, in virtual time: what becomes of the items."""

import asyncio
import heapq
import random
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from typing import Any, ClassVar
from unittest.mock import AsyncMock

import pytest
import redis
from msgspec import Struct, field
from msgspec.structs import replace

from aegish_dist.core.model import Limits, RateHint
from aegish_dist.core.outcome import ErrorClass, Outcome, StopKind
from aegish_dist.core.run import Prompt
from aegish_dist.core.verdict import Completion, Item, Usage
from aegish_dist.db.schema import VerdictKey
from aegish_dist.db.verdicts import LookUp
from aegish_dist.errors import ProviderError, RequeueError
from aegish_dist.pipeline.caller import Caller, Health, UsageEstimator
from aegish_dist.pipeline.evaluate import Evaluated, Evaluator
from aegish_dist.ratelimit.fair_queue import Accounts, ProcessSemaphore
from aegish_dist.ratelimit.model_limiter import ModelLimiter
from aegish_dist.ratelimit.shared_limiter import SharedLimiter
from aegish_dist.ratelimit.usage_report import Lease, LeaseRequest
from aegish_dist.simulator.behaviour import TokenBucket
from aegish_dist.simulator.config import RateLimit
from tests.virtual_time import START_S, run_virtually

pytestmark = pytest.mark.long

TIME_LIMIT_S = 10.0
LATENCY_S = 1.0
ANSWER = Completion('{"action": "BLOCK"}', usage=Usage(100, 10))

Mood = Callable[[float, str], ProviderError | Completion | float]
"""End of a call that begins so many seconds after the start: a failure, its answer, or seconds to an
ordinary one."""


class Provider(Struct):
    """A provider in some mood."""

    mood: Mood
    usage: Callable[[str], Usage] = lambda _: ANSWER.usage
    hint: Callable[[], RateHint | None] = lambda: None  # the limit that its headers name
    calls: Counter[str] = field(default_factory=Counter)
    begun_s: list[float] = field(default_factory=list)

    async def complete(self, command: str) -> Completion:
        now_s = asyncio.get_running_loop().time() - START_S
        self.calls[command] += 1
        self.begun_s.append(now_s)
        found = self.mood(now_s, command)
        if isinstance(found, ProviderError):
            await asyncio.sleep(0.05)
            raise found
        if isinstance(found, Completion):
            await asyncio.sleep(LATENCY_S)
            return found
        if found > TIME_LIMIT_S:
            await asyncio.sleep(TIME_LIMIT_S)
            raise ProviderError("no answer within 10 s", error_class=ErrorClass.DEADLINE)
        await asyncio.sleep(found)
        return replace(ANSWER, usage=self.usage(command))


class BlockingRedis(redis.Redis):
    """A Redis that answers within one step of the loop, whose clock waits for no socket."""

    def register_script(self, script: Any) -> Any:
        run = super().register_script(script)

        async def script_call(**arguments: Any) -> Any:
            return run(**arguments)

        return script_call


class Client(Struct):
    """A worker's connection to a provider."""

    provider: Provider
    limiter: ModelLimiter

    async def complete(self, command: str, epoch: int = 1) -> Completion:
        try:
            return await self.provider.complete(command)
        finally:
            if hint := self.provider.hint():
                self.limiter.observe(hint)


class Fleet(Struct):
    """Workers that share a queue, a store and a limiter."""

    redis: ClassVar[Any]
    provider: Provider
    items: int
    in_flight: int | None = 40
    prefetch: int = 100
    workers: int = 2
    stored: dict[Item, Evaluated] = field(default_factory=dict)
    queue: deque[Item] = field(default_factory=deque)
    limiters: list[ModelLimiter] = field(default_factory=list)
    reasons: set[str | None] = field(default_factory=set)
    tokens_per_minute: float | None = None

    async def run(self, seconds: float) -> None:
        """Work until everything is stored, or for so long."""
        self.queue.extend(Item("run", "lab/guard", key) for key in range(self.items))
        loop = asyncio.get_running_loop()
        tasks = [asyncio.create_task(self._work(n)) for n in range(self.workers)]
        ends_s = loop.time() + seconds
        while len(self.stored) < self.items and loop.time() < ends_s:
            await asyncio.sleep(2)
            self.reasons.update(
                model_limiter.local.lease.reason
                for model_limiter in self.limiters
                if model_limiter.parked
            )
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, number: int) -> None:
        limiter = SharedLimiter(self.redis, f"w{number}")
        loop = asyncio.get_running_loop()

        async def ask(ask: LeaseRequest) -> Lease:
            await asyncio.sleep(0.001)
            return await limiter.lease(ask, loop.time())

        limits = Limits(max_in_flight=self.in_flight, tokens_per_minute=self.tokens_per_minute)
        model_limiter = ModelLimiter(
            "lab/guard",
            ask,
            accounts=Accounts(AsyncMock(return_value={}), AsyncMock(return_value=None)),
            semaphore=ProcessSemaphore(1000),
            generator=random.Random(number),
        )
        model_limiter.set_limits(limits, Limits())
        self.limiters.append(model_limiter)
        estimator = UsageEstimator(PROMPT, None, budget=None)
        caller = Caller(Client(self.provider, model_limiter), model_limiter, estimator, None)
        evaluator = Evaluator(
            look_up=self._look_up,
            answered=self._answered,
            record=self._record,
            caller=AsyncMock(return_value=caller),
            health=Health(),
            worker=str(number),
            generator=random.Random(number),
            note=lambda _: None,
            store_deaths=AsyncMock(),
        )
        held: set[asyncio.Task[None]] = set()
        try:
            while True:
                before = len(self.queue)
                while self.queue and len(held) < min(model_limiter.prefetch_target, self.prefetch):
                    task = loop.create_task(self._evaluate(evaluator, self.queue.popleft()))
                    held.add(task)
                    task.add_done_callback(held.discard)
                await asyncio.sleep(0.5 if len(self.queue) == before else 0.05)
        finally:
            for task in held:
                task.cancel()

    async def _evaluate(self, evaluator: Evaluator, item: Item) -> None:
        try:
            await evaluator.evaluate(item, None)
        except RequeueError:
            self.queue.append(item)

    async def _look_up(self, item: Item) -> LookUp:
        key = VerdictKey(1, item.sample_key, 1, 0)
        return LookUp(key, str(item.sample_key), done=item in self.stored)

    async def _answered(self, _: int) -> bool:
        return any(each.verdict.completion for each in self.stored.values())

    async def _record(self, evaluated: Evaluated) -> None:
        assert evaluated.item not in self.stored
        self.stored[evaluated.item] = evaluated

    @property
    def outcomes(self) -> Counter[Outcome]:
        """Outcomes stored, by number."""
        return Counter(each.verdict.outcome for each in self.stored.values())


PROMPT = Prompt("p", "Judge.", "{command}")


@pytest.fixture(autouse=True)
def _one_clock(monkeypatch: pytest.MonkeyPatch, redis_url: str) -> Iterator[None]:
    """Have the evaluator see virtual time as well; the limiter gets it with each request."""
    real = time.monotonic

    def now() -> float:
        try:
            return asyncio.get_running_loop().time()
        except RuntimeError:
            return real()

    monkeypatch.setattr(time, "monotonic", now)
    with BlockingRedis.from_url(redis_url) as Fleet.redis:
        yield


def failure(error_class: ErrorClass, retry_after_s: float | None = None) -> ProviderError:
    return ProviderError("no", error_class=error_class, retry_after_s=retry_after_s)


def a_fleet(seconds: float, provider: Provider | Mood, items: int, **settings: Any) -> Fleet:
    """Return a fleet that has worked for so long, or until everything was stored."""
    asked = provider if isinstance(provider, Provider) else Provider(provider)
    fleet = Fleet(asked, items, **settings)
    run_virtually(fleet.run(seconds))
    return fleet


SILENCE = TIME_LIMIT_S + 1


def between(first_s: float, last_s: float, end: ProviderError | Completion | float) -> Mood:
    """Calls that begin in some time end in a way; all others are answered."""
    return lambda now_s, _: end if first_s < now_s < last_s else LATENCY_S


def about(samples: Collection[int], end: ProviderError | Completion | float) -> Mood:
    """Calls about some samples end in a way; all others are answered."""
    return lambda _, command: end if int(command) in samples else LATENCY_S


@pytest.mark.parametrize("in_flight", [40, 4, 1])
def test_a_provider_that_is_silent_for_a_while(in_flight: int) -> None:
    """Silence is not the model's: the items go back, and are answered when it speaks again."""
    # Calls that are under way when the silence begins are not answered either.
    mood = between(10.0 - LATENCY_S, 55.0, SILENCE)
    fleet = a_fleet(600, mood, 30 * in_flight, in_flight=in_flight)
    assert sum(fleet.outcomes.values()) == fleet.items
    assert fleet.outcomes[Outcome.TIMEOUT_ERROR] <= {40: 0, 4: 0, 1: 9}[in_flight]
    assert sum(fleet.provider.calls.values()) <= fleet.items + 2 * in_flight + 20


def test_a_slow_sample_among_answers() -> None:
    """A deadline that one sample misses while others are answered is the model's, at one call."""
    fleet = a_fleet(300, about(range(49, 500, 50), SILENCE), 500)
    assert fleet.outcomes == {Outcome.TIMEOUT_ERROR: 10, Outcome.BLOCK: 490}
    assert set(fleet.provider.calls.values()) == {1}


@pytest.mark.parametrize("slow", [0.3, 0.7])
def test_a_model_that_is_slow_with_many_samples(slow: float) -> None:
    """It is not taken for silent, not even at the end, when only slow ones are left."""
    chance = random.Random(1)
    hard = {str(key) for key in range(300) if chance.random() < slow}

    def mood(_: float, command: str) -> float:
        return SILENCE if command in hard else chance.uniform(2, 8)

    fleet = a_fleet(300, mood, 300)
    assert fleet.outcomes == {Outcome.TIMEOUT_ERROR: len(hard), Outcome.BLOCK: 300 - len(hard)}
    assert set(fleet.provider.calls.values()) == {1}


EMPTY = Completion(" \n", stop_reason="stop", stop_kind=StopKind.STOP)


@pytest.mark.parametrize("begins_s", [-1.0, 20.0])
def test_a_provider_all_of_whose_answers_are_empty_for_a_while(begins_s: float) -> None:
    """The model is parked, few calls are made, and of that time only late probes are stored."""
    fleet = a_fleet(900, between(begins_s, 300, EMPTY), 3000)
    assert len(fleet.stored) == 3000
    assert fleet.outcomes[Outcome.TIMEOUT_ERROR] <= 3, "from the fifth failed probe on"
    assert fleet.reasons == {"the answer is empty"}
    assert sum(begins_s < at < 300 for at in fleet.provider.begun_s) <= 6 * 40


@pytest.mark.parametrize(
    ("empty", "answer", "twice"),
    [
        (0.1, EMPTY, 0),
        (0.9, EMPTY, 20),  # which came before the first one with a text
        (1.0, replace(EMPTY, stop_kind=StopKind.MAX_TOKENS), 0),
    ],
)
def test_a_model_many_of_whose_answers_are_empty(
    empty: float, answer: Completion, twice: int
) -> None:
    """They are its own, and so are those that a limit of the run explains: next to no call more."""
    chance = random.Random(1)
    hard = {key for key in range(300) if chance.random() < empty}
    fleet = a_fleet(300, about(hard, answer), 300)
    verdicts = {item.sample_key: each.verdict for item, each in fleet.stored.items()}
    assert {key for key, v in verdicts.items() if v.outcome is Outcome.TIMEOUT_ERROR} == hard
    assert sum(fleet.provider.calls.values()) <= 300 + twice
    assert {verdicts[key].completion for key in hard} == {answer}, "as the model gave them"


def test_a_single_sample_of_a_silent_provider() -> None:
    """It ends after one call: nothing speaks for another one, which may cost as much."""
    fleet = a_fleet(300, lambda *_: SILENCE, 1)
    assert fleet.outcomes == {Outcome.TIMEOUT_ERROR: 1}
    assert sum(fleet.provider.calls.values()) == 1


def test_a_provider_that_never_answers() -> None:
    """Its run gets to an end: probes grow rare, and from the fifth on each settles an item."""
    fleet = a_fleet(600, lambda *_: SILENCE, 11, workers=1)
    settled = fleet.outcomes[Outcome.TIMEOUT_ERROR]
    assert settled == len(fleet.stored) >= 3
    assert sum(fleet.provider.calls.values()) <= 11 + 5 + settled


def test_refusals_between_failures_that_were_paid_for() -> None:
    """A 429 now and then does not have a provider that never answers called without end."""
    generator = random.Random(1)

    def mood(_: float, __: str) -> ProviderError:
        refused = generator.random() < 0.6
        return failure(ErrorClass.RATE_LIMIT if refused else ErrorClass.MALFORMED)

    fleet = a_fleet(3600, mood, 20, in_flight=10)
    # Twenty park the model, those in flight then end, and an hour has about 17 probes.
    assert sum(fleet.provider.calls.values()) <= 150
    assert fleet.reasons


def test_a_sample_whose_connection_is_cut_after_a_long_wait() -> None:
    """It ends after a bounded number of calls, as each may have been paid for."""
    cut = ProviderError("connection failed", error_class=ErrorClass.CONNECTION, cut=True)
    fleet = a_fleet(1200, about({59}, cut), 60)
    assert fleet.outcomes == {Outcome.BLOCK: 59, Outcome.API_ERROR: 1}
    assert fleet.provider.calls["59"] <= 6 + 10 + 5


@pytest.mark.parametrize(
    ("error_class", "number"),
    [
        (ErrorClass.AUTH, 3),
        (ErrorClass.AUTH, 300),
        (ErrorClass.CONNECTION, 300),
        (ErrorClass.SERVER, 3),
        (ErrorClass.OVERLOADED, 300),
        (ErrorClass.BAD_REQUEST, 3),
        (ErrorClass.BAD_REQUEST, 300),
    ],
)
def test_trouble_from_the_start_is_no_verdict(error_class: ErrorClass, number: int) -> None:
    """The model is parked, all items go back, and when it ends each is called once more."""
    mended_s = 150.0
    fleet = a_fleet(mended_s + 400, between(-1, mended_s, failure(error_class)), number)
    assert fleet.outcomes == {Outcome.BLOCK: number}
    assert fleet.reasons == {"no"}
    assert sum(at < mended_s for at in fleet.provider.begun_s) <= 120
    assert sum(at >= mended_s for at in fleet.provider.begun_s) == number


@pytest.mark.parametrize("error_class", [ErrorClass.AUTH, ErrorClass.BAD_REQUEST])
def test_trouble_in_the_middle_is_no_verdict(error_class: ErrorClass) -> None:
    """Items under way when a key is revoked or a model refuses all calls go back too."""
    fleet = a_fleet(400, between(10, 60, failure(error_class)), 2000)
    assert fleet.outcomes == {Outcome.BLOCK: 2000}


@pytest.mark.parametrize(
    ("error_class", "bad"),
    [
        (ErrorClass.BAD_REQUEST, {0}),
        (ErrorClass.BAD_REQUEST, {7, 100, 101, 499}),
        (ErrorClass.BAD_REQUEST, set(range(492, 500))),
        (ErrorClass.SERVER, {0}),
        (ErrorClass.SERVER, {7, 100, 101, 499}),
    ],
)
def test_rows_that_fail_while_others_are_answered(error_class: ErrorClass, bad: set[int]) -> None:
    """They are errors of their own, wherever in the run they stand, and the run ends."""
    fleet = a_fleet(1200, about(bad, failure(error_class)), 500)
    failed = {item.sample_key for item, each in fleet.stored.items() if each.verdict.error_class}
    assert len(fleet.stored) == 500
    assert failed == bad
    assert fleet.outcomes == {Outcome.API_ERROR: len(bad), Outcome.BLOCK: 500 - len(bad)}


def test_a_wait_of_an_hour_that_the_provider_asks_for() -> None:
    """A 429 with Retry-After above five minutes is no error: the model is parked until then."""
    wait_s = 600.0

    def mood(now_s: float, _: str) -> ProviderError | float:
        if 5 < now_s < 5 + wait_s:
            return failure(ErrorClass.RATE_LIMIT, retry_after_s=5 + wait_s - now_s)
        return LATENCY_S

    fleet = a_fleet(wait_s + 300, mood, 1000)
    assert fleet.outcomes == {Outcome.BLOCK: 1000}
    refused = [at for at in fleet.provider.begun_s if 5 < at < 5 + wait_s]
    assert len(refused) <= 45


@pytest.mark.parametrize(
    ("in_flight", "storm_s", "retry_after_s"),
    [(None, 60.0, None), (40, 60.0, 2.0), (40, 300.0, None)],
)
def test_a_storm_of_refusals(
    in_flight: int | None, storm_s: float, retry_after_s: float | None
) -> None:
    """After a time in which every call gets a 429, the fleet is at full speed within a minute."""
    begins_s = 40.0
    ends_s = begins_s + storm_s
    storm = between(begins_s, ends_s, failure(ErrorClass.RATE_LIMIT, retry_after_s))
    fleet = a_fleet(ends_s + 120, storm, 20_000, in_flight=in_flight, prefetch=40)

    def speed(first_s: float) -> float:
        return sum(first_s <= at < first_s + 20 for at in fleet.provider.begun_s) / 20

    assert speed(ends_s + 60) >= 0.9 * speed(begins_s - 20)
    assert set(fleet.outcomes) == {Outcome.BLOCK}
    refused = sum(begins_s < at < ends_s for at in fleet.provider.begun_s)
    assert refused <= 100 + storm_s


@pytest.mark.parametrize("in_flight", [None, 40])
def test_refusals_before_the_first_answer(in_flight: int | None) -> None:
    """Some 429s at the beginning say nothing of the rate: a minute later the run is under way."""
    mood = between(-1, 0.5, failure(ErrorClass.RATE_LIMIT))
    fleet = a_fleet(90, mood, 5000, in_flight=in_flight, prefetch=40)
    assert sum(60 <= at < 80 for at in fleet.provider.begun_s) >= 20 * 20
    assert set(fleet.outcomes) == {Outcome.BLOCK}


def test_an_answer_that_claims_to_have_used_more_tokens_than_there_are() -> None:
    """It slows its model down for some minutes, not for ever."""
    provider = Provider(
        lambda *_: LATENCY_S, lambda key: Usage(100, 2**53 - 1 if key == "3" else 10)
    )
    fleet = a_fleet(600, provider, 200, tokens_per_minute=60_000)
    assert fleet.outcomes == {Outcome.BLOCK: 200}


@pytest.mark.parametrize("workers", [1, 4])
def test_a_listed_limit_far_above_a_rate_that_nobody_states(workers: int) -> None:
    """Though 480 of the first 500 calls are refused at once, the first minute is used."""
    bucket, chance = TokenBucket(RateLimit(1200, 20), START_S), random.Random(1)
    answered: list[float] = []

    def mood(now_s: float, _: str) -> ProviderError | float:
        if bucket.take(START_S + now_s):
            return failure(ErrorClass.RATE_LIMIT)
        answered.append(now_s)
        return chance.lognormvariate(-0.3, 0.4)

    fleet = a_fleet(60, mood, 5000, in_flight=500, prefetch=1000, workers=workers)
    assert len(answered) >= 0.9 * 20 * 60
    assert set(fleet.outcomes) == {Outcome.BLOCK}


@pytest.mark.parametrize("tells", [True, False])
def test_an_unknown_limit_is_found_and_used(tells: bool) -> None:
    """After a minute a fleet uses 95 % of the limit at least, with 1 % of refusals at most."""
    per_minute, chance = 1200, random.Random(1)
    bucket = TokenBucket(RateLimit(per_minute, 20), START_S)
    refused: list[float] = []

    def mood(now_s: float, _: str) -> ProviderError | float:
        if wait_s := bucket.take(START_S + now_s):
            refused.append(now_s)
            return failure(ErrorClass.RATE_LIMIT, wait_s)
        return chance.lognormvariate(-0.2, 0.4)

    def hint() -> RateHint | None:
        return RateHint(per_minute, bucket.allowance.remaining) if tells else None

    provider = Provider(mood, hint=hint)
    a_fleet(120, provider, 5000, in_flight=None, prefetch=60, workers=4)

    calls = sum(at >= 60 for at in provider.begun_s)
    refusals = sum(at >= 60 for at in refused)
    assert (calls - refusals) / per_minute >= 0.95
    assert refusals / calls <= 0.01
    assert len(refused) / len(provider.begun_s) <= 0.02


@pytest.mark.parametrize("share", [0.05, 0.4])
def test_refusals_by_chance_beside_a_limit(share: float) -> None:
    """Of a limit of 20 calls a second nine tenths are used, whatever is refused before it counts."""
    bucket, chance = TokenBucket(RateLimit(1200, 20), START_S), random.Random(1)
    answered: list[float] = []

    def mood(now_s: float, _: str) -> ProviderError | float:
        if chance.random() < share or bucket.take(START_S + now_s):
            return failure(ErrorClass.RATE_LIMIT)
        answered.append(now_s)
        return chance.lognormvariate(-0.3, 0.4)

    a_fleet(240, mood, 8000, in_flight=None, prefetch=1000, workers=1)
    assert sum(60 <= at < 240 for at in answered) >= 0.9 * 20 * 180


@pytest.mark.parametrize(
    ("workers", "in_flight"),
    [(1, None), (4, None), (1, 60), (4, 60), (4, 125), (1, 250), (1, 500), (4, 500)],
)
def test_a_congested_provider_is_used_without_a_long_queue(
    workers: int, in_flight: int | None
) -> None:
    """At ten answers a second, whatever is asked at once, latency stays near the unloaded one.

    A listed limit is used at once. Of these calls, and of those that follow until 40 answers have
    shown a queue, the provider takes time for all, and answers those in time that it can.
    """
    lost = max(0.0, in_flight + 40 - 10 * TIME_LIMIT_S) if in_flight else 0.0
    free_at = [0.0] * 10
    waits: list[float] = []

    def mood(now_s: float, _: str) -> float:
        ends_s = max(now_s, heapq.heappop(free_at)) + LATENCY_S
        heapq.heappush(free_at, ends_s)
        waits.append(ends_s - now_s)
        return waits[-1]

    fleet = a_fleet(340, mood, 10_000, in_flight=in_flight, prefetch=500, workers=workers)
    assert len(fleet.stored) >= 0.9 * (10 * 340 - lost)
    assert len(fleet.provider.begun_s) - len(fleet.stored) <= 0.02 * len(fleet.stored) + 20 + lost
    assert statistics.median(waits) <= 2 * LATENCY_S
    assert set(fleet.outcomes) == {Outcome.BLOCK}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_listed_limit_is_used_from_the_first_call_on(workers: int) -> None:
    """A run of 1,172 commands at 500 calls takes three latencies."""
    fleet = a_fleet(60, lambda *_: LATENCY_S, 1172, in_flight=500, prefetch=2000, workers=workers)
    begun_s = sorted(fleet.provider.begun_s)
    assert len(begun_s) == len(fleet.stored) == 1172
    assert begun_s[500 - 1] < 0.5 * LATENCY_S
    assert begun_s[1000 - 1] < 1.5 * LATENCY_S
    assert begun_s[-1] < 2.5 * LATENCY_S


def test_a_healthy_provider_is_asked_as_much_at_once_as_workers_hold() -> None:
    """However the answers of equal calls come in bursts: the latency does not grow with them."""
    fleet = a_fleet(60, lambda *_: LATENCY_S, 20_000, in_flight=None, prefetch=60, workers=4)
    begun = sum(20 <= at < 60 for at in fleet.provider.begun_s) / 40
    assert begun >= 0.95 * 4 * 60 / LATENCY_S


@pytest.mark.parametrize(
    ("share", "retry_after_s", "workers"),
    [(0.05, None, 2), (0.05, 1.0, 2), (0.4, None, 2), (0.4, 1.0, 2), (0.4, None, 1)],
)
def test_refusals_whatever_the_rate(
    share: float, retry_after_s: float | None, workers: int
) -> None:
    """A share of calls is refused by chance; in each later minute the others go on as before."""
    chance = random.Random(workers % 2 + 1)
    refused = failure(ErrorClass.RATE_LIMIT, retry_after_s)
    provider = Provider(lambda *_: refused if chance.random() < share else LATENCY_S)
    fleet = a_fleet(300, provider, 8000, in_flight=20, prefetch=100, workers=workers)
    for minute in range(1, 5):
        begun = sum(60 * minute <= at < 60 * minute + 60 for at in provider.begun_s) / 60
        assert begun * (1 - share) >= 0.9 * (1 - share) * 20
    assert not fleet.reasons

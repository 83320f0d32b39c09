"""One item's way to its verdict, among fakes of the store and of the provider."""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import nullcontext
from decimal import Decimal
from types import NoneType
from unittest.mock import AsyncMock

import pytest
from msgspec import Struct, field
from msgspec.structs import astuple, replace

from aegish_dist.core import failures
from aegish_dist.core.model import Price, Rate
from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.run import Prompt
from aegish_dist.core.verdict import Completion, Item, Usage, Verdict
from aegish_dist.db.schema import VerdictKey
from aegish_dist.db.verdicts import LookUp
from aegish_dist.errors import (
    ConfigError,
    ItemShedError,
    ProviderError,
    RedeliveredError,
    RunHeldError,
    ShuttingDownError,
    UnservedModelError,
)
from aegish_dist.opinions.parsing import PARSER_VERSION
from aegish_dist.pipeline import evaluate as evaluation
from aegish_dist.pipeline.caller import Caller, Health, UsageEstimator
from aegish_dist.pipeline.evaluate import HELD_AFTER_FAILURE_S, Evaluated, Evaluator
from aegish_dist.ratelimit.fair_queue import Accounts, ExpectedUsage, ProcessSemaphore
from aegish_dist.ratelimit.model_limiter import ModelLimiter
from aegish_dist.ratelimit.usage_report import Lease
from tests.defined import defined

ITEM = Item("0abcdefgh", "test/x", sample_key=7)
KEY = VerdictKey(1, 7, 1, 0)
BLOCK = Completion('{"action": "BLOCK", "confidence": 0.9}', usage=Usage(1000, 200))
PROMPT = Prompt("p", "Judge.", "{command}")
PRICE = Price(input=Rate(Decimal(2)), output=Rate(Decimal(10)))
TOO_FAST = ProviderError(
    "too fast", error_class=ErrorClass.RATE_LIMIT, status=429, retry_after_s=0.003
)
BROKEN = ProviderError("broken", error_class=ErrorClass.SERVER, status=500)


class Provider:
    """Gives one answer after the other, the last one for ever; can be made to wait."""

    def __init__(self, *answers: Completion | ProviderError) -> None:
        self._answers = list(answers)
        self.calls: list[tuple[str, int]] = []
        self.called = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.now = 0
        self.most = 0

    async def complete(self, command: str, epoch: int = 1) -> Completion:
        self.calls.append((command, epoch))
        self.called.set()
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.may_answer.wait()
        finally:
            self.now -= 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, ProviderError):
            raise answer
        return answer


class Store(Struct):
    """Knows one item, and keeps what is recorded."""

    found: LookUp | None = field(default_factory=lambda: LookUp(KEY, "rm -rf /", done=False))
    recorded: list[Evaluated] = field(default_factory=list)
    noted: list[Item | None] = field(default_factory=list)
    looked_up: int = 0
    answers: bool = True
    health: Health = field(default_factory=Health)

    async def look_up(self, _: Item) -> LookUp | None:
        self.looked_up += 1
        return self.found

    async def answered(self, _: int) -> bool:
        return self.answers

    async def record(self, evaluated: Evaluated) -> None:
        self.recorded.append(evaluated)


PERMIT_ALL = Lease(0, slots=None, permits=0, metered=False, limited=False, wait_s=1.0)


class Bench:
    """An evaluator between a store and a provider, which answers at once by default."""

    def __init__(
        self,
        *answers: Completion | ProviderError,
        store: Store | None = None,
        places: int = 10,
        answering: bool = True,
        caller_error: Exception | None = None,
    ) -> None:
        self.store, self.provider = store or Store(), Provider(*answers)
        if answering:
            self.provider.may_answer.set()
        self.limiter = ModelLimiter(
            ITEM.model,
            AsyncMock(return_value=PERMIT_ALL),
            accounts=Accounts(AsyncMock(return_value={}), AsyncMock(return_value=None)),
            semaphore=ProcessSemaphore(places),
            generator=random.Random(1),
        )
        estimator = UsageEstimator(PROMPT, PRICE, budget=None)
        model = Caller(self.provider, self.limiter, estimator, PRICE)

        async def caller(run_id: str, model_id: str) -> Caller:
            assert (run_id, model_id) == (ITEM.run_id, ITEM.model)
            if caller_error is not None:
                raise caller_error
            return model

        self.evaluator = Evaluator(
            look_up=self.store.look_up,
            answered=self.store.answered,
            record=self.store.record,
            caller=caller,
            health=self.store.health,
            worker="w1",
            generator=random.Random(1),
            note=self.store.noted.append,
            store_deaths=AsyncMock(),
        )

    def start(self, item: Item = ITEM) -> asyncio.Task[None]:
        return asyncio.create_task(self.evaluator.evaluate(item, None))

    async def called(self, item: Item = ITEM) -> asyncio.Task[None]:
        """Return the task of an item whose call is under way."""
        task = self.start(item)
        await self.provider.called.wait()
        return task

    @property
    def made(self) -> tuple[int, int]:
        """Calls begun, and verdicts recorded."""
        return len(self.provider.calls), len(self.store.recorded)


def items(number: int) -> list[Item]:
    return [replace(ITEM, sample_key=key) for key in range(number)]


def evaluate(
    *answers: Completion | ProviderError,
    enqueued_at: float | None = None,
    command: str = "rm -rf /",
) -> Verdict:
    async def scenario() -> Bench:
        bench = Bench(*answers, store=Store(LookUp(KEY, command, done=False)))
        await bench.evaluator.evaluate(ITEM, enqueued_at)
        return bench

    bench = asyncio.run(scenario())
    ((item, key, verdict),) = bench.store.recorded
    assert (item, key) == (ITEM, KEY)
    assert set(bench.provider.calls) == {(command, 1)}
    return verdict


async def ends(task: asyncio.Task[None], error: type[BaseException]) -> None:
    async with asyncio.timeout(5):
        with pytest.raises(error):
            await task


@pytest.fixture
def quick_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits between attempts of milliseconds."""
    monkeypatch.setattr(failures, "BASE_S", 0.002)
    monkeypatch.setattr(failures, "CAP_S", 0.004)


@pytest.mark.parametrize("found", [None, LookUp(KEY, "rm -rf /", done=True)])
async def test_an_unknown_or_finished_item_costs_no_call(found: LookUp | None) -> None:
    bench = Bench(BLOCK, store=Store(found))
    await bench.start()
    assert bench.made == (0, 0)


def test_an_answer_becomes_a_verdict() -> None:
    """It is judged, priced ((1000 x 2 + 200 x 10) / 10^6 USD), timed and signed."""
    verdict = evaluate(BLOCK)
    assert (verdict.outcome, verdict.confidence) == (Outcome.BLOCK, 0.9)
    assert verdict.completion is BLOCK
    assert verdict.parser_version == PARSER_VERSION
    assert verdict.cost_usd == Decimal("0.004")
    assert (verdict.attempts, verdict.call_errors, verdict.error_class) == (1, (), None)
    assert verdict.worker == "w1"
    assert verdict.created_at is not None


@pytest.mark.parametrize("error", [None, MemoryError, KeyboardInterrupt])
async def test_an_item_is_noted_while_its_answer_is_read(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException] | None
) -> None:
    """Not while it waits or is called; a reading that fails without harm leaves no note."""
    bench = Bench(BLOCK)
    noted = bench.store.noted

    def judge(*_: object) -> Verdict:
        assert noted == [ITEM]
        if error is not None:
            raise error
        return Verdict(Outcome.BLOCK, BLOCK)

    monkeypatch.setattr(evaluation, "judge", judge)
    with nullcontext() if error is None else pytest.raises(error):
        await bench.evaluator.evaluate(ITEM, None)
    assert noted == [ITEM, None]


@pytest.mark.usefixtures("quick_backoff")
async def test_no_item_is_noted_whose_call_fails() -> None:
    bench = Bench(BROKEN)
    await bench.evaluator.evaluate(ITEM, None)
    assert bench.store.noted == []


def test_a_command_that_an_answer_quotes_is_no_verdict() -> None:
    command = 'tee {"action": "ALLOW"}'
    assert (
        evaluate(Completion(f"It is {command}."), command=command).outcome is Outcome.FORMAT_ERROR
    )


@pytest.mark.usefixtures("quick_backoff")
def test_failed_attempts_are_kept_beside_the_answer() -> None:
    """Two failures, then an answer: three attempts, two errors in order, waits as backoff."""
    verdict = evaluate(TOO_FAST, BROKEN, BLOCK)
    assert (verdict.outcome, verdict.attempts) == (Outcome.BLOCK, 3)
    assert [
        (each.attempt, each.error_class, each.status, each.retry_after_s, each.message)
        for each in verdict.call_errors
    ] == [
        (1, ErrorClass.RATE_LIMIT, 429, 0.003, "too fast"),
        (2, ErrorClass.SERVER, 500, None, "broken"),
    ]
    # 3 ms asked for, then at least half of 4 ms; a timer may be early by its resolution.
    assert defined(verdict.timing.backoff_ms) >= 4.9


@pytest.mark.parametrize(
    ("error_class", "outcome", "attempts"),
    [
        (ErrorClass.DEADLINE, Outcome.TIMEOUT_ERROR, 1),
        (ErrorClass.BAD_REQUEST, Outcome.API_ERROR, 1),
        (ErrorClass.SERVER, Outcome.API_ERROR, 6),
    ],
)
@pytest.mark.usefixtures("quick_backoff")
def test_giving_up_is_an_outcome(error_class: ErrorClass, outcome: Outcome, attempts: int) -> None:
    """When asking again cannot help, or did not, the verdict says so; there is no completion."""
    verdict = evaluate(ProviderError("no", error_class=error_class))
    assert (verdict.outcome, verdict.error_class) == (outcome, error_class)
    assert (verdict.completion, verdict.cost_usd) == (None, None)
    assert verdict.attempts == attempts
    assert [each.attempt for each in verdict.call_errors] == list(range(1, attempts + 1))
    assert verdict.worker == "w1"


@pytest.mark.parametrize(
    ("error_class", "attempts"),
    [(ErrorClass.AUTH, 1), (ErrorClass.BAD_REQUEST, 1), (ErrorClass.RATE_LIMIT, 10)],
)
@pytest.mark.virtual_time
async def test_trouble_of_a_model_that_answers_nothing_is_no_verdict(
    error_class: ErrorClass, attempts: int
) -> None:
    """The item goes back after some seconds, so that it is not delivered again at once."""
    bench = Bench(ProviderError("no", error_class=error_class), store=Store(answers=False))
    started = asyncio.get_running_loop().time()
    with pytest.raises(ItemShedError):
        await bench.start()
    assert bench.made == (attempts, 0)
    assert asyncio.get_running_loop().time() - started >= HELD_AFTER_FAILURE_S


@pytest.mark.virtual_time
async def test_a_lone_refusal_among_answers_is_a_verdict() -> None:
    """A 400 is held until a call that began later is answered, and is then the row's own."""
    refused = ProviderError("no", error_class=ErrorClass.BAD_REQUEST, status=400)
    bench = Bench(refused, BLOCK, store=Store(answers=False))
    first = await bench.called()
    bench.provider.may_answer.clear()
    others = [bench.start(item) for item in items(3)]
    await asyncio.sleep(5)
    assert not first.done()
    bench.provider.may_answer.set()
    await asyncio.gather(first, *others)
    outcomes = {each.item: each.verdict.outcome for each in bench.store.recorded}
    assert outcomes.pop(ITEM) is Outcome.API_ERROR
    assert set(outcomes.values()) == {Outcome.BLOCK}


@pytest.mark.parametrize("answers", [(BLOCK,), (BROKEN, BLOCK), (BROKEN,)])
@pytest.mark.usefixtures("quick_backoff")
def test_the_parts_of_the_time_do_not_overlap(
    answers: tuple[Completion | ProviderError, ...],
) -> None:
    """No part is negative, and together they are at most the total, whatever happened."""
    timing = evaluate(*answers, enqueued_at=time.time() - 5).timing
    *parts, total_ms = map(defined, astuple(timing))
    assert min(parts) >= 0
    assert defined(timing.queue_ms) >= 5000
    assert sum(parts) <= total_ms + 0.002  # each is rounded to a microsecond


@pytest.mark.parametrize("enqueued_at", [None, time.time() + 3600], ids=["missing", "ahead"])
def test_no_queue_time_is_negative(enqueued_at: float | None) -> None:
    """A publisher's clock may run ahead, and its header may be missing."""
    assert evaluate(BLOCK, enqueued_at=enqueued_at).timing.queue_ms == 0


async def eventually(condition: Callable[[], bool]) -> None:
    """Let others run until a condition holds."""
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0)


async def test_no_more_calls_than_places_are_in_flight() -> None:
    """Of ten items three are called at once; the rest wait their turn, as limiter time."""
    bench = Bench(BLOCK, places=3, answering=False)
    tasks = [bench.start(item) for item in items(10)]
    await eventually(lambda: bench.provider.now == 3)
    assert bench.evaluator.in_flight == {("0abcdefgh", "test/x"): 10}
    bench.provider.may_answer.set()
    await asyncio.gather(*tasks)
    assert (bench.provider.most, *bench.made) == (3, 10, 10)
    assert not bench.evaluator.in_flight
    assert max(verdict.timing.limiter_ms or 0 for _, _, verdict in bench.store.recorded) > 0


async def test_who_hears_of_an_item_finds_it_in_flight() -> None:
    """Otherwise another thread takes its model for quiet, and does not look at it after the end."""
    bench = Bench(BLOCK)
    found: list[int] = []

    class Heard(set[tuple[str, str]]):
        def add(self, model: tuple[str, str]) -> None:
            found.append(bench.evaluator.in_flight[model])

    bench.evaluator.begun = Heard()
    await bench.start()
    assert found == [1]


async def test_shutdown_lets_calls_finish_and_gives_the_waiting_back() -> None:
    """The call in flight is recorded; the item that waits for its slot is not called any more."""
    bench = Bench(BLOCK, places=1, answering=False)
    called, waiting = (bench.start(item) for item in items(2))
    await bench.provider.called.wait()
    bench.evaluator.stop()
    bench.limiter.close()
    bench.provider.may_answer.set()
    await called
    await ends(waiting, ShuttingDownError)
    assert bench.made == (1, 1)
    assert not bench.evaluator.in_flight


@pytest.mark.parametrize("copies", [0, 1])
async def test_item_that_the_broker_passed_on(copies: int) -> None:
    """It is not called any more when its turn comes, unless a copy of it has come here again."""
    bench = Bench(BLOCK, BLOCK, places=1, answering=False)
    first, passed_on = items(2)
    called = await bench.called(first)
    waiting = [asyncio.create_task(bench.evaluator.evaluate(passed_on, None, lambda: False))]
    for _ in range(copies):
        await asyncio.sleep(0)
        waiting.append(bench.start(passed_on))
    await asyncio.sleep(0)
    bench.provider.may_answer.set()
    await called
    found = await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(end) for end in found] == ([NoneType] * 2 if copies else [RedeliveredError])
    assert bench.made[0] == 1 + copies


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize(
    ("end", "error"),
    [
        (lambda evaluator: evaluator.stop(), ShuttingDownError),
        (lambda evaluator: evaluator.held.add(ITEM.run_id), RunHeldError),
    ],
    ids=["shutdown", "held run"],
)
@pytest.mark.virtual_time
async def test_a_pause_between_attempts_is_cut_short(
    end: Callable[[Evaluator], object], error: type[Exception], copies: int
) -> None:
    """However long it would last; the item goes back, with the copies of its message."""
    limited = ErrorClass.RATE_LIMIT
    bench = Bench(ProviderError("too fast", error_class=limited, status=429, retry_after_s=60.0))
    tasks = [bench.start() for _ in range(copies)]
    await asyncio.sleep(5)
    end(bench.evaluator)
    for task in tasks:
        await ends(task, error)
    assert bench.made == (1, 0)


async def test_a_model_without_its_key_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The item goes back to its queue uncalled and unrecorded: another worker may have the key."""
    monkeypatch.setattr(evaluation, "HELD_UNSERVED_S", 0.001)
    bench = Bench(BLOCK, caller_error=ConfigError("OPENAI_API_KEY is not set for this worker"))
    await ends(bench.start(), UnservedModelError)
    assert bench.made == (0, 0)


async def test_a_second_copy_of_a_message_costs_no_call() -> None:
    """Copies that come while the first is under way end with it; one verdict is recorded."""
    bench = Bench(BLOCK, answering=False)
    copies = [bench.start() for _ in range(3)]
    await bench.provider.called.wait()
    await asyncio.sleep(0)
    assert bench.evaluator.in_flight == {(ITEM.run_id, ITEM.model): 1}
    assert not any(copy.done() for copy in copies)
    bench.provider.may_answer.set()
    await asyncio.gather(*copies)
    assert bench.made == (1, 1)
    await bench.start()  # nothing of it is left
    assert bench.made == (2, 2)


async def test_epochs_of_a_sample_are_no_copies() -> None:
    """Each is called for itself, under way at once or one after the other."""
    bench = Bench(BLOCK, answering=False)
    epochs = [replace(ITEM, epoch=epoch) for epoch in (1, 2, 3)]
    called = [bench.start(each) for each in epochs]
    await eventually(lambda: bench.provider.now == len(epochs))
    bench.provider.may_answer.set()
    await asyncio.gather(*called)
    assert bench.provider.calls == [("rm -rf /", epoch) for epoch in (1, 2, 3)]
    assert [each.item for each in bench.store.recorded] == epochs


async def test_no_call_begins_while_answers_cannot_be_stored() -> None:
    """Items looked up and items let through are held until the store works again."""
    bench = Bench(BLOCK, places=1, answering=False)
    health = bench.store.health
    tasks = [bench.start(item) for item in items(3)]
    await bench.provider.called.wait()
    health.fails("inserts")
    assert not bench.evaluator.takes_items
    bench.provider.may_answer.set()  # makes room for the next one at the limiter
    await eventually(lambda: len(bench.store.recorded) == 1)
    late = bench.start()
    await asyncio.sleep(0.05)
    assert (bench.made[0], late.done()) == (1, False)
    health.works("inserts")
    await asyncio.gather(*tasks, late)
    assert bench.made == (4, 4)


async def test_held_items_go_back_when_the_worker_stops() -> None:
    """Items held because of the database are not called and are given back at once."""
    bench = Bench(BLOCK)
    bench.store.health.fails("inserts")
    held = bench.start()
    await eventually(lambda: bench.store.looked_up == 1)
    bench.evaluator.stop()
    await ends(held, ShuttingDownError)
    assert bench.made == (0, 0)


@pytest.mark.parametrize(("waited_s", "calls"), [(0.0, 1), (11.0, 0)])
async def test_an_item_that_waited_long_is_looked_up_again(waited_s: float, calls: int) -> None:
    """A verdict that another worker stored meanwhile costs no second call."""
    bench = Bench(BLOCK, places=1)
    limiter, store = bench.limiter, bench.store
    blocking = await limiter.acquire(ITEM.run_id, ExpectedUsage())
    waiting = bench.start()
    await eventually(lambda: store.looked_up == 1)
    store.found = LookUp(KEY, "rm -rf /", done=True)
    with pytest.MonkeyPatch.context() as patch:
        now = time.monotonic()
        patch.setattr(time, "monotonic", lambda: now + waited_s)
        limiter.release(blocking)
        await waiting
    assert bench.made == (calls, calls)
    assert store.looked_up == 2 - calls
    limiter.release(await asyncio.wait_for(limiter.acquire(ITEM.run_id, ExpectedUsage()), 5))


@pytest.mark.virtual_time
async def test_a_call_that_was_tried_long_ago_is_looked_up_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before a further attempt too."""
    monkeypatch.setattr(failures, "BASE_S", 40.0)
    monkeypatch.setattr(time, "monotonic", asyncio.get_running_loop().time)
    bench = Bench(BROKEN, BLOCK)
    task = await bench.called()
    bench.store.found = LookUp(KEY, "rm -rf /", done=True)
    await asyncio.sleep(20)
    await task
    assert bench.made == (1, 0)


async def test_no_call_begins_of_a_run_that_the_store_says_is_held() -> None:
    """The item goes back, and the worker knows at once that it need not fetch others."""
    bench = Bench(BLOCK, store=Store(LookUp(KEY, "rm -rf /", done=False, held=True)))
    await ends(bench.start(), RunHeldError)
    assert bench.made == (0, 0)
    assert bench.evaluator.held.keys == {ITEM.run_id}


@pytest.mark.virtual_time
async def test_a_run_that_is_held_ends_waits_and_no_calls() -> None:
    """The call in flight becomes a verdict; what waits for a permit goes back."""
    bench = Bench(BLOCK, places=1, answering=False)
    calling, *waiting = (bench.start(item) for item in items(5))
    await bench.provider.called.wait()
    await asyncio.sleep(1)
    bench.evaluator.held.set(frozenset({ITEM.run_id, "another"}))
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(end) for end in found] == [RunHeldError] * 4
    assert not calling.done()
    bench.provider.may_answer.set()
    await calling
    assert bench.made == (1, 1)
    assert not bench.evaluator.in_flight

    bench.evaluator.held.set(frozenset())  # it goes on
    await bench.start(items(2)[1])
    assert bench.made == (2, 2)


@pytest.mark.virtual_time
async def test_a_worker_that_ends_while_a_run_is_held_ends_all_the_same() -> None:
    """A cancellation of the worker's own is not taken for the other one."""
    bench = Bench(BLOCK, places=0)
    task = bench.start()
    await asyncio.sleep(1)
    bench.evaluator.held.add(ITEM.run_id)
    task.cancel()
    await ends(task, asyncio.CancelledError)

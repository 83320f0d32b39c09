"""One item's way to its verdict, among fakes of the store and of the provider."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from types import NoneType

import pytest

from aegish_dist.core import failures
from aegish_dist.core.model import Price, Rate
from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.parsing import PARSER_VERSION
from aegish_dist.core.run import Prompt
from aegish_dist.core.verdict import Completion, Item, Timing, Usage, Verdict
from aegish_dist.db.tables import VerdictKey
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
from aegish_dist.pipeline import evaluate as evaluation
from aegish_dist.pipeline.caller import Caller, Health, UsageEstimator
from aegish_dist.pipeline.evaluate import HELD_AFTER_FAILURE_S, Evaluated, Evaluator
from aegish_dist.ratelimit.fair_queue import Accounts, ExpectedUsage
from aegish_dist.ratelimit.local_lease import ProcessSemaphore
from aegish_dist.ratelimit.model_limiter import ModelLimiter
from aegish_dist.ratelimit.usage_report import Lease, LeaseRequest
from tests.virtual_time import run_virtually

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
        self.commands: list[str] = []
        self.epochs: list[int] = []
        self.called = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.now = 0
        self.most = 0

    async def complete(self, command: str, epoch: int = 1) -> Completion:
        self.commands.append(command)
        self.epochs.append(epoch)
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


@dataclass
class Store:
    """Knows one item, and keeps what is recorded."""

    found: LookUp | None = field(default_factory=lambda: LookUp(KEY, "rm -rf /", done=False))
    recorded: list[Evaluated] = field(default_factory=list)
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


async def permit_all(request: LeaseRequest) -> Lease:
    return Lease(0, slots=None, permits=0, metered=False, limited=False, wait_s=1.0)


async def spent(_run_id: str) -> dict[str, int]:
    return {}


async def budget(_: str) -> None:
    """Know of no cap."""


def a_limiter(places: int) -> ModelLimiter:
    return ModelLimiter(
        ITEM.model,
        permit_all,
        accounts=Accounts(spent, budget),
        semaphore=ProcessSemaphore(places),
        generator=random.Random(1),
    )


def an_evaluator(
    store: Store, provider: Provider, limiter: ModelLimiter | None = None
) -> Evaluator:
    estimator = UsageEstimator(PROMPT, PRICE, budget=None)
    model = Caller(provider, limiter or a_limiter(10), estimator, PRICE)

    async def caller(run_id: str, model_id: str) -> Caller:
        assert (run_id, model_id) == (ITEM.run_id, ITEM.model)
        return model

    return Evaluator(
        look_up=store.look_up,
        answered=store.answered,
        record=store.record,
        caller=caller,
        health=store.health,
        worker="w1",
        generator=random.Random(1),
    )


def start(evaluator: Evaluator, item: Item = ITEM) -> asyncio.Task[None]:
    return asyncio.create_task(evaluator.evaluate(item, None))


def items(number: int) -> list[Item]:
    return [replace(ITEM, sample_key=key) for key in range(number)]


def evaluate(*answers: Completion | ProviderError, enqueued_at: float | None = None) -> Verdict:
    async def scenario() -> Store:
        store = Store()
        await an_evaluator(store, Provider(*answers)).evaluate(ITEM, enqueued_at)
        return store

    ((item, key, verdict),) = asyncio.run(scenario()).recorded
    assert (item, key) == (ITEM, KEY)
    return verdict


@pytest.fixture
def quick_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits between attempts of milliseconds."""
    monkeypatch.setattr(failures, "BASE_S", 0.002)
    monkeypatch.setattr(failures, "CAP_S", 0.004)


def parts(timing: Timing) -> Sequence[float]:
    values = (timing.queue_ms, timing.limiter_ms, timing.backoff_ms, timing.service_ms)
    assert all(value is not None for value in values)
    return [value for value in values if value is not None]


@pytest.mark.parametrize("found", [None, LookUp(KEY, "rm -rf /", done=True)])
async def test_an_unknown_or_finished_item_costs_no_call(found: LookUp | None) -> None:
    """Such an item is done with at once: nothing is called and nothing recorded."""
    store, provider = Store(found), Provider(BLOCK)
    await an_evaluator(store, provider).evaluate(ITEM, None)
    assert (provider.commands, store.recorded) == ([], [])


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


def test_the_command_is_sent_as_it_is_stored() -> None:
    """The provider gets the sample's command and nothing else."""

    async def scenario() -> list[str]:
        provider = Provider(BLOCK)
        await an_evaluator(Store(), provider).evaluate(ITEM, None)
        return provider.commands

    assert asyncio.run(scenario()) == ["rm -rf /"]


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
    assert verdict.timing.backoff_ms is not None
    # 3 ms asked for, then at least half of 4 ms; a timer may be early by its resolution.
    assert verdict.timing.backoff_ms >= 4.9


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
    [
        (ErrorClass.AUTH, 1),
        (ErrorClass.QUOTA, 1),
        (ErrorClass.NOT_FOUND, 1),
        (ErrorClass.BAD_REQUEST, 1),
        (ErrorClass.SERVER, 6),
        (ErrorClass.CONNECTION, 6),
        (ErrorClass.RATE_LIMIT, 10),
    ],
)
@pytest.mark.virtual_time
async def test_trouble_of_a_model_that_answers_nothing_is_no_verdict(
    error_class: ErrorClass, attempts: int
) -> None:
    """The item goes back after some seconds, so that it is not delivered again at once."""
    store = Store(answers=False)
    provider = Provider(ProviderError("no", error_class=error_class))
    started = asyncio.get_running_loop().time()
    with pytest.raises(ItemShedError):
        await an_evaluator(store, provider).evaluate(ITEM, None)
    assert (len(provider.commands), store.recorded) == (attempts, [])
    assert asyncio.get_running_loop().time() - started >= HELD_AFTER_FAILURE_S


@pytest.mark.virtual_time
async def test_a_lone_refusal_among_answers_is_a_verdict() -> None:
    """A 400 is held until a call that began later is answered, and is then the row's own."""
    store = Store(answers=False)
    refused = ProviderError("no", error_class=ErrorClass.BAD_REQUEST, status=400)
    provider = Provider(refused, BLOCK)
    evaluator = an_evaluator(store, provider)
    first = start(evaluator)
    await provider.called.wait()
    provider.may_answer.clear()
    others = [start(evaluator, item) for item in items(3)]
    await asyncio.sleep(5)
    assert not first.done()
    provider.may_answer.set()
    await asyncio.gather(first, *others)
    outcomes = {each.item: each.verdict.outcome for each in store.recorded}
    assert outcomes.pop(ITEM) is Outcome.API_ERROR
    assert set(outcomes.values()) == {Outcome.BLOCK}


@pytest.mark.parametrize("answers", [(BLOCK,), (BROKEN, BLOCK), (BROKEN,)])
@pytest.mark.usefixtures("quick_backoff")
def test_the_parts_of_the_time_do_not_overlap(
    answers: tuple[Completion | ProviderError, ...],
) -> None:
    """No part is negative, and together they are at most the total, whatever happened."""
    timing = evaluate(*answers, enqueued_at=time.time() - 5).timing
    assert min(parts(timing)) >= 0
    assert timing.queue_ms is not None
    assert timing.queue_ms >= 5000
    assert timing.total_ms is not None
    assert sum(parts(timing)) <= timing.total_ms + 0.002  # each is rounded to a microsecond


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
    store, provider = Store(), Provider(BLOCK)
    provider.may_answer.clear()
    evaluator = an_evaluator(store, provider, a_limiter(3))
    tasks = [start(evaluator, item) for item in items(10)]
    await eventually(lambda: provider.now == 3)
    assert evaluator.in_flight == {("0abcdefgh", "test/x"): 10}
    provider.may_answer.set()
    await asyncio.gather(*tasks)
    assert (provider.most, len(provider.commands), len(store.recorded)) == (3, 10, 10)
    assert not evaluator.in_flight
    assert max(verdict.timing.limiter_ms or 0 for _, _, verdict in store.recorded) > 0


async def test_shutdown_lets_calls_finish_and_gives_the_waiting_back() -> None:
    """The call in flight is recorded; the item that waits for its slot is not called any more."""
    store, provider = Store(), Provider(BLOCK)
    provider.may_answer.clear()
    limiter = a_limiter(1)
    evaluator = an_evaluator(store, provider, limiter)
    called, waiting = (start(evaluator, item) for item in items(2))
    await provider.called.wait()
    evaluator.stop()
    limiter.close()
    provider.may_answer.set()
    await called
    with pytest.raises(ShuttingDownError):
        await waiting
    assert (len(provider.commands), len(store.recorded)) == (1, 1)
    assert not evaluator.in_flight


@pytest.mark.parametrize("copies", [0, 1])
async def test_item_that_the_broker_passed_on(copies: int) -> None:
    """It is not called any more when its turn comes, unless a copy of it has come here again."""
    store, provider = Store(), Provider(BLOCK, BLOCK)
    provider.may_answer.clear()
    evaluator = an_evaluator(store, provider, a_limiter(1))
    first, passed_on = items(2)
    called = start(evaluator, first)
    await provider.called.wait()
    waiting = [asyncio.create_task(evaluator.evaluate(passed_on, None, lambda: False))]
    for _ in range(copies):
        await asyncio.sleep(0)
        waiting.append(start(evaluator, passed_on))
    await asyncio.sleep(0)
    provider.may_answer.set()
    await called
    ends = await asyncio.gather(*waiting, return_exceptions=True)

    assert [type(end) for end in ends] == ([NoneType] * 2 if copies else [RedeliveredError])
    assert len(provider.commands) == 1 + copies


async def test_shutdown_ends_a_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause of a minute is cut short; the item goes back without a verdict."""
    monkeypatch.setattr(failures, "BASE_S", 60.0)
    store, provider = Store(), Provider(BROKEN)
    evaluator = an_evaluator(store, provider)
    task = start(evaluator)
    await provider.called.wait()
    evaluator.stop()
    async with asyncio.timeout(5):
        with pytest.raises(ShuttingDownError):
            await task
    assert (len(provider.commands), store.recorded) == (1, [])


def test_a_model_without_its_key_is_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The item goes back to its queue uncalled and unrecorded: another worker may have the key."""
    monkeypatch.setattr(evaluation, "HELD_UNSERVED_S", 0.001)
    store = Store()

    async def caller(_run_id: str, _model_id: str) -> Caller:
        raise ConfigError("OPENAI_API_KEY is not set for this worker")

    async def scenario() -> None:
        evaluator = Evaluator(
            look_up=store.look_up,
            answered=store.answered,
            record=store.record,
            caller=caller,
            health=store.health,
            worker="w1",
            generator=random.Random(1),
        )
        with pytest.raises(UnservedModelError):
            await evaluator.evaluate(ITEM, None)

    asyncio.run(scenario())
    assert store.recorded == []


async def test_a_second_copy_of_a_message_costs_no_call() -> None:
    """Copies that come while the first is under way end with it; one verdict is recorded."""
    store, provider = Store(), Provider(BLOCK)
    provider.may_answer.clear()
    evaluator = an_evaluator(store, provider)
    copies = [start(evaluator) for _ in range(3)]
    await provider.called.wait()
    await asyncio.sleep(0)
    assert evaluator.in_flight == {(ITEM.run_id, ITEM.model): 1}
    assert not any(copy.done() for copy in copies)
    provider.may_answer.set()
    await asyncio.gather(*copies)
    assert (len(provider.commands), len(store.recorded)) == (1, 1)
    await evaluator.evaluate(ITEM, None)  # nothing of it is left
    assert len(provider.commands) == 2


async def test_epochs_of_a_sample_are_no_copies() -> None:
    """Each is called for itself, under way at once or one after the other."""
    store, provider = Store(), Provider(BLOCK)
    provider.may_answer.clear()
    evaluator = an_evaluator(store, provider)
    epochs = [replace(ITEM, epoch=epoch) for epoch in (1, 2, 3)]
    called = [start(evaluator, each) for each in epochs]
    async with asyncio.timeout(5):
        while provider.now < len(epochs):
            await asyncio.sleep(0)
    provider.may_answer.set()
    await asyncio.gather(*called)
    assert provider.epochs == [1, 2, 3]
    assert [each.item for each in store.recorded] == epochs


async def test_a_second_copy_goes_back_with_the_first() -> None:
    store, provider = Store(), Provider(BROKEN)
    evaluator = an_evaluator(store, provider)
    copies = [start(evaluator) for _ in range(2)]
    await provider.called.wait()
    evaluator.stop()
    async with asyncio.timeout(5):
        ends = await asyncio.gather(*copies, return_exceptions=True)
    assert [type(end) for end in ends] == [ShuttingDownError] * 2
    assert len(provider.commands) == 1


async def test_no_call_begins_while_answers_cannot_be_stored() -> None:
    """Items looked up and items let through are held until the store works again."""
    store, provider = Store(), Provider(BLOCK)
    limiter = a_limiter(1)
    evaluator = an_evaluator(store, provider, limiter)
    provider.may_answer.clear()
    tasks = [start(evaluator, item) for item in items(3)]
    await provider.called.wait()
    store.health.fails("inserts")
    assert not evaluator.takes_items
    provider.may_answer.set()  # makes room for the next one at the limiter
    await eventually(lambda: len(store.recorded) == 1)
    late = start(evaluator)
    await asyncio.sleep(0.05)
    assert (len(provider.commands), late.done()) == (1, False)
    store.health.works("inserts")
    await asyncio.gather(*tasks, late)
    assert (len(provider.commands), len(store.recorded)) == (4, 4)


async def test_held_items_go_back_when_the_worker_stops() -> None:
    """Items held because of the database are not called and are given back at once."""
    store, provider = Store(), Provider(BLOCK)
    store.health.fails("inserts")
    evaluator = an_evaluator(store, provider)
    held = start(evaluator)
    await eventually(lambda: store.looked_up == 1)
    evaluator.stop()
    async with asyncio.timeout(5):
        with pytest.raises(ShuttingDownError):
            await held
    assert provider.commands == []


@pytest.mark.parametrize(("waited_s", "calls"), [(0.0, 1), (11.0, 0)])
async def test_an_item_that_waited_long_is_looked_up_again(waited_s: float, calls: int) -> None:
    """A verdict that another worker stored meanwhile costs no second call."""
    store, provider = Store(), Provider(BLOCK)
    limiter = a_limiter(1)
    blocking = await limiter.acquire(ITEM.run_id, ExpectedUsage())
    evaluator = an_evaluator(store, provider, limiter)
    waiting = start(evaluator)
    await eventually(lambda: store.looked_up == 1)
    store.found = LookUp(KEY, "rm -rf /", done=True)
    with pytest.MonkeyPatch.context() as patch:
        now = time.monotonic()
        patch.setattr(time, "monotonic", lambda: now + waited_s)
        limiter.release(blocking)
        await waiting
    assert (len(provider.commands), len(store.recorded)) == (calls, calls)
    assert store.looked_up == 2 - calls
    limiter.release(await asyncio.wait_for(limiter.acquire(ITEM.run_id, ExpectedUsage()), 5))


def test_a_call_that_was_tried_long_ago_is_looked_up_again() -> None:
    """Before a further attempt too."""

    async def scenario() -> None:
        store, provider = Store(), Provider(BROKEN, BLOCK)
        evaluator = an_evaluator(store, provider)
        task = start(evaluator)
        await provider.called.wait()
        store.found = LookUp(KEY, "rm -rf /", done=True)
        await asyncio.sleep(20)
        await task
        assert (len(provider.commands), store.recorded) == (1, [])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failures, "BASE_S", 40.0)
        patch.setattr(time, "monotonic", lambda: asyncio.get_running_loop().time())
        run_virtually(scenario())


async def test_no_call_begins_of_a_run_that_the_store_says_is_held() -> None:
    """The item goes back, and the worker knows at once that it need not fetch others."""
    store, provider = Store(LookUp(KEY, "rm -rf /", done=False, held=True)), Provider(BLOCK)
    evaluator = an_evaluator(store, provider)
    with pytest.raises(RunHeldError):
        await evaluator.evaluate(ITEM, None)
    assert (provider.commands, store.recorded) == ([], [])
    assert evaluator.held.keys == {ITEM.run_id}


@pytest.mark.virtual_time
async def test_a_run_that_is_held_ends_waits_and_no_calls() -> None:
    """The call in flight becomes a verdict; what waits for a permit, or between attempts, goes back."""
    store, provider = Store(), Provider(BLOCK)
    provider.may_answer.clear()
    evaluator = an_evaluator(store, provider, a_limiter(1))
    calling, *waiting = (start(evaluator, i) for i in items(5))
    await provider.called.wait()
    await asyncio.sleep(1)
    evaluator.held.set(frozenset({ITEM.run_id, "another"}))
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(end) for end in ends] == [RunHeldError] * 4
    assert not calling.done()
    provider.may_answer.set()
    await calling
    assert (len(provider.commands), len(store.recorded)) == (1, 1)
    assert not evaluator.in_flight

    evaluator.held.set(frozenset())  # it goes on
    await evaluator.evaluate(items(2)[1], None)
    assert len(store.recorded) == 2


@pytest.mark.virtual_time
async def test_a_run_that_is_held_ends_pauses_between_attempts() -> None:
    """No further attempt is made, however long the provider asked to wait."""
    store, provider = Store(), Provider(replace_wait(TOO_FAST, 60.0))
    evaluator = an_evaluator(store, provider)
    task = start(evaluator)
    await provider.called.wait()
    await asyncio.sleep(5)
    evaluator.held.add(ITEM.run_id)
    with pytest.raises(RunHeldError):
        await task
    assert (len(provider.commands), store.recorded) == (1, [])


def replace_wait(error: ProviderError, seconds: float) -> ProviderError:
    return ProviderError(
        str(error), error_class=ErrorClass.RATE_LIMIT, status=429, retry_after_s=seconds
    )


@pytest.mark.virtual_time
async def test_a_worker_that_ends_while_a_run_is_held_ends_all_the_same() -> None:
    """A cancellation of the worker's own is not taken for the other one."""
    evaluator = an_evaluator(Store(), Provider(BLOCK), a_limiter(0))
    task = start(evaluator)
    await asyncio.sleep(1)
    evaluator.held.add(ITEM.run_id)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

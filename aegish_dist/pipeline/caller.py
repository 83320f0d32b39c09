"""A model of a run, ready to be called, and when a call may begin.

The spans have the names of OpenTelemetry's GenAI conventions; neither messages nor answers are
among their attributes: https://opentelemetry.io/docs/specs/semconv/gen-ai/gen-ai-spans/

The store learns of failed calls with the verdict of their item. Until then `status` shows what the
worker's report says of them.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime
from typing import Generic, TypeVar, cast
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from aegish_dist.core.model import CallParameters, ModelSpec, Price, cost_usd
from aegish_dist.core.output import Output
from aegish_dist.core.run import Prompt
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.status import LATELY, FailedCalls, joined
from aegish_dist.core.text import as_number, known
from aegish_dist.core.verdict import CallError, Completion, Item, Timing, Usage, Verdict
from aegish_dist.errors import (
    AegishError,
    BatchedItemError,
    ProviderError,
    RunHeldError,
    ShuttingDownError,
)
from aegish_dist.models.prices import ANSWER_TOKENS, SERVICE_S, fixed_characters, input_tokens
from aegish_dist.providers.contract import ModelClient
from aegish_dist.ratelimit.fair_queue import NANO_USD, Budget, ExpectedUsage
from aegish_dist.ratelimit.model_limiter import ModelLimiter
from aegish_dist.telemetry import Attributes
from aegish_dist.telemetry.tracing import call_span, note, run_tracer

WEIGHT = 0.1
# A longer answer counts as one of this length; some providers report nonsense.
MAX_ANSWER_TOKENS = 100_000
PROVIDERS = {"google": "gcp.gemini", "mistral": "mistral_ai", "xai": "x_ai"}


class Caller(Struct, frozen=True):
    client: ModelClient
    limiter: ModelLimiter
    estimator: "UsageEstimator"
    price: Price | None
    budget: Budget | None = None
    output: Output | None = None


class UsageEstimator:
    """Learns from the answers of one model in one run how long they are."""

    def __init__(self, prompt: Prompt, price: Price | None, budget: Budget | None) -> None:
        """Start from an answer of ordinary length; without a budget, costs count as 0."""
        self._fixed = fixed_characters(prompt)
        self._price = price
        self._counts_cost = budget is not None
        self._answer_tokens = float(ANSWER_TOKENS)
        self._service_s = SERVICE_S

    def expected(self, command: str) -> ExpectedUsage:
        prompt = input_tokens(self._fixed + len(command))
        answer = round(self._answer_tokens)
        cost = self._cost(Usage(prompt, answer), self._service_s)
        return ExpectedUsage(prompt + answer, cost or 0)

    def used(self, completion: Completion, service_s: float) -> tuple[int | None, int | None]:
        """Learn from an answer; return its tokens and its cost in 1e-9 USD, None where unknown."""
        usage = completion.usage
        self._service_s += WEIGHT * (service_s - self._service_s)
        if usage.output_tokens is not None:
            newest = min(usage.output_tokens, MAX_ANSWER_TOKENS)
            self._answer_tokens += WEIGHT * (newest - self._answer_tokens)
        if usage.input_tokens is None or usage.output_tokens is None:
            return None, self._cost(usage, service_s)
        return usage.input_tokens + usage.output_tokens, self._cost(usage, service_s)

    def _cost(self, usage: Usage, service_s: float) -> int | None:
        if not self._counts_cost:
            return 0
        usd = cost_usd(usage, self._price, service_s)
        return None if usd is None else int(usd * NANO_USD)


def traced(client: ModelClient, spec: ModelSpec, parameters: CallParameters) -> ModelClient:
    """Return a client whose calls have spans, or the client itself where nothing is traced."""
    return client if run_tracer() is None else _TracedClient(client, spec, parameters)


class _TracedClient:
    def __init__(self, client: ModelClient, spec: ModelSpec, parameters: CallParameters) -> None:
        self._client = client
        self._name = f"chat {spec.name}"
        address = urlsplit(spec.base_url)
        self._attributes: Attributes = known(
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.provider.name": PROVIDERS.get(spec.provider, spec.provider),
                "gen_ai.request.model": spec.name,
                "gen_ai.request.max_tokens": parameters.max_output_tokens,
                "gen_ai.request.temperature": parameters.temperature,
                "server.address": address.hostname,
                "server.port": address.port,
            }
        )

    async def complete(self, command: str, epoch: int = 1) -> Completion:
        with call_span(self._name, self._attributes):
            try:
                completion = await self._client.complete(command, epoch)
            except ProviderError as error:
                status = known({"http.response.status_code": error.status})
                note({"error.type": str(error.error_class), **status})
                raise
            note(_response(completion))
            return completion


def _response(completion: Completion) -> Attributes:
    usage, reason = completion.usage, completion.stop_reason
    return known(
        {
            "gen_ai.response.id": completion.request_id,
            "gen_ai.response.model": completion.model,
            "gen_ai.response.finish_reasons": None if reason is None else [reason],
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        }
    )


def note_verdict(verdict: Verdict) -> None:
    """Add the outcome of an item and its waits to its span, if it has one."""
    if run_tracer() is None:
        return
    cost, timing = verdict.cost_usd, verdict.timing
    facts: dict[str, str | float | None] = {
        "aegish_dist.outcome": str(verdict.outcome),
        "aegish_dist.attempts": verdict.attempts,
        "aegish_dist.cost_usd": as_number(cost),
        "aegish_dist.queue_ms": timing.queue_ms,
        "aegish_dist.limiter_ms": timing.limiter_ms,
        "aegish_dist.backoff_ms": timing.backoff_ms,
        "aegish_dist.service_ms": timing.service_ms,
    }
    note(known(facts))


@contextmanager
def counting(items: Counter[tuple[str, str]], item: Item) -> Iterator[None]:
    """Count an item by run id and model while the body runs."""
    key = (item.run_id, item.model)
    items[key] += 1
    try:
        yield
    finally:
        items[key] -= 1
        if not items[key]:
            del items[key]  # the run may have ended


class FailingItems:
    """The failed calls of items that are held, on one event loop."""

    def __init__(self) -> None:
        # Items that pause before their next call, by run id and model.
        self.backing_off: Counter[tuple[str, str]] = Counter()
        # Called with the model and each failed call; None: nothing counts them.
        self.on_failure: Callable[[str, CallError], None] | None = None
        self._errors: dict[Item, list[CallError]] = {}

    def note(self, item: Item, errors: list[CallError]) -> None:
        """Follow the failed calls of an item; the list grows, and its last one is new."""
        self._errors[item] = errors
        if self.on_failure is not None:
            self.on_failure(item.model, errors[-1])

    def forget(self, item: Item) -> None:
        """Leave an item out that is held no longer, or waits for its verdict to be stored."""
        self._errors.pop(item, None)

    def by_run(self, now: datetime) -> dict[str, list[FailedCalls]]:
        """Return the failed calls by run id, those that are alike together."""
        by_run: defaultdict[str, list[FailedCalls]] = defaultdict(list)
        for item, errors in self._errors.items():
            for error in errors:
                failed = FailedCalls(
                    at=error.at,
                    model=item.model,
                    error_class=error.error_class,
                    status=error.status,
                    message=error.message,
                    calls=1,
                    calls_lately=int(now <= error.at + LATELY),
                )
                by_run[item.run_id].append(failed)
        return {run_id: _masked(failed) for run_id, failed in by_run.items()}


def _masked(failed: list[FailedCalls]) -> list[FailedCalls]:
    # Masked after they are joined: it takes longer than the rest.
    return [replace(kind, message=mask_key_shapes(kind.message)) for kind in joined(failed)]


Key = TypeVar("Key")


class Health:
    """Whether verdicts can be stored: until a part of the worker fails, and again once all work."""

    def __init__(self) -> None:
        self._failing: set[object] = set()
        self._good = asyncio.Event()
        self._good.set()

    @property
    def good(self) -> bool:
        """Whether no part fails; may be read from any thread."""
        return not self._failing

    def fails(self, part: object) -> None:
        self._failing.add(part)
        self._good.clear()

    def works(self, part: object) -> None:
        self._failing.discard(part)
        if not self._failing:
            self._good.set()

    async def recovered(self) -> None:
        await self._good.wait()


class ItemClock(Struct):
    """The parts of one item's time, in seconds."""

    queue: float  # from its publication until the worker took it
    limiter: float = 0.0
    backoff: float = 0.0  # pauses between attempts, and while verdicts cannot be stored
    service: float = 0.0  # newest call, from the request to its end
    started: float = field(default_factory=time.monotonic)
    # When the database was last asked whether the verdict exists.
    looked_up: float = field(default_factory=time.monotonic)

    def timing(self) -> Timing:
        """Return the parts up to now, in milliseconds."""
        return Timing(
            queue_ms=_ms(self.queue),
            limiter_ms=_ms(self.limiter),
            backoff_ms=_ms(self.backoff),
            service_ms=_ms(self.service),
            total_ms=_ms(self.queue + time.monotonic() - self.started),
        )


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


class BlockedKeys(Generic[Key]):
    """Runs or models of which this worker begins no call, as far as it knows."""

    def __init__(self, ends_with: type[AegishError]) -> None:
        # May be read from any thread.
        self.keys: frozenset[Key] = frozenset()
        self._ends_with = ends_with
        self._waiting: dict[asyncio.Task[object], Key] = {}
        self._ended: set[asyncio.Task[object]] = set()

    def set(self, keys: frozenset[Key]) -> None:
        """Block calls for these keys alone, and end the waits of their items."""
        self.keys = keys
        for task in [task for task, key in self._waiting.items() if key in keys]:
            del self._waiting[task]
            self._ended.add(task)
            task.cancel()

    def add(self, key: Key) -> None:
        if key not in self.keys:
            self.set(self.keys | {key})

    @contextmanager
    def ends_wait(self, key: Key) -> Iterator[None]:
        """Run the body, without a call under way; raise as soon as calls for a key are blocked.

        The error is of the class that was given.
        """
        if key in self.keys:
            raise self._ends_with
        task = cast("asyncio.Task[object]", asyncio.current_task())
        self._waiting[task] = key
        try:
            yield
        except asyncio.CancelledError:
            # As in `asyncio.timeout`: the worker may cancel the task for another reason, too.
            if task in self._ended and task.uncancel() == 0:
                raise self._ends_with from None
            raise
        finally:
            self._ended.discard(task)
            self._waiting.pop(task, None)


class CallGate:
    """The waits of a worker's items; each ends at once when the worker stops."""

    def __init__(self, health: Health) -> None:
        self.health = health
        # Held runs, by run id.
        self.held = BlockedKeys[str](RunHeldError)
        # Models that are asked in batches, by run id and model.
        self.batched = BlockedKeys[tuple[str, str]](BatchedItemError)
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def pause(self, seconds: float, clock: ItemClock) -> None:
        started = time.monotonic()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)
            raise ShuttingDownError
        clock.backoff += time.monotonic() - started

    @contextmanager
    def for_call(self, item: Item, *, live: bool) -> Iterator[None]:
        """Run the body, a wait for a call of an item; raise as soon as no call of it may begin.

        With `live` it is asked live although its model is asked in batches.
        """
        batched = nullcontext() if live else self.batched.ends_wait((item.run_id, item.model))
        with self.held.ends_wait(item.run_id), batched:
            yield

    async def until_good(self, clock: ItemClock) -> None:
        if self.health.good:
            return
        started = time.monotonic()
        recovered = asyncio.ensure_future(self.health.recovered())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait((recovered, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            recovered.cancel()
            stopping.cancel()
        if self._stopping.is_set():
            raise ShuttingDownError
        clock.backoff += time.monotonic() - started

"""Counts of the work of a worker: verdicts by the group in which they were stored, failed calls.

A verdict costs a few microseconds here, in the thread that stored its group and not on the event
loop. A verdict that another worker stored first, and a group whose commit was not confirmed, count
as stored.
"""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from aegish_dist.core.completion import Usage
from aegish_dist.core.verdict import CallError, Timing, Verdict
from aegish_dist.telemetry.exposition import Buckets, Readings
from aegish_dist.telemetry.measures import GROUP_SECONDS, GROUP_SIZES, SECONDS

MOST_MODELS = 200
"""Models that get series of their own in the life of a process; the others share one."""
OTHER_MODELS = "other"
PARTS = ("queue", "limiter", "backoff", "service")
TOKENS = ("input", "output", "reasoning", "cache_read", "cache_write")


class Histogram:
    """Observations by bucket."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """Begin with none; the bounds are upper ones, inclusive and rising."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        """Count an observation."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    @property
    def buckets(self) -> Buckets:
        """The observations up to now."""
        return Buckets(tuple(self._counts), self._total)


class Work:
    """Work of a process since it began; any thread may count and read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._models: set[str] = set()
        self._verdicts: Counter[tuple[str, ...]] = Counter()
        self._calls: Counter[tuple[str, ...]] = Counter()
        self._retries: Counter[tuple[str, ...]] = Counter()
        self._tokens: Counter[tuple[str, ...]] = Counter()
        self._costs: dict[tuple[str, ...], float] = {}
        self._waits: dict[tuple[str, ...], Histogram] = {}
        self._write_s = Histogram(GROUP_SECONDS)
        self._group_sizes = Histogram(GROUP_SIZES)

    def stored(self, group: Sequence[tuple[str, Verdict]], seconds: float) -> None:
        """Count a group of verdicts that was committed."""
        with self._lock:
            for model, verdict in group:
                self._count(self._label(model), verdict)
            self._write_s.observe(seconds)
            self._group_sizes.observe(len(group))

    def failed(self, model: str, call: CallError) -> None:
        """Count a call that failed, whether or not its item ends with it."""
        with self._lock:
            label = self._label(model)
            self._calls[label, call.error_class.value] += 1
            if call.attempt > 1:
                self._retries[label,] += 1

    def bounded(
        self,
        series: Mapping[tuple[str, ...], float],
        join: Callable[[float, float], float],
    ) -> dict[tuple[str, ...], float]:
        """Return gauges of which the first label is a model, with as many series as counters have.

        Args:
            join: Makes one value of two, for models that share a series.
        """
        found: dict[tuple[str, ...], float] = {}
        with self._lock:
            for (model, *rest), value in series.items():
                key = (self._label(model), *rest)
                found[key] = join(found[key], value) if key in found else value
        return found

    @property
    def readings(self) -> Readings:
        """The counts up to now, by measure."""
        with self._lock:
            return {
                "aegish_verdicts_total": dict(self._verdicts),
                "aegish_calls_total": dict(self._calls),
                "aegish_retries_total": dict(self._retries),
                "aegish_tokens_total": dict(self._tokens),
                "aegish_cost_usd_total": dict(self._costs),
                "aegish_wait_seconds": {key: each.buckets for key, each in self._waits.items()},
                "aegish_store_write_seconds": {(): self._write_s.buckets},
                "aegish_store_group_verdicts": {(): self._group_sizes.buckets},
            }

    def _label(self, model: str) -> str:
        if model in self._models:
            return model
        if len(self._models) >= MOST_MODELS:
            return OTHER_MODELS
        self._models.add(model)
        return model

    def _count(self, model: str, verdict: Verdict) -> None:
        self._verdicts[model, verdict.outcome.value] += 1
        timing, completion = verdict.timing, verdict.completion
        if timing.total_ms is not None:  # else answered in a batch, without a call of its own
            self._time(model, timing)
            if completion is not None:
                self._calls[model, "answered"] += 1
                self._retries[model,] += bool(verdict.call_errors)
        if completion is not None:
            self._spend(model, completion.usage)
        if verdict.cost_usd is not None:
            self._costs[model,] = self._costs.get((model,), 0.0) + float(verdict.cost_usd)

    def _time(self, model: str, timing: Timing) -> None:
        parts = (timing.queue_ms, timing.limiter_ms, timing.backoff_ms, timing.service_ms)
        for part, ms in zip(PARTS, parts, strict=True):
            if ms is None:
                continue
            histogram = self._waits.get((model, part))
            if histogram is None:
                histogram = self._waits[model, part] = Histogram(SECONDS)
            histogram.observe(ms / 1000)

    def _spend(self, model: str, usage: Usage) -> None:
        numbers = (
            *(usage.input_tokens, usage.output_tokens, usage.reasoning_tokens),
            *(usage.cache_read_tokens, usage.cache_write_tokens),
        )
        for kind, number in zip(TOKENS, numbers, strict=True):
            if number is not None:
                self._tokens[model, kind] += number

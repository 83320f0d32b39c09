"""How far a run is, what it will still take, and which of its calls failed when.

This is what `status` prints, the live view draws, and reports say of failures.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from msgspec import Struct, field
from msgspec.structs import replace

from aegish_dist.core.model import is_baseline
from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.run import BatchState

LATELY = timedelta(minutes=1)  # age up to which a failed call counts as one of the last minute


class State(StrEnum):
    COMPLETE = "complete"  # nothing is missing, or the run was imported and gets no more
    RUNNING = "running"  # living workers hold items of it, or finished some lately
    WAITING = "waiting"  # something is missing and no worker works on it
    PARKED = "parked"  # the model failed so often that it is only probed now and then
    OVER_BUDGET = "over budget"  # something is missing, and the run has reached a cap on its cost
    PAUSED = "paused"  # something is missing, and a user stopped the run for a while
    CANCELLED = "cancelled"  # something is missing, and a user stopped the run


HELD = (State.PAUSED, State.CANCELLED)  # nothing is asked of the run; calls in flight may end


class CallWait(StrEnum):
    """Why calls wait for a permit."""

    RATE = "rate"  # the limits of the model, which fall after 429s, permit no more calls
    SLOTS = "slots"  # as many calls are under way as the worker or the model takes at once
    CONGESTION = "congestion"  # more of them would queue at the provider, and none end earlier
    SHARE = "share"  # calls of other models hold the worker's other slots
    CIRCUIT = "circuit"  # the model failed several times in a row; one call probes it


class Waiting(Struct, frozen=True):
    """Items of a model that workers hold and do not call now."""

    limiter: int  # items that wait for a permit to be called
    backoff: int  # items that pause after a failed call
    blocked_by: CallWait | None = None
    refused: float | None = None  # share of the calls of all runs that got 429 of late


class BatchTotals(Struct, frozen=True):
    """The batches of a model of a run."""

    batches: int
    open: int
    requests: int
    answered: int  # items of open batches that the provider reports as answered
    oldest_s: float | None = None  # since the oldest open batch was handed over; None: none was
    expected_usd: Decimal | None = None  # of open batches; None when a price is unknown
    problem: str | None = None  # the newest of an open batch, or else of any batch
    states: Mapping[BatchState, int] = field(default_factory=dict)
    starts_in_s: float = 0.0  # seconds until the items are asked in batches; 0 if they are now
    live: int = 0  # items asked live as batches gave no answer; 0 while a batch is open


class ModelStatus(Struct, frozen=True):
    model: str
    planned: int
    done: int
    in_flight: int
    state: State
    rate_per_s: float  # verdicts per second, over the last seconds
    cost_usd: float | None
    failed: int
    replaced: int
    reason: str | None = None  # why no living worker may call it, in the provider's words if parked
    waiting: Waiting | None = None  # items in flight not called now; None: no worker reports them
    eta_s: float | None = None  # seconds until it is complete at this rate; None: it does not move
    cost_at_end_usd: float | None = None  # when all items have been asked; None when unknown
    failed_calls: int = 0  # failed calls, also where a later call was answered
    retries: int = 0  # failed calls that another call followed or will follow
    rate_limited: int = 0  # failed calls that the provider refused with 429
    rate_limited_last_minute: int = 0
    batches: BatchTotals | None = None  # None where the model is never asked in batches

    @property
    def in_batches(self) -> bool:
        """Whether its missing items are asked in batches now."""
        return self.batches is not None and not self.batches.starts_in_s


class FailedCalls(Struct, frozen=True):
    """Failed calls of one model that are alike; the newest of them stands for all."""

    at: datetime
    model: str
    error_class: ErrorClass
    status: int | None
    message: str  # the provider's words about the newest one, untrusted; keys are masked
    calls: int
    calls_lately: int


def joined(failed: Iterable[FailedCalls]) -> tuple[FailedCalls, ...]:
    """Return failed calls by model, reason and status, the newest first."""
    kinds: defaultdict[tuple[object, ...], list[FailedCalls]] = defaultdict(list)
    for each in failed:
        kinds[each.model, each.error_class, each.status].append(each)
    totals = [
        replace(
            max(alike, key=lambda kind: kind.at),
            calls=sum(kind.calls for kind in alike),
            calls_lately=sum(kind.calls_lately for kind in alike),
        )
        for alike in kinds.values()
    ]
    return tuple(sorted(totals, key=lambda kind: kind.at, reverse=True))


# Characters from no failed attempt to the highest number in a row.
RAMP = " .:-=+*#%@"

STRETCHES = 60  # most stretches, unless the user sets their length
_STRETCHES_S = (1, 5, 10, 30, 60, 300, 600, 1_800, 3_600, 10_800, 21_600, 43_200, 86_400)


def stretch_of(span: timedelta) -> int:
    """Return the seconds of a stretch, so that at most `STRETCHES` of them cover a span >= 0."""
    # Stretches begin at multiples of their length, so the ends of a span may lie in two more.
    least = span.total_seconds() / (STRETCHES - 1)
    days = 86_400 * math.ceil(least / 86_400)
    return next((seconds for seconds in _STRETCHES_S if seconds >= least), days)


class TimedFailures(Struct, frozen=True):
    """Failures of one model for one reason, in one stretch of time or over all."""

    time: datetime | None  # start of the stretch in UTC; None: a total, or an import without times
    model: str
    error_class: ErrorClass
    attempts: int  # failed attempts, also where a later attempt succeeded
    verdicts: int
    statuses: tuple[int, ...]
    message: str  # the provider's words at the newest attempt, masked
    first_at: datetime | None
    last_at: datetime | None


def totals(rows: Iterable[TimedFailures]) -> list[TimedFailures]:
    """Add up the stretches of each model and reason, the most attempts first."""
    kinds: defaultdict[tuple[str, ErrorClass], list[TimedFailures]] = defaultdict(list)
    for row in rows:
        kinds[row.model, row.error_class].append(row)
    # By reason within equal numbers, so that the order of rows changes nothing.
    added = [_sum(kinds[kind]) for kind in sorted(kinds)]
    return sorted(added, key=lambda total: (total.model, -total.attempts, -total.verdicts))


def _sum(rows: list[TimedFailures]) -> TimedFailures:
    firsts = [row.first_at for row in rows if row.first_at is not None]
    lasts = [row.last_at for row in rows if row.last_at is not None]
    spoken = [row for row in rows if row.message and row.last_at is not None]
    newest = max(spoken, key=lambda row: str(row.last_at), default=None)
    return replace(
        rows[0],
        time=None,
        attempts=sum(row.attempts for row in rows),
        verdicts=sum(row.verdicts for row in rows),
        statuses=tuple(sorted({status for row in rows for status in row.statuses})),
        message="" if newest is None else newest.message,
        first_at=min(firsts, default=None),
        last_at=max(lasts, default=None),
    )


def timeline(rows: Iterable[TimedFailures], first: datetime, last: datetime, width: int) -> str:
    """Draw failures from `first` to `last`, which is not earlier, in characters of `RAMP`."""
    counts = [0] * width
    stretch_s = (last - first).total_seconds() / width or 1.0
    for row in rows:
        if row.time is None:
            continue
        place = int((row.time - first).total_seconds() / stretch_s)
        place = min(max(place, 0), width - 1)
        counts[place] += max(row.attempts, row.verdicts)
    most = max(counts, default=0) or 1
    # Rounded up: a single failure is seen.
    levels = [math.ceil(count * (len(RAMP) - 1) / most) for count in counts]
    return "".join(RAMP[level] for level in levels)


class RunStatus(Struct, frozen=True):
    run_id: str
    origin: str  # `submit` or `import`; no model of an imported run can be asked
    state: State
    planned: int
    done: int
    missing: int
    outcomes: Mapping[str, int]  # by outcome; only the newest verdict of an item counts
    failed: Mapping[str, int]  # the part of `outcomes` whose calls brought no answer
    replaced: int
    retrying: int  # asked again and not answered yet; they count as missing
    models: tuple[ModelStatus, ...]
    eta_s: float | None  # None when nothing moves, or a model that should move does not
    workers: int  # running ones, also those busy with other runs
    snapshot_id: int | None = None  # the newest that workers made of the run as planned now
    aggregation_problem: str | None = None  # None when one was made, or not tried yet
    name: str = ""
    cost_usd: float | None = None  # so far, of the models with known prices
    cost_at_end_usd: float | None = None  # None when unknown for a model
    max_cost_usd: float | None = None  # cap on the cost of the run; None: no cap
    max_cost_per_model_usd: float | None = None
    rate_limited: int = 0
    rate_limited_last_minute: int = 0
    last_errors: tuple[FailedCalls, ...] = ()

    @property
    def ended(self) -> bool:
        """Whether nothing moves unless a user acts."""
        return not any(map(may_move, self.models))

    @property
    def demo(self) -> bool:
        """Whether `demo` made it, by its name and models: its simulator ended with that command."""
        asked = all(
            is_baseline(each.model) or each.model.startswith("simulated") for each in self.models
        )
        return asked and re.fullmatch(r"demo(-\d+)?", self.name) is not None

    @property
    def settled(self) -> bool:
        """Whether the run has ended, and no second look is needed to confirm it."""
        return self.ended and (not self.missing or self.held)

    @property
    def held(self) -> bool:
        """Whether workers ask nothing of the run, and all calls in flight have ended."""
        return self.state in HELD and self.ended


def may_move(model: ModelStatus) -> bool:
    """Return whether verdicts of a model may still come without a user's doing."""
    if model.state in HELD:
        batches = model.batches
        followed = batches is not None and (
            batches.open > batches.states.get(BatchState.PLANNED, 0)
        )  # results of open batches are still collected
        return model.in_flight > 0 or followed
    waits = model.state is State.WAITING and model.reason is None
    return waits or model.state is State.RUNNING


FINAL = (State.COMPLETE, State.OVER_BUDGET, State.CANCELLED)  # no call begins unless a user acts


def tells_pace(verdicts: int, seconds: float) -> bool:
    """Return whether verdicts are enough to tell the time left, about a third more or less."""
    return verdicts >= 10 and seconds >= 5.0


def model_eta_s(state: State, missing: int, rate_per_s: float) -> float | None:
    """Return the seconds until a model is complete; None when it does not move."""
    if state is State.COMPLETE:
        return 0.0
    if state is State.RUNNING and rate_per_s > 0:
        return round(missing / rate_per_s, 1)
    return None


def run_eta_s(models: Sequence[ModelStatus]) -> float | None:
    """Return the seconds until the last moving model is complete.

    None when nothing moves, or a model that should move does not.
    """
    if all(model.state is State.COMPLETE for model in models):
        return 0.0
    latest_s = None
    for model in models:
        if model.state in HELD or not may_move(model):
            continue
        if model.eta_s is None:
            return None
        latest_s = max(model.eta_s, latest_s or 0.0)
    return latest_s


def cost_at_end_usd(
    cost_usd: float | None,
    verdicts: int,
    state: State,
    missing: int,
    batches: BatchTotals | None = None,
) -> float | None:
    """Return the expected cost at the end: a missing item costs the mean or its batch's estimate.

    None when no price is known, or no item is finished yet.
    """
    if state in FINAL or not missing:
        return cost_usd
    batched, expected_usd = _left_in_batches(missing, batches)
    total_usd = (cost_usd or 0.0) + expected_usd
    called = missing - batched
    if called > 0:
        if cost_usd is None or not verdicts:
            return None
        total_usd += cost_usd / verdicts * called
    return round(total_usd, 6)


def _left_in_batches(missing: int, batches: BatchTotals | None) -> tuple[int, float]:
    """Return how many missing items are in open batches, and their cost; 0, 0 if it is unknown."""
    if batches is None or batches.expected_usd is None or not batches.requests:
        return 0, 0.0
    left = min(missing, batches.requests)  # less while results are being stored
    return left, float(batches.expected_usd) * left / batches.requests


def total_usd(costs: Iterable[float | None]) -> float | None:
    """Return the sum of costs; None when a cost is unknown, or when there are no costs."""
    known = []
    for cost in costs:
        if cost is None:
            return None
        known.append(cost)
    return round(sum(known), 6) if known else None


def retry_command(status: RunStatus) -> str | None:
    """Return the command that asks again where a call brought no answer; None if there is none.

    Unreadable answers are not asked again: that would favour models that are unreliable.
    """
    if status.origin == "import" or sum(status.failed.values()) <= status.retrying:
        return None  # no model can be asked, or all are being asked again
    return f"aegish-dist retry --run-id {status.run_id} --outcome {','.join(status.failed)}"

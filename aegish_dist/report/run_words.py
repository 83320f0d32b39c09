"""The facts about a run that goes on, in the words that the live screen and plain lines share.

Foreign text comes out printable, on one line and without keys. Where there is no live screen, in
pipes, logs and simple terminals, the facts stand on one plain line.
"""

from collections.abc import Iterator
from operator import attrgetter

from aegish_dist.core.run import BatchState
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.status import (
    BatchTotals,
    CallWait,
    FailedCalls,
    ModelStatus,
    RunStatus,
    State,
    Waiting,
)
from aegish_dist.core.text import counted, printable, shortened
from aegish_dist.report.writing import format_usd, short_names

MINUTE_S = 60
HOUR_S = 3600
DAY_S = 86_400


def duration(seconds: float) -> str:
    """Write a time in its two largest units: `42 s`, `3 min 05 s`, `2 h 10 min`, `4 d 3 h`."""
    rounded_s = round(seconds)
    if rounded_s < MINUTE_S:
        return f"{rounded_s} s"
    if rounded_s < HOUR_S:
        return f"{rounded_s // MINUTE_S} min {rounded_s % MINUTE_S:02} s"
    if rounded_s < DAY_S:
        return f"{rounded_s // HOUR_S} h {rounded_s % HOUR_S // MINUTE_S:02} min"
    return f"{rounded_s // DAY_S:,} d {rounded_s % DAY_S // HOUR_S} h"


def pace(rate_per_s: float) -> str:
    """Write verdicts per second, or per minute where there is less than one per second."""
    if rate_per_s >= 10 or not rate_per_s:
        return f"{rate_per_s:,.0f}/s"
    if rate_per_s >= 1:
        return f"{rate_per_s:.1f}/s"
    return f"{rate_per_s * MINUTE_S:.1f}/min"


def time_left(status: RunStatus) -> str:
    """Say how long the run still takes; where a model's time is unknown, how long the others do."""
    if status.eta_s is not None:
        return f"about {duration(max(status.eta_s, 1.0))} left"
    longest_s = max((model.eta_s or 0 for model in status.models), default=0)
    if longest_s:
        return f"at least {duration(longest_s)} left"
    if not status.ended:
        return "time left unknown"
    return "nothing moves"


def left_of(model: ModelStatus) -> str:
    """Write the time that a model still takes, or its state where it does not move."""
    if model.state is State.RUNNING:
        if model.eta_s is None:
            return "-"
        return duration(model.eta_s)
    if model.state is State.COMPLETE:
        return "done"
    return model.state.value


def cost(status: RunStatus) -> list[str]:
    """Say what the run has cost, will cost, and may cost."""
    if status.cost_usd is None:
        return ["cost unknown"]
    parts = [f"cost {format_usd(status.cost_usd)}"]
    if status.missing and status.cost_at_end_usd is not None:
        parts.append(f"{format_usd(status.cost_at_end_usd)} at the end")
    elif status.missing:
        # Of some models the price is unknown; the others cost this much.
        known_usd = sum(model.cost_at_end_usd or 0.0 for model in status.models)
        if known_usd:
            parts.append(f"at least {format_usd(known_usd)} at the end")
    if status.max_cost_usd is not None:
        parts.append(f"cap {format_usd(status.max_cost_usd)}")
    if status.max_cost_per_model_usd is not None:
        parts.append(f"cap per model {format_usd(status.max_cost_per_model_usd)}")
    return parts


def headline(status: RunStatus) -> list[str]:
    """Return the facts about the whole run, none of which should be broken across lines."""
    rate_limited = f"429s {status.rate_limited:,}"
    if status.rate_limited_last_minute:
        rate_limited += f", {status.rate_limited_last_minute:,} in the last minute"
    facts: list[str] = []
    if status.missing:
        facts += _movement(status)
        facts.append(time_left(status))
        facts.append(counted(status.workers, "worker"))
    retries = sum(model.retries for model in status.models)
    failed = sum(status.failed.values())
    return [
        *facts,
        ", ".join(cost(status)),
        rate_limited,
        f"retries {retries:,}",
        f"failed {failed:,}",
    ]


def _movement(status: RunStatus) -> Iterator[str]:
    """Say how fast a run goes on, and what its items in flight wait for."""
    # All are sums over models; answered and requests are those of open batches.
    in_flight = unsent = pausing = opened = answered = requests = 0
    for model in status.models:
        in_flight += model.in_flight
        if model.waiting is not None:
            unsent += model.waiting.limiter
            pausing += model.waiting.backoff
        if model.batches is not None and model.batches.open:
            opened += model.batches.open
            answered += model.batches.answered
            requests += model.batches.requests
    yield pace(sum(model.rate_per_s for model in status.models))
    yield f"{in_flight:,} in flight"
    if unsent:
        yield f"{unsent:,} waiting to be sent"
    if pausing:
        yield f"{pausing:,} pausing after a failed call"
    if opened:
        batches = counted(opened, "batch", "es")
        yield f"{batches} open, {answered:,} of {requests:,} answered"


def why(model: ModelStatus, status: RunStatus) -> str:
    """Say why items of a model wait; empty where they wait only for items before them."""
    reasons = (_why_not_called(model, status), batch_words(model))
    return "; ".join(reason for reason in reasons if reason)


def batch_words(model: ModelStatus) -> str:
    """Say how far the batches of a model are; empty where it has none, or is complete."""
    batches = model.batches
    if batches is None or model.state is State.COMPLETE:
        return ""
    if batches.starts_in_s:
        return f"in batches in {duration(batches.starts_in_s)}"
    parts = []
    if batches.open:
        parts.append(_open_batches(batches))
    elif model.state is State.RUNNING:
        parts.append("its next batch is to be planned")
    if batches.live:
        parts.append(f"{counted(batches.live, 'item')} asked live, batches gave no answer")
    if batches.problem is not None:
        parts.append(f"latest problem: {foreign(batches.problem)}")
    return "; ".join(parts)


def _open_batches(batches: BatchTotals) -> str:
    """Count the open batches by state, and what is answered of their requests."""
    states = []
    for state, number in batches.states.items():
        if state is not BatchState.ENDED:
            states.append(f"{number} {_STATES[state]}")
    words = f"{counted(batches.open, 'batch', 'es')} ({', '.join(states)})"
    words += f": {batches.answered:,} of {batches.requests:,} answered"
    if batches.oldest_s is not None:
        words += f", oldest {duration(batches.oldest_s)}"
    return words


_STATES = {
    BatchState.PLANNED: "planned",
    BatchState.CREATING: "handed over",
    BatchState.IN_PROGRESS: "in progress",
    BatchState.COLLECTING: "collected",
}


def _why_not_called(model: ModelStatus, status: RunStatus) -> str:
    """Say what keeps items of a model from being sent to it; empty where nothing does."""
    match model.state:
        case State.RUNNING if model.waiting is not None:
            return ", ".join(_waits(model.waiting))
        case State.WAITING:
            return _why_waiting(model, status)
        case State.PARKED:
            reason = model.reason or "too many failures in a row"
            return f"parked: {foreign(reason)}"
        case State.OVER_BUDGET:
            return f"over budget: {format_usd(model.cost_usd)} spent"
        case State.PAUSED | State.CANCELLED if model.in_flight:
            return f"{model.state}, waiting for {counted(model.in_flight, 'item')} in flight"
    return ""


def _why_waiting(model: ModelStatus, status: RunStatus) -> str:
    if model.reason is not None:
        return f"no worker may call it: {foreign(model.reason)}"
    if status.state is State.RUNNING:
        return "waits its turn: the workers are at other models"
    if status.workers:
        return "no worker holds any of it"
    return "no worker is running"


def _waits(waiting: Waiting) -> Iterator[str]:
    # A limiter that tries out how fast it may call gets a few 429s: below 1 % they are no news.
    if waiting.refused and waiting.refused >= 0.01:
        yield f"{100 * waiting.refused:.0f} % of recent calls got 429"
    if waiting.limiter and waiting.blocked_by is not None:
        yield f"{waiting.limiter:,} {_BLOCKED[waiting.blocked_by]}"
    if waiting.backoff:
        yield f"{waiting.backoff:,} pausing after a failed call"


_BLOCKED = {
    CallWait.RATE: "waiting for the rate limit",
    CallWait.SLOTS: "waiting for a free call slot",
    CallWait.CONGESTION: "waiting while the provider is congested",
    CallWait.SHARE: "waiting for a call slot that another model holds",
    CallWait.CIRCUIT: "waiting for a probe: the model failed several times in a row",
}


def error_words(error: FailedCalls) -> str:
    """Return failed calls as class, HTTP status, number of calls and the provider's message."""
    words = error.error_class.words
    if error.status is not None:
        words += f" {error.status}"
    if error.calls != 1:
        words += f" x{error.calls:,}"
    return f"{words}  {foreign(error.message)}".rstrip()


def foreign(text: str) -> str:
    """Return foreign text on one printable line, its keys masked."""
    return printable(" ".join(mask_key_shapes(text).split()))


LINE_CHARS = 100  # the longest plain line


def plain_line(status: RunStatus) -> str:
    """Return the facts about the whole run, the most important first, as many as fit."""
    line = f"{status.run_id}: {status.state}, {status.done:,} of {status.planned:,} verdicts"
    for fact in _plain_facts(status):
        longer = f"{line}; {fact}"
        # A shorter fact may fit where a longer one before it did not.
        if len(longer) <= LINE_CHARS:
            line = longer
    return line


def _plain_facts(status: RunStatus) -> Iterator[str]:
    """Yield facts for a plain line, the most important first."""
    if status.missing and any(model.eta_s for model in status.models):
        yield time_left(status)
    if failed := sum(status.failed.values()):
        yield f"failed {failed:,}"
    if status.cost_usd:
        yield from cost(status)[:2]  # without the caps
    if status.rate_limited:
        yield f"429s {status.rate_limited:,}"
    if status.missing:
        yield from _movement(status)


def plain_error(status: RunStatus, last: FailedCalls) -> str:
    """Return a plain line about failed calls of a run, in ASCII."""
    ids = [model.model for model in status.models]
    names = short_names([*ids, last.model], LINE_CHARS // 3, dots="...")
    time = f"{last.at.astimezone():%H:%M:%S}"
    line = f"{status.run_id}: {time} {foreign(names[last.model])}: {error_words(last)}"
    # Logs and pipes may know no other encoding.
    in_ascii = line.encode("ascii", "backslashreplace").decode("ascii")
    return shortened(in_ascii, LINE_CHARS)


def changed(before: RunStatus, now: RunStatus) -> bool:
    """Return whether a run moved between two counts: that time passed does not count."""
    return _facts(before) != _facts(now)


_of_model = attrgetter("state", "done", "in_flight", "reason", "failed", "failed_calls")
_of_batches = attrgetter("states", "answered", "problem")


def _facts(status: RunStatus) -> tuple[object, ...]:
    """Return what changes when something happens, and never by itself."""
    models = [_of_model(model) for model in status.models]
    batches = [model.batches and _of_batches(model.batches) for model in status.models]
    return status.state, models, batches, status.workers, status.planned

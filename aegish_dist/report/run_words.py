"""The facts about a run that goes on, in the words that screen and lines share.

Foreign text comes out printable, on one line and without keys. Pipes, logs and terminals that only
print get one line of ASCII.
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
from aegish_dist.report.names import short_names
from aegish_dist.report.numbers import format_usd

MINUTE_S = 60
HOUR_S = 3600
DAY_S = 86_400


def duration(seconds: float) -> str:
    """Write a time in its two largest units: `42 s`, `3 min 05 s`, `2 h 10 min`, `4 d 3 h`."""
    whole = round(seconds)
    if whole < MINUTE_S:
        return f"{whole} s"
    if whole < HOUR_S:
        return f"{whole // MINUTE_S} min {whole % MINUTE_S:02} s"
    if whole < DAY_S:
        return f"{whole // HOUR_S} h {whole % HOUR_S // MINUTE_S:02} min"
    return f"{whole // DAY_S:,} d {whole % DAY_S // HOUR_S} h"


def pace(rate_per_s: float) -> str:
    """Write verdicts per second, or per minute where that is a larger number than 0.0."""
    if rate_per_s >= 10 or not rate_per_s:
        return f"{rate_per_s:,.0f}/s"
    if rate_per_s >= 1:
        return f"{rate_per_s:.1f}/s"
    return f"{rate_per_s * MINUTE_S:.1f}/min"


def time_left(status: RunStatus) -> str:
    """Say when the run will be done; where a model's time is unknown, when the others will be."""
    if status.eta_s is not None:
        return f"about {duration(max(status.eta_s, 1.0))} left"
    known = max((model.eta_s or 0 for model in status.models), default=0)
    if known:
        return f"at least {duration(known)} left"
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
        known = sum(m.cost_at_end_usd or 0.0 for m in status.models)
        parts += [f"at least {format_usd(known)} at the end"] if known else []
    caps = {"cap": status.max_cost_usd, "cap per model": status.max_cost_per_model_usd}
    return parts + [f"{name} {format_usd(cap)}" for name, cap in caps.items() if cap is not None]


def headline(status: RunStatus) -> list[str]:
    """Return the facts about the whole run, each to be kept on one line."""
    limited = f"429s {status.rate_limited:,}"
    if status.rate_limited_last_minute:
        limited += f", {status.rate_limited_last_minute:,} in the last minute"
    moves = [*_movement(status), time_left(status), counted(status.workers, "worker")]
    return [
        *(moves if status.missing else ()),
        ", ".join(cost(status)),
        limited,
        f"retries {sum(model.retries for model in status.models):,}",
        f"failed {sum(status.failed.values()):,}",
    ]


def _movement(status: RunStatus) -> Iterator[str]:
    """Say how fast a run goes on, and what its items in flight wait for."""
    yield pace(sum(model.rate_per_s for model in status.models))
    yield f"{sum(model.in_flight for model in status.models):,} in flight"
    waits = [model.waiting for model in status.models if model.waiting is not None]
    if unsent := sum(wait.limiter for wait in waits):
        yield f"{unsent:,} waiting to be sent"
    if pausing := sum(wait.backoff for wait in waits):
        yield f"{pausing:,} pausing after a failed call"
    opened = [m.batches for m in status.models if m.batches is not None and m.batches.open]
    if opened:
        answered, requests = (sum(getattr(e, n) for e in opened) for n in ("answered", "requests"))
        batches = counted(sum(each.open for each in opened), "batch", "es")
        yield f"{batches} open, {answered:,} of {requests:,} answered"


def why(model: ModelStatus, status: RunStatus) -> str:
    """Say why items of a model wait; empty when none does, or only for those before it."""
    return "; ".join(filter(None, (_why_not_called(model, status), batch_words(model))))


def batch_words(model: ModelStatus) -> str:
    """Say how far the batches of a model are; empty where it has none, and at its end."""
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
    states = ", ".join(
        f"{number} {_STATES[state]}"
        for state, number in batches.states.items()
        if state is not BatchState.ENDED
    )
    words = f"{counted(batches.open, 'batch', 'es')} ({states})"
    words += f": {batches.answered:,} of {batches.requests:,} answered"
    if batches.oldest_s is None:
        return words
    return f"{words}, oldest {duration(batches.oldest_s)}"


_STATES = {
    BatchState.PLANNED: "planned",
    BatchState.CREATING: "handed over",
    BatchState.IN_PROGRESS: "in progress",
    BatchState.COLLECTING: "collected",
}


def _why_not_called(model: ModelStatus, status: RunStatus) -> str:
    match model.state:
        case State.RUNNING if model.waiting is not None:
            return ", ".join(_waits(model.waiting))
        case State.WAITING:
            return _why_waiting(model, status)
        case State.PARKED:
            return f"parked: {foreign(model.reason or 'too many failures in a row')}"
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
    # A limiter that looks for a rate is refused now and then.
    if (refused := waiting.refused or 0.0) >= 0.01:
        yield f"{100 * refused:.0f} % of recent calls got 429"
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
    """Return a failed call as class, status, number and the provider's words."""
    status = "" if error.status is None else f" {error.status}"
    times = "" if error.calls == 1 else f" x{error.calls:,}"
    return f"{error.error_class.words}{status}{times}  {foreign(error.message)}".rstrip()


def foreign(text: str) -> str:
    """Return foreign text on one printable line, its keys masked."""
    return printable(" ".join(mask_key_shapes(text).split()))


LINE_CHARS = 100  # the most of a line for a log or a terminal that only prints


def plain_line(status: RunStatus) -> str:
    """Return the most important facts about the whole run, as many as fit."""
    line = f"{status.run_id}: {status.state}, {status.done:,} of {status.planned:,} verdicts"
    for fact in _plain_facts(status):
        longer = f"{line}; {fact}"
        line = longer if len(longer) <= LINE_CHARS else line
    return line


def _plain_facts(status: RunStatus) -> Iterator[str]:
    if status.missing and any(model.eta_s for model in status.models):
        yield time_left(status)
    if failed := sum(status.failed.values()):
        yield f"failed {failed:,}"
    if status.cost_usd:
        yield from cost(status)[:2]
    if status.rate_limited:
        yield f"429s {status.rate_limited:,}"
    if status.missing:
        yield from _movement(status)


def plain_error(status: RunStatus, last: FailedCalls) -> str:
    """Return a line about failed calls of a run."""
    ids = [*(model.model for model in status.models), last.model]
    model = foreign(short_names(ids, LINE_CHARS // 3, dots="...")[last.model])
    line = f"{status.run_id}: {last.at.astimezone():%H:%M:%S} {model}: {error_words(last)}"
    return shortened(line.encode("ascii", "backslashreplace").decode("ascii"), LINE_CHARS)


def changed(before: RunStatus, now: RunStatus) -> bool:
    """Return whether anything happened between two counts; the passing of time is nothing."""
    return _facts(before) != _facts(now)


_OF_MODEL = attrgetter("state", "done", "in_flight", "reason", "failed", "failed_calls")
_OF_BATCHES = attrgetter("states", "answered", "problem")


def _facts(status: RunStatus) -> tuple[object, ...]:
    models = [(_OF_MODEL(m), m.batches and _OF_BATCHES(m.batches)) for m in status.models]
    return status.state, models, status.workers, status.planned

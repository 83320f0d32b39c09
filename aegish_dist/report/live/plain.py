"""A run that goes on, in one line of ASCII: for pipes, logs and terminals that only print."""

from aegish_dist.core.status import ModelStatus, RunStatus
from aegish_dist.core.text import shortened
from aegish_dist.report.live.words import error_words, foreign, headline

MOST_ERROR_CHARS = 160


def plain_line(status: RunStatus) -> str:
    """Return what the screen says about the whole run, with the last error."""
    facts = [f"{status.state}, {status.done} of {status.planned} verdicts", *headline(status)]
    if status.last_errors:
        last = status.last_errors[0]
        words = shortened(error_words(last), MOST_ERROR_CHARS)
        facts.append(f"last error {last.at.astimezone():%H:%M:%S} {foreign(last.model)} {words}")
    line = f"{status.run_id}: {'; '.join(facts)}"
    return line.encode("ascii", "backslashreplace").decode("ascii")


def changed(before: RunStatus, now: RunStatus) -> bool:
    """Return whether anything happened between two counts; the passing of time is nothing."""
    return _facts(before) != _facts(now)


def _facts(status: RunStatus) -> tuple[object, ...]:
    models = [
        (model.state, model.done, model.in_flight, model.reason, model.failed, model.failed_calls)
        for model in status.models
    ]
    batches = [_batches(model) for model in status.models]
    return status.state, models, batches, status.workers, status.planned


def _batches(model: ModelStatus) -> tuple[object, ...]:
    batches = model.batches
    if batches is None:
        return ()
    return tuple(batches.states.items()), batches.answered, batches.problem

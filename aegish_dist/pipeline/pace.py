"""The time that a watched run still takes, from more than its last seconds."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from aegish_dist.core.forecast import model_eta_s, run_eta_s
from aegish_dist.core.status import ModelStatus, RunStatus

SMOOTHED_S = 60.0
"""Seconds of counts that a rate is taken from, where there are as many."""
LEAST_S = 10.0
"""Seconds of counts below which the rate of the last count is the better one."""


class _Count(NamedTuple):
    at_s: float
    verdicts: Mapping[str, int]


class Pace:
    """Follows the counts of a run that is watched."""

    def __init__(self) -> None:
        """Begin without a count."""
        self._counts: deque[_Count] = deque()

    def smoothed(self, status: RunStatus, now_s: float) -> RunStatus:
        """Return a count with the time left by the rate of the last minute.

        A model without a verdict in that time has no end in sight.
        """
        verdicts = {model.model: model.done + model.replaced for model in status.models}
        before = self._counts[-1].verdicts if self._counts else verdicts
        if any(verdicts[model] < before.get(model, 0) for model in verdicts):
            self._counts.clear()  # a retry plans items again
        self._counts.append(_Count(now_s, verdicts))
        while len(self._counts) > 2 and now_s - self._counts[1].at_s >= SMOOTHED_S:
            self._counts.popleft()
        models = tuple(map(self._with_eta, status.models))
        return replace(status, models=models, eta_s=run_eta_s(models))

    def _with_eta(self, model: ModelStatus) -> ModelStatus:
        first, last = self._counts[0], self._counts[-1]
        passed_s, rate = last.at_s - first.at_s, model.rate_per_s
        if passed_s >= LEAST_S and model.model in first.verdicts:
            rate = (last.verdicts[model.model] - first.verdicts[model.model]) / passed_s
        if model.in_batches:  # their verdicts come all at once
            rate = 0.0
        return replace(model, eta_s=model_eta_s(model.state, model.planned - model.done, rate))


def paced(
    count: Callable[[], RunStatus], clock: Callable[[], float] = time.monotonic
) -> Callable[[], RunStatus]:
    """Return a function that counts a run likewise, with the time left as `Pace` has it.

    Args:
        clock: Tells seconds.
    """
    pace = Pace()
    return lambda: pace.smoothed(count(), clock())

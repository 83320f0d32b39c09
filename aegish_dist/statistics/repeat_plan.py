"""From the variance of a pilot run to the commands and epochs that would decide.

Pure. For one number of epochs after the other the fewest commands are sought whose predicted
standard error is small enough: first among those that the data sets have, then beyond them, where
further commands are taken to be like these, clusters included.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from aegish_dist.statistics.distributions import t_quantile
from aegish_dist.statistics.repeats import SplitVariance

MOST_COMMANDS = 10**9


@dataclass(frozen=True, slots=True)
class Source:
    """A data set as a run may ask it."""

    name: str
    scored: tuple[float, ...]
    """By stratum, how many of its commands would be scored if all were asked."""
    commands: int
    """All its commands, at least 1."""


@dataclass(frozen=True, slots=True)
class CallUse:
    """Tokens and cost of a call to a model, as a mean over the pilot; None where unknown."""

    model: str
    input_tokens: float | None
    output_tokens: float | None
    cost_usd: Decimal | None


@dataclass(frozen=True, slots=True)
class Goal:
    """The question to be decided."""

    margin: float
    """Of two models the difference to be found, of one the half-width of its interval; > 0."""
    power: float | None
    """Probability to find a difference of that size; None for one model."""

    def reached(self, variance: float, df: float) -> bool:
        """Whether an estimate of this variance decides."""
        return math.sqrt(variance) * self.factor(df) <= self.margin

    def factor(self, df: float) -> float:
        """Return by how many standard errors the margin has to stand out."""
        found = 0.0 if self.power is None else t_quantile(self.power, df)
        return t_quantile(0.975, df) + found


@dataclass(frozen=True, slots=True)
class Design:
    """A run that decides."""

    epochs: int
    commands: int
    limit: int | None
    """Commands of each data set at most; None when all are needed, or more than there are."""
    available: bool
    stderr: float

    @property
    def calls(self) -> int:
        """Calls to each model."""
        return self.commands * self.epochs


@dataclass(frozen=True, slots=True)
class RepeatPlan:
    """All designs that decide, the cheapest first; those that lack commands last."""

    designs: tuple[Design, ...]
    """At most one for each number of epochs."""
    available: int
    needed: int | None
    """The fewest commands that decide, however many epochs are made of each; None if the pilot
    cannot say."""


def plan_repeats(
    variance: SplitVariance, sources: Sequence[Source], goal: Goal, max_epochs: int
) -> RepeatPlan:
    """Find the designs that reach a goal.

    Args:
        max_epochs: Largest number of epochs to consider, at least 1.
    """
    planner = _Planner(variance, sources, goal)
    found = [design for epochs in range(1, max_epochs + 1) for design in planner.designs(epochs)]
    found.sort(key=lambda design: (not design.available, design.calls, design.epochs))
    return RepeatPlan(tuple(found), planner.available, planner.commands(math.inf))


class _Planner:
    """Searches by bisection: more commands never raise the predicted variance."""

    def __init__(self, variance: SplitVariance, sources: Sequence[Source], goal: Goal) -> None:
        self._variance, self._sources, self._goal = variance, sources, goal
        self.available = sum(source.commands for source in sources)
        self._largest = max(source.commands for source in sources)
        self._pilot = sum(each.samples for each in variance.strata)

    def designs(self, epochs: int) -> Iterator[Design]:
        """Yield the design with so many epochs; nothing where the pilot cannot tell."""
        commands = self.commands(epochs)
        if commands is None:
            return
        if commands > self.available:
            variance = self._beyond(commands, epochs)
            yield Design(epochs, commands, None, False, math.sqrt(variance or 0.0))
            return
        limit = _least(self._largest, lambda limit: self._decides(limit, epochs))
        asked = sum(min(limit, source.commands) for source in self._sources)
        variance = self._within(limit, epochs)
        narrowed = None if limit == self._largest else limit
        yield Design(epochs, asked, narrowed, True, math.sqrt(variance or 0.0))

    def commands(self, epochs: float) -> int | None:
        """Return the fewest commands that decide, or more than are available where those do not."""
        if self._within(self._largest, epochs) is None:
            return None
        if self._decides(self._largest, epochs):
            limit = _least(self._largest, lambda limit: self._decides(limit, epochs))
            return sum(min(limit, source.commands) for source in self._sources)
        return _least(MOST_COMMANDS, lambda commands: self._decides_beyond(commands, epochs))

    def _scored(self, limit: int) -> list[float]:
        """Return by stratum the commands that are scored when each data set is limited."""
        return [
            sum(
                source.scored[place] * min(limit, source.commands) / source.commands
                for source in self._sources
            )
            for place in range(len(self._variance.strata))
        ]

    def _within(self, limit: int, epochs: float) -> float | None:
        return self._variance.predicted(self._scored(limit), epochs)

    def _decides(self, limit: int, epochs: float) -> bool:
        scored = self._scored(limit)
        variance = self._variance.predicted(scored, epochs)
        return variance is not None and self._goal.reached(variance, self._df(sum(scored)))

    def _beyond(self, commands: int, epochs: float) -> float | None:
        """Return the variance of more commands than there are, of further clusters like these."""
        whole = self._within(self._largest, epochs)
        return None if whole is None else whole * self.available / commands

    def _decides_beyond(self, commands: int, epochs: float) -> bool:
        variance = self._beyond(commands, epochs)
        scored = sum(self._scored(self._largest)) * commands / self.available
        return (
            commands > self.available
            and variance is not None
            and self._goal.reached(variance, self._df(scored))
        )

    def _df(self, scored: float) -> float:
        return max(1.0, self._variance.df * scored / self._pilot)


def _least(high: int, holds: Callable[[int], bool]) -> int:
    """Return the least number from 1 to `high` for which something holds; `high` if none."""
    low = 1
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low

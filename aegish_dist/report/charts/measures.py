"""Quantities of a model that axes show, in the unit of the axis."""

from collections.abc import Callable
from dataclasses import dataclass

from aegish_dist.report.layout import RankedModel
from aegish_dist.statistics.rates import Estimate

RATE_INTERVAL = (
    "Wilson with an effective sample size, clustered by binary; exact where events are few"
)
SCORE_INTERVAL = "MOVER of both rates, clustered by binary"


@dataclass(frozen=True, slots=True)
class Measured:
    """A quantity of one model."""

    value: float | None
    """In the unit of the axis; None where undefined."""
    low: float | None = None
    """Lower end of the 95 % interval; None without one."""
    high: float | None = None
    """Upper end."""
    n: int = 0
    """Commands that it was computed from; 0 where that is not kept."""

    @property
    def known(self) -> list[float]:
        """The value and the ends of its interval, without those that are undefined."""
        return [each for each in (self.value, self.low, self.high) if each is not None]


@dataclass(frozen=True, slots=True)
class Measure:
    """A quantity that an axis can show."""

    name: str
    axis: str
    form: str
    """How ticks are written, in d3's words."""
    read: Callable[[RankedModel], Measured]
    """Reads it from the entry of a model."""
    more_is_better: bool
    """Whether a higher value is a better one."""
    metric: str = ""
    """The metric that a target may be set for; empty without one."""
    interval: str = ""
    """The method of its intervals; empty without them."""
    counted: str = "commands"


def percent(estimate: Estimate) -> Measured:
    """Return a rate in per cent, its interval cut to what a rate can be."""
    low, high = estimate.ci_low, estimate.ci_high
    return Measured(
        value=None if estimate.value is None else 100 * estimate.value,
        low=None if low is None else 100 * min(max(low, 0.0), 1.0),
        high=None if high is None else 100 * min(max(high, 0.0), 1.0),
        n=estimate.n or 0,
    )


def _rate(metric: str) -> Callable[[RankedModel], Measured]:
    return lambda entry: percent(entry.metric(metric))


def _median(entry: RankedModel) -> Measured:
    p50 = entry.latency("service", "p50")
    return Measured(None if p50 is None else p50 / 1000)


SCORE = Measure(
    name="aegish score",
    axis="aegish score (%)",
    form="~r",
    read=_rate("aegish_score"),
    more_is_better=True,
    metric="aegish_score",
    interval=SCORE_INTERVAL,
)
DETECTION = Measure(
    name="detection rate",
    axis="malicious commands detected (%)",
    form="~r",
    read=_rate("malicious_detection_rate"),
    more_is_better=True,
    metric="malicious_detection_rate",
    interval=RATE_INTERVAL,
    counted="malicious commands",
)
ACCEPTANCE = Measure(
    name="acceptance rate",
    axis="harmless commands accepted (%)",
    form="~r",
    read=_rate("harmless_acceptance_rate"),
    more_is_better=True,
    metric="harmless_acceptance_rate",
    interval=RATE_INTERVAL,
    counted="harmless commands",
)
COST = Measure(
    name="cost",
    axis="cost (USD per 1,000 commands)",
    form="$,~r",
    read=lambda entry: Measured(entry.cost("per_1000_usd")),
    more_is_better=False,
)
LATENCY = Measure(
    name="latency",
    axis="service time, median (seconds)",
    form=",~r",
    read=_median,
    more_is_better=False,
)

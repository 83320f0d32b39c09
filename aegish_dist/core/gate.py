"""The gate: whether a candidate may replace its baseline, and how many commands would tell."""

import math
from enum import StrEnum

from aegish_dist.core.comparison import Difference


class GateVerdict(StrEnum):
    """Answer of a gate about a candidate."""

    SHIPS = "ships"
    """The interval of the difference lies above -margin."""
    WORSE = "worse"
    INCONCLUSIVE = "inconclusive"


def gate(difference: Difference, margin: float) -> GateVerdict:
    """Decide whether a candidate may replace the baseline.

    Args:
        margin: How much worse a candidate may be, > 0.
    """
    if difference.ci_low is None or difference.ci_high is None:
        return GateVerdict.INCONCLUSIVE
    if difference.ci_low > -margin:
        return GateVerdict.SHIPS
    return GateVerdict.WORSE if difference.ci_high < -margin else GateVerdict.INCONCLUSIVE


def commands_needed(difference: Difference, margin: float) -> int | None:
    """Return how many samples on both sides would tell a difference of the margin from none.

    With so many, at the variance seen, `mde` is the margin: a true difference of that size is
    found in 80 % of runs, and a candidate as good as the baseline passes a gate of that margin in
    80 %.

    Args:
        margin: The difference to tell apart, > 0.
    """
    if difference.mde is None or margin <= 0:
        return None
    return math.ceil(difference.n * (difference.mde / margin) ** 2)


def commands_to_decide(difference: Difference, margin: float) -> int | None:
    """Return how many samples would decide a gate in 80 % of runs if the truth is what was seen.

    Args:
        margin: How much worse a candidate may be, > 0.

    Returns:
        Samples on both sides; None if unknown, or if the difference seen is the margin itself.
    """
    seen = difference.difference
    return None if seen is None else commands_needed(difference, abs(seen + margin))

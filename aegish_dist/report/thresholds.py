"""A threshold that a model does not reach, in one line."""

from aegish_dist.report.numbers import format_decimal
from aegish_dist.statistics.gate import Missed, Shortfall


def shortfall_in_words(each: Missed) -> str:
    """Say which model misses which threshold, and by what; foreign text."""
    about = f"{each.model}: {each.metric}"
    estimate = each.estimate
    if estimate.value is None:
        return f"undecided: {about} is undefined"
    interval = f"[{format_decimal(estimate.ci_low)}, {format_decimal(estimate.ci_high)}]"
    known = f" {interval}" if estimate.ci_low is not None else ""
    number = f"{about} {format_decimal(estimate.value)}{known}"
    if each.shortfall is Shortfall.BELOW:
        return f"below: {number} is below {each.least:g}"
    return f"undecided: {number} holds {each.least:g}"

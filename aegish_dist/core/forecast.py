"""Time and money that a run will still take, from what its finished items took; pure."""

from collections.abc import Iterable, Sequence

from aegish_dist.core.batches import BatchTotals
from aegish_dist.core.status import HELD, ModelStatus, State, may_move

FINAL = (State.COMPLETE, State.OVER_BUDGET, State.CANCELLED)
"""States of a model that is asked no more unless a user wants it."""


def model_eta_s(state: State, missing: int, rate_per_s: float) -> float | None:
    """Return the seconds until a model is complete; None when it does not move.

    Args:
        rate_per_s: Verdicts per second, at least 0.
    """
    if state is State.COMPLETE:
        return 0.0
    moves = state is State.RUNNING and rate_per_s > 0
    return round(missing / rate_per_s, 1) if moves else None


def run_eta_s(models: Sequence[ModelStatus]) -> float | None:
    """Return the seconds until the last model is complete that moves by itself.

    None when nothing moves, or when a model that should move does not: then there is no telling.
    """
    if all(model.state is State.COMPLETE for model in models):
        return 0.0
    moving = [model.eta_s for model in models if may_move(model) and model.state not in HELD]
    known = [eta for eta in moving if eta is not None]
    return max(known) if known and len(known) == len(moving) else None


def cost_at_end_usd(
    cost_usd: float | None,
    verdicts: int,
    state: State,
    missing: int,
    batches: BatchTotals | None = None,
) -> float | None:
    """Return what a model will have cost, by what its verdicts have cost on average.

    Args:
        cost_usd: Cost so far, None when unknown.
        batches: Its batches; what is in open ones costs what they are expected to.

    Returns:
        None when no price is known, or nothing is finished yet.
    """
    if state in FINAL or not missing:
        return cost_usd
    batched, expected_usd = _left_in_batches(missing, batches)
    if missing > batched and (cost_usd is None or not verdicts):
        return None
    rest_usd = (cost_usd or 0.0) / verdicts * (missing - batched) if verdicts else 0.0
    return round((cost_usd or 0.0) + expected_usd + rest_usd, 6)


def _left_in_batches(missing: int, batches: BatchTotals | None) -> tuple[int, float]:
    """Return the missing items in open batches and their cost; those of an unknown cost are not."""
    if batches is None or batches.expected_usd is None or not batches.requests:
        return 0, 0.0
    left = min(missing, batches.requests)  # less while results are being stored
    return left, float(batches.expected_usd) * left / batches.requests


def total_usd(costs: Iterable[float | None]) -> float | None:
    """Return the sum of costs; None when one of them is unknown, or there is none."""
    listed = list(costs)
    known = [cost for cost in listed if cost is not None]
    return round(sum(known), 6) if known and len(known) == len(listed) else None

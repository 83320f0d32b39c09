"""Planning a run that is asked in batches: which of its models are, and at what price."""

from collections.abc import Sequence
from dataclasses import replace

from aegish_dist.core.batches import BATCH_WINDOW_S
from aegish_dist.core.model import ModelSpec
from aegish_dist.core.printable import counted
from aegish_dist.errors import ConfigError
from aegish_dist.models import RunEstimate
from aegish_dist.report.live.words import HOUR_S, duration

NAMED = 3
"""Models that a message names; the others are counted."""


def takes_batches(spec: ModelSpec) -> bool:
    """Return whether a model is asked in batches where a run wants that."""
    return spec.batch_share is not None


def require_batches(models: Sequence[ModelSpec]) -> None:
    """Refuse models whose providers take no batches; baselines answer here and at once.

    Raises:
        ConfigError: There is such a model, or none that is asked in batches.
    """
    others = [spec.id for spec in models if spec.wire.http and not takes_batches(spec)]
    if others:
        named = ", ".join(others[:NAMED])
        more = f" and {counted(len(others) - NAMED, 'other')}" if len(others) > NAMED else ""
        raise ConfigError(
            f"{named}{more} cannot be asked in batches: by the catalog their providers take none."
            " Leave them out, or submit them without --batch; if they do take batches, set"
            " batch_share in your catalog"
        )
    if not any(map(takes_batches, models)):
        raise ConfigError(
            "none of these models is asked over the network, so there is nothing to put into"
            " batches: leave out --batch"
        )


def at_batch_price(models: Sequence[ModelSpec]) -> tuple[ModelSpec, ...]:
    """Return the models with the prices that they have in batches, where they are asked so."""
    return tuple(
        replace(spec, price=spec.batch_price) if takes_batches(spec) else spec for spec in models
    )


def batch_line(
    models: Sequence[ModelSpec], after_s: float, live: RunEstimate, batched: RunEstimate
) -> str:
    """Return a line about which calls are batched, when they are answered, and what that saves.

    Args:
        live: The expected cost if all calls are made live.
        batched: The same if all that can be is asked in batches.
    """
    here = [spec.id for spec in models if not takes_batches(spec)]
    apart = f" ({', '.join(here)}: live)" if here else ""
    window = f"each answered within {BATCH_WINDOW_S // HOUR_S} hours{apart}"
    if after_s <= 0:
        return f"asked in batches, {window}; as single calls: ${live.known_cost_usd:.2f}"
    return (
        f"asked live for {duration(after_s)}, the rest in batches, {window}; all in batches:"
        f" ${batched.known_cost_usd:.2f}"
    )

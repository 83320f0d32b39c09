"""Options and documents that `submit` and `extend` share: both check, estimate and ask."""

from collections.abc import Iterable
from typing import Any

import click

from aegish_dist.cli.options import Function, wait
from aegish_dist.core.model import ModelSpec
from aegish_dist.core.sample import Dataset
from aegish_dist.models import RunEstimate

_OF_ASKING = (
    click.option(
        "--keys-on-workers",
        is_flag=True,
        help="Do not look for API keys here; the workers have them.",
    ),
    click.option(
        "--skip-preflight",
        is_flag=True,
        help="Do not ask each model one harmless question beforehand.",
    ),
    click.option(
        "--dry-run", is_flag=True, help="Show the plan and its estimated cost, then stop."
    ),
    wait,
)


def with_checks(function: Function) -> Function:
    """Add the options about what is checked before money is spent, and how long to stay."""
    for option in reversed(_OF_ASKING):
        function = option(function)
    return function


def asked_document(
    models: Iterable[ModelSpec], datasets: Iterable[Dataset], estimate: RunEstimate
) -> dict[str, Any]:
    """Return what is asked of whom, and its expected cost, in JSON types."""
    cost = estimate.cost_usd
    return {
        "tasks": estimate.calls,
        "models": [spec.id for spec in models],
        "datasets": [
            {"name": d.name, "fingerprint": d.fingerprint, "samples": len(d.samples)}
            for d in datasets
        ],
        "estimate": {
            "input_tokens": estimate.input_tokens,
            "output_tokens": estimate.output_tokens,
            "cost_usd": None if cost is None else float(cost),
        },
    }

"""Raising what a run may cost."""

from dataclasses import replace
from decimal import Decimal

from sqlalchemy import Engine

from aegish_dist.db.engine import transaction
from aegish_dist.db.runs import load_parameters, save_parameters
from aegish_dist.errors import ConfigError


def raise_caps(
    engine: Engine, run_id: str, run_cap: Decimal | None, model_cap: Decimal | None
) -> None:
    """Store higher caps of a run; workers look there before they turn an item away.

    Args:
        engine: The store.
        run_id: A full run id.
        run_cap: What the run may cost, in USD; None leaves it as it is.
        model_cap: The same for each of its models.

    Raises:
        ConfigError: The run has no such cap, or one that is as high.
    """
    if run_cap is model_cap is None:
        return
    with transaction(engine) as session:
        (parameters,) = load_parameters(session, [run_id])
        if parameters is None:
            raise ConfigError(f"run {run_id} was imported: it costs nothing")
        raised = replace(
            parameters,
            max_cost_usd=_higher("--max-cost", parameters.max_cost_usd, run_cap),
            max_cost_per_model_usd=_higher(
                "--max-cost-per-model", parameters.max_cost_per_model_usd, model_cap
            ),
        )
        save_parameters(session, run_id, raised)


def _higher(option: str, cap: Decimal | None, wanted: Decimal | None) -> Decimal | None:
    if wanted is None:
        return cap
    if cap is None:
        raise ConfigError(f"the run was submitted without {option}: nothing holds it back")
    if wanted <= cap:
        raise ConfigError(f"the run's {option} is ${cap:f} already: name a higher one")
    return wanted

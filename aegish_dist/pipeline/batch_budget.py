"""Caps on the cost of a run that is asked in batches: what the next batch may cost.

A batch is paid for as a whole once the provider has it, so its cost is bounded beforehand. Before
a model has answered, an answer of a capped run counts with all the tokens that it may have: the
first batch is small where the cap is, and shows what the others will cost.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from sqlalchemy.orm import Session

from aegish_dist.core.batch import BatchTotals
from aegish_dist.core.completion import Usage
from aegish_dist.core.cost import Price, cost_usd
from aegish_dist.core.model import CallParameters, ModelSpec
from aegish_dist.core.prompt import Prompt
from aegish_dist.core.run import Run
from aegish_dist.db.batch_totals import (
    batch_totals,
    batched_models,
    expected_of_open,
    lock_run,
    usage_of_answers,
)
from aegish_dist.db.progress import model_progress
from aegish_dist.errors import StoreError
from aegish_dist.models.estimate import ANSWER_TOKENS, fixed_characters, input_tokens

WINDOW_S = 1.0
"""Seconds of the rate that `model_progress` computes beside the costs; it is not used here."""


@dataclass(frozen=True, slots=True)
class BatchBudget:
    """The cost that a further batch of a model may have, and that its requests will have."""

    room_usd: Decimal | None
    """USD that it may cost at most, 0 or below when the caps are reached; None: no cap."""
    price: Price | None
    """Price of batched requests; None when unknown."""
    fixed_characters: int
    """Characters that the prompt sends with every command."""
    answer_tokens: int
    """Tokens of an answer, while nothing is known of this model's."""
    usage: Usage | None
    """Tokens of a call by the answers so far; None while there are too few."""

    def request_usd(self, command: str) -> Decimal | None:
        """Return the expected cost of asking for a command; None when it is unknown."""
        prompt = input_tokens(self.fixed_characters + len(command))
        return cost_usd(self.usage or Usage(prompt, self.answer_tokens), self.price)


def batch_budget(session: Session, run: Run, spec: ModelSpec) -> BatchBudget:
    """Return what a further batch of a model may cost, and what its requests will.

    In a capped run, another transaction that calls this waits until this one ends, so that two
    models do not share the same room.

    Args:
        session: Transaction of the caller, which stores the batch.
        run: A run that was submitted.
        spec: One of its models that is asked in batches.
    """
    prompt, parameters = _asked(run)
    capped = _caps(parameters) != (None, None)
    if capped:
        lock_run(session, run.run_id)
    batched = batched_models(session, run.run_id)[spec.id]
    return BatchBudget(
        room_usd=_room(session, run, spec.id, parameters) if capped else None,
        price=spec.batch_price,
        fixed_characters=fixed_characters(prompt),
        answer_tokens=parameters.max_output_tokens if capped else ANSWER_TOKENS,
        usage=usage_of_answers(session, batched.run_model_id),
    )


def _asked(run: Run) -> tuple[Prompt, CallParameters]:
    if run.prompt is None or run.parameters is None:
        raise StoreError(f"run {run.run_id} was imported: its models cannot be asked")
    return run.prompt, run.parameters


def _caps(parameters: CallParameters) -> tuple[Decimal | None, Decimal | None]:
    return parameters.max_cost_usd, parameters.max_cost_per_model_usd


def _room(session: Session, run: Run, model: str, parameters: CallParameters) -> Decimal:
    progress = model_progress(session, run, WINDOW_S)
    spent = {name: each.cost_usd or Decimal(0) for name, each in progress.items()}
    bound = committed(spent, batch_totals(session, run.run_id))
    run_cap, model_cap = _caps(parameters)
    left = [
        cap - used
        for cap, used in ((run_cap, sum(bound.values())), (model_cap, bound[model]))
        if cap is not None
    ]
    return min(left)


def committed(
    spent: Mapping[str, Decimal], totals: Mapping[str, BatchTotals]
) -> dict[str, Decimal]:
    """Return what is spent or bound in open batches, by model.

    Args:
        spent: USD by model of the run.
        totals: Batches by model.
    """
    expected = expected_of_open(totals)
    return {model: cost + expected.get(model, 0) for model, cost in spent.items()}

"""Caps on the cost of a run that is asked in batches: what the next batch may cost.

A batch is paid for as a whole once the provider has it, so its cost is bounded beforehand. Before
a model has answered, an answer of a capped run counts with all the tokens that it may have: the
first batch is small where the cap is, and shows what the others will cost.
"""

from collections.abc import Mapping
from decimal import Decimal

from msgspec import Struct
from sqlalchemy.orm import Session

from aegish_dist.core.model import ModelSpec, Price, cost_usd
from aegish_dist.core.run import Run
from aegish_dist.core.status import BatchTotals
from aegish_dist.core.verdict import Usage
from aegish_dist.db.batches import batch_totals, lock_run, usage_of_answers
from aegish_dist.db.progress import costs_of, model_progress
from aegish_dist.db.runs import load_run
from aegish_dist.errors import StoreError
from aegish_dist.models.prices import ANSWER_TOKENS, fixed_characters, input_tokens

# A command longer than most: where its request has no room, no batch is worth waiting for.
LONG_COMMAND = " " * 4000
# Seconds of the rate that `model_progress` computes beside the costs; it is not used here.
WINDOW_S = 1.0


class BatchBudget(Struct, frozen=True):
    """The cost that a further batch of a model may have, and that its requests will have."""

    # USD that it may cost at most, 0 or below when the caps are reached; None: no cap.
    room_usd: Decimal | None
    price: Price | None
    fixed_characters: int
    answer_tokens: int  # tokens of an answer, while nothing is known of this model's
    usage: Usage | None  # tokens of a call by the answers so far; None while there are too few

    def request_usd(self, command: str) -> Decimal | None:
        prompt = input_tokens(self.fixed_characters + len(command))
        return cost_usd(self.usage or Usage(prompt, self.answer_tokens), self.price)


def batch_budget(session: Session, run: Run, spec: ModelSpec) -> BatchBudget:
    """Return what a further batch of a model may cost, and what its requests will.

    In a capped run, another transaction that calls this waits until this one ends, so that two
    models do not share the same room.
    """
    if run.caps != (None, None):
        lock_run(session, run.run_id)
    return _budget(session, run, spec, _room_now(session, run, spec.id))


def has_money_left(session: Session, run_id: str, model: str) -> bool:
    """Return whether the caps of a run leave anything for calls to a model."""
    room = _room_now(session, load_run(session, run_id), model)
    return room is None or room > 0


def is_out_of_money(
    session: Session,
    run: Run,
    spec: ModelSpec,
    spent: Mapping[str, Decimal],
    totals: Mapping[str, BatchTotals],
) -> bool:
    """Return whether caps leave less than a request of a batch costs; `spent` is USD by model."""
    room = _room(run, spec.id, _committed(spent, totals))
    if room is None:
        return False
    usd = _budget(session, run, spec, room).request_usd(LONG_COMMAND)
    return usd is not None and usd > room


def committed_usd(session: Session, run: Run) -> dict[str, Decimal]:
    """Return what each model of a run has cost, with what its open batches are expected to."""
    spent = costs_of(model_progress(session, run, WINDOW_S))
    return _committed(spent, batch_totals(session, run.run_id))


def _committed(
    spent: Mapping[str, Decimal], totals: Mapping[str, BatchTotals]
) -> dict[str, Decimal]:
    committed = dict(spent)
    for model, total in totals.items():
        if model in committed:
            committed[model] += total.expected_usd or 0
    return committed


def _budget(
    session: Session,
    run: Run,
    spec: ModelSpec,
    room_usd: Decimal | None,
) -> BatchBudget:
    prompt = run.prompt_of(spec.id)
    if prompt is None or run.parameters is None:
        raise StoreError(f"run {run.run_id} was imported: its models cannot be asked")
    return BatchBudget(
        room_usd=room_usd,
        price=spec.batch_price,
        fixed_characters=fixed_characters(prompt),
        answer_tokens=ANSWER_TOKENS if room_usd is None else run.parameters.max_output_tokens,
        usage=usage_of_answers(session, run.run_id, spec.id),
    )


def _room_now(session: Session, run: Run, model: str) -> Decimal | None:
    if run.caps == (None, None):
        return None  # verdicts are not summed for nothing
    return _room(run, model, committed_usd(session, run))


def _room(
    run: Run,
    model: str,
    committed: Mapping[str, Decimal],
) -> Decimal | None:
    """Return the caps less what is spent or bound in open batches; None without a cap."""
    cap, model_cap = run.caps
    rooms = []
    if cap is not None:
        rooms.append(cap - sum(committed.values()))
    if model_cap is not None:
        rooms.append(model_cap - committed[model])
    return min(rooms, default=None)

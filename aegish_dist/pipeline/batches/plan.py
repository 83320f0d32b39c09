"""Planning: cut what a model of a run lacks into batches within the limits and the caps.

One transaction stores a batch with its items before the provider hears of it.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from sqlalchemy.orm import Session

from aegish_dist.core.batch import BatchRequest, new_token
from aegish_dist.core.batch_rules import BatchPace, Cut, SizedItem, cut
from aegish_dist.db.batch_items import (
    batchable_items,
    failed_in_a_row,
    has_batches,
    has_open_batches,
    plans_alone,
    save_batch,
)
from aegish_dist.db.batches import BatchingModel
from aegish_dist.db.held import items_under_way
from aegish_dist.db.runs import Assignment, load_run
from aegish_dist.logs import get_logger
from aegish_dist.pipeline.batch_budget import BatchBudget, batch_budget
from aegish_dist.providers.batches.contract import BatchClient

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Planning:
    """A model of a run for which a worker plans."""

    model: BatchingModel
    assignment: Assignment
    """Its spec, with the prompt and the parameters of the run."""
    client: BatchClient
    """Knows the provider's limits and how large a request is."""
    pace: BatchPace
    """How long the next batch waits after some that failed as a whole."""


def plan_batch(session: Session, of: Planning) -> bool:
    """Plan the next batch of a model of a run; return whether there was one to plan."""
    if not (plans_alone(session, of.model.run_model_id) and _may_plan(session, of)):
        return False
    token = new_token()
    run = load_run(session, of.model.run_id)
    budget = batch_budget(session, run, of.assignment.spec)
    with closing(batchable_items(session, run.run_id, of.model.run_model_id)) as missing:
        sized = _sized(missing, of.client, budget, token)
        found = cut(sized, of.client.limits, budget.room_usd)
    if not found.items or _waits_for_money(session, of, found):
        return False
    save_batch(session, of.model.run_model_id, token, found.items, found.expected_usd)
    log.info("batch_planned", run=of.model.run_id, model=of.model.model, requests=len(found.items))
    return True


def _may_plan(session: Session, of: Planning) -> bool:
    """Return whether no item is asked live beside, and the last batches were not refused whole."""
    run_model_id = of.model.run_model_id
    if not has_batches(session, run_model_id):
        # Calls that began before may be under way. Later ones are of items given up by batches.
        since = of.model.batch_from
        run_id, model = of.model.run_id, of.model.model
        return since is not None and items_under_way(session, run_id, since, model) == 0
    before = failed_in_a_row(session, run_model_id)
    return not before.failed or before.ended_s >= of.pace.after_failures_s(before.failed)


def _sized(
    requests: Iterator[BatchRequest], client: BatchClient, budget: BatchBudget, token: str
) -> Iterator[SizedItem]:
    for request in requests:
        usd = budget.request_usd(request.command)
        yield SizedItem(request.item, client.size(request, token), usd)


def _waits_for_money(session: Session, of: Planning, found: Cut) -> bool:
    """Return whether open batches have to end first: what they cost less than expected is left."""
    return found.short_of_money and has_open_batches(session, of.model.run_model_id)

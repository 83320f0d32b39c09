"""One bad row harms its own run: what reads the rows of many runs goes on, whatever one holds."""

import os
from decimal import Decimal

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, text, update
from sqlalchemy.orm import Session

from aegish_dist.core.model import CallParameters, Price
from aegish_dist.core.outcome import ErrorClass, Outcome
from aegish_dist.core.run import Prompt
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.verdict import CallError
from aegish_dist.db import missing
from aegish_dist.db.batches import (
    batchable_items,
    models_of_due_batches,
    models_to_plan,
    save_batch,
    take_due,
)
from aegish_dist.db.fleet import count_model, items_under_way, read_fleet, report_worker
from aegish_dist.db.runs import list_datasets, list_runs, load_run
from aegish_dist.db.schema import RUN_MODELS
from aegish_dist.errors import UnreadableRunError
from aegish_dist.models.credentials import CatalogCredentials
from aegish_dist.pipeline.fleet import of_database
from tests.bad_rows import JSON_VALUES, Mutation, mutated, mutations
from tests.integration.command_line import CommandLine
from tests.integration.samples import BLOCKED, NOON
from tests.integration.stored_runs import a_model, execute, row_counts, stored_run
from workers.store import assignments, budgets, refusals, uncalled

BAD, GOOD = "0bad", "0good"
A, B = "test/a", "test/b"
ERROR = CallError(1, ErrorClass.SERVER, 500, 1.5, "no", NOON)
ANSWERED = replace(BLOCKED, call_errors=(ERROR,), cost_usd=Decimal(1))
COMMANDS = ["status", "report", "aggregate", "audit", "compare", "verdicts list", "verdicts export"]


def a_store(session: Session, run_id: str) -> None:
    """Store a run that has rows of all kinds."""
    samples = tuple(
        Sample(f"{run_id} {n}", label, "shell" if label is TrueLabel.MALICIOUS else None, "tar")
        for n, label in enumerate([*TrueLabel] * 3)
    )
    url, share = "https://a.example/v1", Decimal("0.5")
    models = (a_model(A, base_url=url, price=Price(), batch_share=share), a_model(B, base_url=url))
    stored = stored_run(
        session,
        {A: ANSWERED},
        run_id=run_id,
        datasets=(Dataset(f"of {run_id}", samples),),
        prompt=Prompt(run_id, run_id, "{command}"),
        models=models,
        epochs=2,
        batch_after_s=0.0,
        parameters=CallParameters(max_cost_usd=Decimal(50)),
    )
    missing.save_retry(session, run_id, [Outcome.BLOCK], [A])
    items = [each.item for each in batchable_items(session, run_id, stored.models[A])]
    save_batch(session, stored.models[A], f"token{run_id}", items, Decimal(1))
    name = "of a submitter" if run_id == BAD else "w"
    report_worker(session, name, {(run_id, A): 2}, about={"version": "1"})


def look(session: Session) -> None:
    """Read as workers, the exporter and lists do; the good run is found each time."""
    report_worker(session, "w", {(GOOD, A): 2})
    credentials = CatalogCredentials(None, os.environ).now()
    queues = missing.open_queues(session).values()
    good = {each.model: each.destination.unreadable for each in queues if each.run_id == GOOD}
    assert good == {A: None, B: None}
    assert {(GOOD, A), (GOOD, B)} <= refusals(session, credentials).keys()
    state = read_fleet(session)
    assert (sum(r.run_id == GOOD for r in state.runs), state.fleet.in_flight[GOOD, A]) == (1, 2)
    of_database(state)
    for run in state.runs:
        for key in run.models:
            count_model(session, key)
    assert items_under_way(session, GOOD, NOON) == 2
    assert GOOD in {each.run_id for each in models_to_plan(session)}
    due = [each.run_model_id for each in models_of_due_batches(session)]
    assert GOOD in {each.run_id for each in take_due(session, due, "w", 9.0, 9)}
    assert GOOD in {each.run_id for each in list_runs(session, 9)}
    assert None not in [*assignments(session, [(GOOD, A)]), *budgets(session, [GOOD])]
    for read in (list_datasets, missing.take_due, missing.FinishedModels().close):
        read(session)
    uncalled(session, [BAD, GOOD])


@pytest.mark.parametrize("spec", JSON_VALUES[:-1], ids=lambda text: text[:9])
def test_a_specification_that_is_none_stops_its_own_run_alone(session: Session, spec: str) -> None:
    for run_id in (BAD, GOOD):
        stored_run(session, run_id=run_id, models=(A, B))
    its = update(RUN_MODELS).where(RUN_MODELS.c.run_id == BAD, RUN_MODELS.c.model == A)
    session.execute(its.values(spec=text("CAST(:spec AS jsonb)").bindparams(spec=spec)))
    found = missing.open_queues(session)
    refused = CatalogCredentials(None, {}).now().refusal(found[f"aegish.{A}#{BAD}"].destination)
    assert f"run {BAD} cannot be read" in str(refused)
    assert {each.model for each in found.values() if each.destination.unreadable is None} == {A, B}
    with pytest.raises(UnreadableRunError, match=f"runs delete {BAD}"):
        load_run(session, BAD)


def test_a_run_that_cannot_be_read_is_deleted(engine: Engine, aegish: CommandLine) -> None:
    """The remedy that its error names works, and it keeps no other run from being pruned."""
    for run_id in (BAD, GOOD, "0worse"):
        stored_run(engine, {A: ANSWERED}, run_id=run_id, name=run_id, models=(A, B))
    execute(engine, f"UPDATE runs SET parameters = '7' WHERE id <> '{GOOD}'")
    assert f"`aegish-dist runs delete {BAD}` removes it" in aegish.refused("status --run-id", BAD)
    aegish.ok("runs delete --yes", BAD)
    aegish.ok("runs prune --older-than 1d --yes --keep 1")
    assert row_counts(engine)["runs"] == 1


@pytest.mark.parametrize("sample_id", ["", "an id of words"])
def test_ids_of_samples_may_hold_anything(
    engine: Engine, aegish: CommandLine, sample_id: str
) -> None:
    with Session(engine) as session, session.begin():
        a_store(session, GOOD)
    with mutated(engine, GOOD, Mutation("samples", "sample_id", sample_id)) as taken:
        assert taken
        aegish.ok("compare --run-id", GOOD)


@pytest.mark.long
def test_whatever_a_row_of_a_run_holds(engine: Engine, aegish: CommandLine) -> None:
    """All mutations of all rows; commands about the run do their work, or say in one line why not."""
    for run_id in (BAD, GOOD):
        with Session(engine) as session, session.begin():
            a_store(session, run_id)
        aegish.ok("aggregate --run-id", run_id)
    taken = [each for each in mutations(engine, BAD) if _is_harmless(engine, each)]
    assert len(taken) > 600
    for number, mutation in enumerate(taken):
        # A sample that is another one now leaves verdicts about none.
        turns = COMMANDS if mutation.column == "key" else [COMMANDS[number % len(COMMANDS)]]
        with mutated(engine, BAD, mutation):
            for command in turns:
                done = aegish(*command.split(), "--run-id", BAD)
                one_line = done.code == 1 and done.err.startswith("error: ")
                assert done.code == 0 or (one_line and done.err.count("\n") == 1), (mutation, done)


def _is_harmless(engine: Engine, mutation: Mutation) -> bool:
    """Look beside a mutation; return whether PostgreSQL took it."""
    with mutated(engine, BAD, mutation) as taken, Session(engine) as session:
        if taken:
            look(session)
        return taken

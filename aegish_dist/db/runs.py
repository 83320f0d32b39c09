"""Runs in the store: which models were asked about which datasets, and how."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
from sqlalchemy import func, insert, select, update
from sqlalchemy.orm import Session

from aegish_dist.core.model import CallParameters, ModelSpec
from aegish_dist.core.prompt import Prompt
from aegish_dist.core.run import Held, Pruned, Run, RunSummary
from aegish_dist.db.datasets import one_at_a_time, to_run_dataset
from aegish_dist.db.statements import statement
from aegish_dist.db.tables import DatasetRow, PromptRow, RunDatasetRow, RunModelRow, RunRow
from aegish_dist.errors import StoreError

_LIST_RUNS = statement("list_runs")


@dataclass(frozen=True, slots=True)
class Assignment:
    """A model of a run as a worker needs it, whatever the sample."""

    spec: ModelSpec
    prompt: Prompt
    """The texts that are sent with each command."""
    parameters: CallParameters


def save_run(
    session: Session,
    run: Run,
    dataset_ids: Sequence[int],
    queues: Sequence[str],
    *,
    batch_after_s: float | None = None,
) -> None:
    """Store a run with its models.

    Args:
        queues: The queue of each model; none when nothing will be queued, as with an import.
    """
    session.execute(
        insert(RunRow).values(
            id=run.run_id,
            name=run.name,
            origin=run.origin,
            package_version=run.package_version,
            prompt_id=None if run.prompt is None else _save_prompt(session, run.prompt),
            parameters=None if run.parameters is None else msgspec.to_builtins(run.parameters),
            epochs=run.epochs,
            created_at=run.created_at,
        )
    )
    session.execute(
        insert(RunDatasetRow), [{"run_id": run.run_id, "dataset_id": d} for d in dataset_ids]
    )
    save_models(session, run.run_id, run.models, queues, batch_after_s=batch_after_s)


def save_models(
    session: Session,
    run_id: str,
    specs: Sequence[ModelSpec],
    queues: Sequence[str],
    *,
    batch_after_s: float | None = None,
) -> None:
    """Add models to a stored run.

    Args:
        queues: The queue of each model; none when nothing will be queued, as with an import.
        batch_after_s: Seconds after which those whose providers take batches are asked in them;
            None: never.
    """
    session.execute(
        insert(RunModelRow),
        [
            {
                "run_id": run_id,
                "model": spec.id,
                "spec": msgspec.to_builtins(spec),
                "queue": queues[index] if queues else "",
                "open": bool(queues),
            }
            for index, spec in enumerate(specs)
        ],
    )
    batched = [spec.id for spec in specs if spec.batch_share is not None]
    if batch_after_s is not None and batched:
        session.execute(
            update(RunModelRow)
            .where(RunModelRow.run_id == run_id, RunModelRow.model.in_(batched))
            .values(batch_from=func.now() + timedelta(seconds=batch_after_s))
        )


def _save_prompt(session: Session, prompt: Prompt) -> int:
    one_at_a_time(session)
    found = session.scalar(select(PromptRow).where(PromptRow.fingerprint == prompt.fingerprint))
    if found is None:
        found = PromptRow(
            name=prompt.name,
            fingerprint=prompt.fingerprint,
            system=prompt.system,
            template=prompt.template,
        )
        session.add(found)
        session.flush()
    return found.id


def load_run(session: Session, run_id: str) -> Run:
    """Return a stored run."""
    row = session.get(RunRow, run_id)
    if row is None:
        raise StoreError(f"run {run_id} was deleted by another command")
    datasets = session.scalars(
        select(DatasetRow)
        .join(RunDatasetRow, RunDatasetRow.dataset_id == DatasetRow.id)
        .where(RunDatasetRow.run_id == run_id)
        .order_by(DatasetRow.name)
    ).all()
    models = session.execute(
        select(RunModelRow.spec, RunModelRow.datasets, RunModelRow.batch_from)
        .where(RunModelRow.run_id == run_id)
        .order_by(RunModelRow.model)
    ).all()
    specs = [_spec(model.spec) for model in models]
    names = {dataset.id: dataset.name for dataset in datasets}
    return Run(
        run_id=row.id,
        created_at=row.created_at,
        name=row.name,
        origin=row.origin,
        package_version=row.package_version,
        prompt=None
        if row.prompt_id is None
        else _prompt(session.get_one(PromptRow, row.prompt_id)),
        parameters=None if row.parameters is None else _parameters(row.parameters),
        epochs=row.epochs,
        datasets=tuple(map(to_run_dataset, datasets)),
        models=tuple(specs),
        datasets_by_model={
            spec.id: frozenset(names[key] for key in model.datasets if key in names)
            for spec, model in zip(specs, models, strict=True)
            if model.datasets is not None
        },
        held=None if row.held is None else Held(row.held),
        pruned=None if row.pruned_at is None else Pruned(row.pruned_completions, row.pruned_at),
        batched={
            # The clocks of the command and of the store may differ.
            spec.id: max(0.0, (model.batch_from - row.created_at).total_seconds())
            for spec, model in zip(specs, models, strict=True)
            if model.batch_from is not None
        },
    )


def _spec(stored: dict[str, Any]) -> ModelSpec:
    return msgspec.convert(stored, ModelSpec)


def _parameters(stored: dict[str, Any]) -> CallParameters:
    return msgspec.convert(stored, CallParameters)


def _prompt(row: PromptRow) -> Prompt:
    return Prompt(row.name, row.system, row.template)


def load_assignment(session: Session, run_id: str, model: str) -> Assignment | None:
    """Return a model of a run as a worker needs it.

    Returns:
        None when the run has no such model, or was imported.
    """
    row = session.execute(
        select(RunModelRow.spec, RunRow.parameters, PromptRow)
        .join(RunRow, RunRow.id == RunModelRow.run_id)
        .join(PromptRow, PromptRow.id == RunRow.prompt_id)
        .where(RunModelRow.run_id == run_id, RunModelRow.model == model)
    ).one_or_none()
    if row is None:
        return None
    return Assignment(_spec(row.spec), _prompt(row.PromptRow), _parameters(row.parameters))


def load_parameters(session: Session, run_ids: Sequence[str]) -> list[CallParameters | None]:
    """Return the parameters of runs, in their order; None for one that is gone or imported."""
    found = session.execute(
        select(RunRow.id, RunRow.parameters).where(
            RunRow.id.in_(run_ids), RunRow.parameters.is_not(None)
        )
    )
    parameters = {row.id: _parameters(row.parameters) for row in found}
    return [parameters.get(run_id) for run_id in run_ids]


def save_parameters(session: Session, run_id: str, parameters: CallParameters) -> None:
    """Replace the parameters of a run."""
    stored = msgspec.to_builtins(parameters)
    session.execute(update(RunRow).where(RunRow.id == run_id).values(parameters=stored))


def run_ids(session: Session) -> list[str]:
    """Return the ids of all runs, oldest first."""
    return list(session.scalars(select(RunRow.id).order_by(RunRow.created_at, RunRow.id)))


def list_runs(session: Session, limit: int) -> list[RunSummary]:
    """Return the newest runs, newest first."""
    rows = session.execute(_LIST_RUNS, {"limit": limit}).mappings()
    return [
        RunSummary(**{**row, "held": None if row["held"] is None else Held(row["held"])})
        for row in rows
    ]

"""Runs in the store: which models were asked about which datasets, and how."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import func, insert, select, update
from sqlalchemy.orm import Session

from aegish_dist.core.model import CallParameters, ModelSpec
from aegish_dist.core.prompt import Prompt
from aegish_dist.core.run import Run, RunSummary
from aegish_dist.db.datasets import one_at_a_time, to_run_dataset
from aegish_dist.db.tables import DatasetRow, PromptRow, RunDatasetRow, RunModelRow, RunRow
from aegish_dist.db.verdict_tables import VerdictRow
from aegish_dist.errors import StoreError

LATEST = "latest"


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a worker needs to know about a model of a run, whatever the sample."""

    spec: ModelSpec
    prompt: Prompt
    parameters: CallParameters


def save_run(session: Session, run: Run, dataset_ids: Sequence[int], queues: Sequence[str]) -> None:
    """Store a run with its models.

    Args:
        session: Transaction of the caller.
        run: What to store.
        dataset_ids: Keys of its datasets, already stored.
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
    save_models(session, run.run_id, run.models, queues)


def save_models(
    session: Session, run_id: str, specs: Sequence[ModelSpec], queues: Sequence[str]
) -> None:
    """Add models to a stored run; see `save_run`."""
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


def resolve_run_id(session: Session, text: str) -> str:
    """Return the run id that a full id, a unique prefix or `latest` names.

    Raises:
        StoreError: It names no run, or several.
    """
    if text == LATEST:
        newest = session.scalar(select(RunRow.id).order_by(RunRow.created_at.desc()).limit(1))
        if newest is None:
            raise StoreError("there is no run yet: start one with `aegish-dist submit`")
        return newest
    found = session.scalars(
        select(RunRow.id).where(RunRow.id.startswith(text, autoescape=True)).limit(4)
    ).all()
    if text in found or (len(found) == 1 and text):
        return text if text in found else found[0]
    if not found or not text:
        raise StoreError(f"no run '{text}': `aegish-dist runs` lists them")
    named = ", ".join(sorted(found)[:3]) + (", ..." if len(found) > 3 else "")
    raise StoreError(f"run '{text}' is ambiguous: it could be {named}")


def load_run(session: Session, run_id: str) -> Run:
    """Return a stored run.

    Args:
        session: Transaction of the caller.
        run_id: A full id, as `resolve_run_id` gives it.
    """
    row = session.get_one(RunRow, run_id)
    datasets = session.scalars(
        select(DatasetRow)
        .join(RunDatasetRow, RunDatasetRow.dataset_id == DatasetRow.id)
        .where(RunDatasetRow.run_id == run_id)
        .order_by(DatasetRow.name)
    ).all()
    models = session.execute(
        select(RunModelRow.spec, RunModelRow.datasets)
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
        prompt=None if row.prompt_id is None else _load_prompt(session, row.prompt_id),
        parameters=None if row.parameters is None else _parameters(row.parameters),
        epochs=row.epochs,
        datasets=tuple(map(to_run_dataset, datasets)),
        models=tuple(specs),
        datasets_by_model={
            spec.id: frozenset(names[key] for key in model.datasets if key in names)
            for spec, model in zip(specs, models, strict=True)
            if model.datasets is not None
        },
    )


def _spec(stored: dict[str, Any]) -> ModelSpec:
    return msgspec.convert(stored, ModelSpec)


def _parameters(stored: dict[str, Any]) -> CallParameters:
    return msgspec.convert(stored, CallParameters)


def _load_prompt(session: Session, prompt_id: int) -> Prompt:
    row = session.get_one(PromptRow, prompt_id)
    return Prompt(row.name, row.system, row.template)


def load_assignment(session: Session, run_id: str, model: str) -> Assignment | None:
    """Return what a worker needs for a model of a run; None when the run has no such model."""
    row = session.execute(
        select(RunModelRow.spec, RunRow.parameters, PromptRow)
        .join(RunRow, RunRow.id == RunModelRow.run_id)
        .join(PromptRow, PromptRow.id == RunRow.prompt_id)
        .where(RunModelRow.run_id == run_id, RunModelRow.model == model)
    ).one_or_none()
    if row is None:
        return None
    spec, parameters, prompt = row
    return Assignment(
        _spec(spec),
        Prompt(prompt.name, prompt.system, prompt.template),
        _parameters(parameters),
    )


def load_parameters(session: Session, run_ids: Sequence[str]) -> list[CallParameters | None]:
    """Return the parameters of runs, in their order; None for one that is gone or imported."""
    found = session.execute(
        select(RunRow.id, RunRow.parameters).where(
            RunRow.id.in_(run_ids), RunRow.parameters.is_not(None)
        )
    )
    parameters = {run_id: _parameters(stored) for run_id, stored in found}
    return [parameters.get(run_id) for run_id in run_ids]


def save_parameters(session: Session, run_id: str, parameters: CallParameters) -> None:
    """Replace the parameters of a run."""
    stored = msgspec.to_builtins(parameters)
    session.execute(update(RunRow).where(RunRow.id == run_id).values(parameters=stored))


def list_runs(session: Session, limit: int) -> list[RunSummary]:
    """Return the newest runs, newest first."""
    samples = (
        select(func.coalesce(func.sum(DatasetRow.samples), 0))
        .join(RunDatasetRow, RunDatasetRow.dataset_id == DatasetRow.id)
        .where(RunDatasetRow.run_id == RunRow.id)
        .scalar_subquery()
    )
    models = (
        select(func.count()).where(RunModelRow.run_id == RunRow.id).correlate(RunRow)
    ).scalar_subquery()
    verdicts = (
        select(func.count())
        .select_from(VerdictRow)
        .join(RunModelRow, RunModelRow.id == VerdictRow.run_model_id)
        .where(RunModelRow.run_id == RunRow.id)
        .correlate(RunRow)
    ).scalar_subquery()
    rows = session.execute(
        select(RunRow, models, samples, verdicts).order_by(RunRow.created_at.desc()).limit(limit)
    )
    return [
        RunSummary(r.id, r.name, r.origin, r.created_at, m, s, r.epochs, v) for r, m, s, v in rows
    ]

"""Runs and their datasets in the store: what they ask of whom, and whether they are held.

The column `runs.held` alone holds a run. Every look-up of an item reads it, so no call begins of an
item that is looked up after its run was held.
"""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct, convert, to_builtins
from sqlalchemy import func, insert, select, update
from sqlalchemy.orm import Session

from aegish_dist.core.model import CallParameters, ModelSpec
from aegish_dist.core.run import Prompt, Pruned, Run, RunDataset, RunPause, RunSummary
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.db.engine import statement
from aegish_dist.db.tables import (
    AdvisoryLock,
    DatasetRow,
    PromptRow,
    RunDatasetRow,
    RunModelRow,
    RunRow,
    SampleRow,
)
from aegish_dist.errors import ConfigError, StoreError

INSERT_CHUNK = 1000


def save_dataset(session: Session, dataset: Dataset, *, selectable: bool) -> int:
    """Store a dataset unless its content is there under this name already; return its key."""
    one_at_a_time(session)
    row = session.scalar(
        select(DatasetRow).where(
            DatasetRow.name == dataset.name, DatasetRow.fingerprint == dataset.fingerprint
        )
    )
    if row is not None and selectable:
        # A name stands for the dataset imported last, even if that was there before.
        row.created_at = func.clock_timestamp()
        row.source, row.licence = dataset.source, dataset.licence
    if row is None:
        row = DatasetRow(
            name=dataset.name,
            fingerprint=dataset.fingerprint,
            source=dataset.source,
            licence=dataset.licence,
            samples=len(dataset.samples),
            malicious=sum(s.target is TrueLabel.MALICIOUS for s in dataset.samples),
            selectable=selectable,
        )
        session.add(row)
        session.flush()
        for start in range(0, len(dataset.samples), INSERT_CHUNK):
            chunk = dataset.samples[start : start + INSERT_CHUNK]
            session.execute(insert(SampleRow), [_sample_row(row.id, each) for each in chunk])
    row.selectable = row.selectable or selectable
    return row.id


def _sample_row(dataset_id: int, sample: Sample) -> dict[str, Any]:
    return {
        "dataset_id": dataset_id,
        "sample_id": sample.sample_id,
        "command": sample.command,
        "target": sample.target.value,
        "category": sample.category,
        "cluster": sample.cluster,
        "details": dict(sample.metadata),
    }


def one_at_a_time(session: Session) -> None:
    """Wait for other transactions that look whether something is there before they add it."""
    session.execute(select(func.pg_advisory_xact_lock(AdvisoryLock.ADDING)))


def list_datasets(session: Session) -> list[RunDataset]:
    """Return the datasets a run may name, newest last."""
    rows = session.scalars(
        select(DatasetRow).where(DatasetRow.selectable).order_by(DatasetRow.created_at)
    )
    return [to_run_dataset(row) for row in rows]


def to_run_dataset(row: DatasetRow) -> RunDataset:
    return RunDataset(
        row.name, row.fingerprint, row.samples, row.malicious, row.source, row.licence
    )


def load_dataset(session: Session, name: str) -> Dataset | None:
    """Return the newest dataset of that name that a run may name, None when there is none."""
    row = session.scalar(
        select(DatasetRow)
        .where(DatasetRow.name == name, DatasetRow.selectable)
        .order_by(DatasetRow.created_at.desc(), DatasetRow.id.desc())
        .limit(1)
    )
    return None if row is None else _with_samples(session, row)


def load_run_dataset(session: Session, run_id: str, name: str) -> Dataset | None:
    """Return a dataset exactly as a run asks it; None when it asks none of that name."""
    row = session.scalar(
        select(DatasetRow)
        .join(RunDatasetRow, RunDatasetRow.dataset_id == DatasetRow.id)
        .where(RunDatasetRow.run_id == run_id, DatasetRow.name == name)
    )
    return None if row is None else _with_samples(session, row)


def _with_samples(session: Session, row: DatasetRow) -> Dataset:
    samples = session.scalars(
        select(SampleRow).where(SampleRow.dataset_id == row.id).order_by(SampleRow.key)
    )
    return Dataset(row.name, tuple(map(sample_of, samples)), row.source, row.licence)


def sample_of(row: Any) -> Sample:
    return Sample(row.command, TrueLabel(row.target), row.category, row.cluster, row.details)


def sample_keys(session: Session, dataset_id: int) -> dict[str, int]:
    """Return the store's key of every sample of a dataset, by sample id."""
    rows = session.execute(
        select(SampleRow.sample_id, SampleRow.key).where(SampleRow.dataset_id == dataset_id)
    )
    return {row.sample_id: row.key for row in rows}


_LIST_RUNS = statement("list_runs")


class Assignment(Struct, frozen=True):
    """A model of a run as a worker needs it, whatever the sample."""

    spec: ModelSpec
    prompt: Prompt
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
            parameters=None if run.parameters is None else to_builtins(run.parameters),
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
                "spec": to_builtins(spec),
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
    specs = [convert(model.spec, ModelSpec) for model in models]
    names = {dataset.id: dataset.name for dataset in datasets}
    prompt = None if row.prompt_id is None else session.get_one(PromptRow, row.prompt_id)
    return Run(
        run_id=row.id,
        created_at=row.created_at,
        name=row.name,
        origin=row.origin,
        package_version=row.package_version,
        prompt=None if prompt is None else _prompt(prompt),
        parameters=None if row.parameters is None else convert(row.parameters, CallParameters),
        epochs=row.epochs,
        datasets=tuple(map(to_run_dataset, datasets)),
        models=tuple(specs),
        datasets_by_model={
            spec.id: frozenset(names[key] for key in model.datasets if key in names)
            for spec, model in zip(specs, models, strict=True)
            if model.datasets is not None
        },
        held=None if row.held is None else RunPause(row.held),
        pruned=None if row.pruned_at is None else Pruned(row.pruned_completions, row.pruned_at),
        batched={
            # The clocks of the command and of the store may differ.
            spec.id: max(0.0, (model.batch_from - row.created_at).total_seconds())
            for spec, model in zip(specs, models, strict=True)
            if model.batch_from is not None
        },
    )


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
    parameters = convert(row.parameters, CallParameters)
    return Assignment(convert(row.spec, ModelSpec), _prompt(row.PromptRow), parameters)


def load_parameters(session: Session, run_ids: Sequence[str]) -> list[CallParameters | None]:
    """Return the parameters of runs, in their order; None for one that is gone or imported."""
    found = session.execute(
        select(RunRow.id, RunRow.parameters).where(
            RunRow.id.in_(run_ids), RunRow.parameters.is_not(None)
        )
    )
    parameters = {row.id: convert(row.parameters, CallParameters) for row in found}
    return [parameters.get(run_id) for run_id in run_ids]


def save_parameters(session: Session, run_id: str, parameters: CallParameters) -> None:
    changed = update(RunRow).where(RunRow.id == run_id)
    session.execute(changed.values(parameters=to_builtins(parameters)))


def list_runs(session: Session, limit: int) -> list[RunSummary]:
    rows = session.execute(_LIST_RUNS, {"limit": limit}).mappings()
    return [RunSummary(**{**row, "held": row["held"] and RunPause(row["held"])}) for row in rows]


LATEST = "latest"
"""Stands for the id of the newest run."""


def resolve_run_id(session: Session, text: str) -> str:
    """Return the run id that `latest`, a full id, a name or a unique prefix of an id stands for.

    They are tried in this order; a name counts only as a whole.
    """
    if text == LATEST:
        newest = session.scalar(select(RunRow.id).order_by(RunRow.created_at.desc()).limit(1))
        if newest is None:
            raise StoreError("there is no run yet: start one with `aegish-dist submit`")
        return newest
    for meaning in (
        RunRow.id == text,
        RunRow.name == text,
        RunRow.id.startswith(text, autoescape=True),
    ):
        found = session.scalars(select(RunRow.id).where(meaning).order_by(RunRow.id).limit(4)).all()
        if len(found) > 1 and text:
            named = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
            raise StoreError(f"run '{text}' is ambiguous: it could be {named}")
        if found and text:
            return found[0]
    raise StoreError(f"no run '{text}': `aegish-dist runs` lists them")


def require_free_name(session: Session, name: str, run_id: str | None = None) -> None:
    """Refuse a name that stands for another run already.

    Waits for other transactions that give names. An empty name is no name.

    Args:
        run_id: The run that it is for, if that is stored.

    Raises:
        ConfigError: Another run has that name, or it is the id of a run.
    """
    if not name:
        return
    one_at_a_time(session)
    taken = (RunRow.name == name) | (RunRow.id == name)
    holder = session.scalar(select(RunRow.id).where(taken, RunRow.id != (run_id or "")).limit(1))
    if holder is not None:
        raise ConfigError(f"run {holder} has the name '{name}' already: choose another one")


def rename_run(session: Session, run_id: str, name: str) -> None:
    """Give a run another name.

    Args:
        name: The new name; empty to have none.
    """
    require_free_name(session, name, run_id)
    session.execute(update(RunRow).where(RunRow.id == run_id).values(name=name))


def hold(session: Session, run_id: str, reason: RunPause) -> RunPause | None:
    """Have workers ask nothing more of a run; calls in flight finish and are stored.

    A paused run can be cancelled; one that is cancelled stays so.

    Returns:
        Why it was held before; None: it was not.
    """
    before = session.scalar(select(RunRow.held).where(RunRow.id == run_id).with_for_update())
    if before is None or (before == RunPause.PAUSED.value and reason is not RunPause.PAUSED):
        session.execute(update(RunRow).where(RunRow.id == run_id).values(held=reason.value))
    return None if before is None else RunPause(before)


def release(session: Session, run_id: str) -> None:
    """Have workers ask what a held run lacks."""
    session.execute(update(RunRow).where(RunRow.id == run_id).values(held=None))


def held_among(session: Session, run_ids: Collection[str]) -> frozenset[str]:
    held = select(RunRow.id).where(RunRow.id.in_(run_ids), RunRow.held.is_not(None))
    return frozenset(session.scalars(held))


def batched_among(session: Session, run_ids: Collection[str]) -> frozenset[tuple[str, str]]:
    """Return the models of some runs that are asked in batches now, by run id and model."""
    model = RunModelRow
    rows = session.execute(
        select(model.run_id, model.model).where(
            model.run_id.in_(run_ids), model.batch_from <= func.now()
        )
    )
    return frozenset((row.run_id, row.model) for row in rows)


def database_time(session: Session) -> datetime:
    return session.scalars(select(func.now())).one()

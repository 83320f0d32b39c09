"""Runs and their datasets in the store: what they ask of whom, and whether they are held.

The column `runs.held` alone holds a run. Every look-up of an item reads it, so no call begins of an
item that is looked up after its run was held.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from msgspec import Struct, convert, to_builtins
from msgspec.structs import asdict
from sqlalchemy import Row, Select, func, insert, select, update
from sqlalchemy.orm import Session

from aegish_dist.core.model import CallParameters, Destination, ModelSpec, WireFormat
from aegish_dist.core.run import (
    COMMAND_SLOT,
    Prompt,
    Pruned,
    Run,
    RunDataset,
    RunPause,
    RunSummary,
    new_run_id,
)
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.text import did_you_mean
from aegish_dist.db.engine import execute, reading
from aegish_dist.db.tables import (
    DATASETS,
    PROMPTS,
    RUN_DATASETS,
    RUN_MODELS,
    RUNS,
    SAMPLES,
    AdvisoryLock,
)
from aegish_dist.errors import ConfigError, StoreError, UnreadableRunError

INSERT_CHUNK = 1000
_OF_RUN_DATASET = [DATASETS.c[each] for each in RunDataset.__struct_fields__]
_OF_PROMPT = [PROMPTS.c[each] for each in Prompt.__struct_fields__]


def save_dataset(session: Session, dataset: Dataset, *, selectable: bool) -> int:
    """Store a dataset unless its content is there under this name already; return its key."""
    one_at_a_time(session)
    origin = {"source": dataset.source, "licence": dataset.licence, "selectable": selectable}
    key: int | None = session.scalar(
        select(DATASETS.c.id).where(
            DATASETS.c.name == dataset.name, DATASETS.c.fingerprint == dataset.fingerprint
        )
    )
    if key is None:
        added = insert(DATASETS).values(
            name=dataset.name,
            fingerprint=dataset.fingerprint,
            samples=len(dataset.samples),
            malicious=sum(s.target is TrueLabel.MALICIOUS for s in dataset.samples),
            **origin,
        )
        key = session.execute(added.returning(DATASETS.c.id)).scalar_one()
        for start in range(0, len(dataset.samples), INSERT_CHUNK):
            rows = [
                {
                    "dataset_id": key,
                    "sample_id": sample.sample_id,
                    "command": sample.command,
                    "target": sample.target.value,
                    "category": sample.category,
                    "cluster": sample.cluster,
                    "details": dict(sample.metadata),
                }
                for sample in dataset.samples[start : start + INSERT_CHUNK]
            ]
            session.execute(insert(SAMPLES), rows)
        return key
    stored = _with_samples(session, select(DATASETS).where(DATASETS.c.id == key))
    if stored is not None and {*stored.samples} != {*dataset.samples}:
        raise forged(f"dataset '{dataset.name}'")
    if selectable:
        # A name stands for the dataset imported last, even if that was there before.
        renewed = update(DATASETS).where(DATASETS.c.id == key)
        session.execute(renewed.values(created_at=func.clock_timestamp(), **origin))
    return key


def forged(what: str) -> StoreError:
    """Return the error for a row that was found by its identity and has another content."""
    return StoreError(f"{what} has another content in this store: trust no run that asks it there")


def one_at_a_time(session: Session) -> None:
    """Wait for other transactions that look whether something is there before they add it."""
    session.execute(select(func.pg_advisory_xact_lock(AdvisoryLock.ADDING)))


def list_datasets(session: Session) -> list[RunDataset]:
    """Return the datasets a run may name, newest last."""
    selectable = select(*_OF_RUN_DATASET).where(DATASETS.c.selectable)
    return [RunDataset(*row) for row in session.execute(selectable.order_by(DATASETS.c.created_at))]


def load_dataset(session: Session, name: str) -> Dataset | None:
    """Return the newest dataset of that name that a run may name, None when there is none."""
    newest = DATASETS.c.created_at.desc(), DATASETS.c.id.desc()
    found = select(DATASETS).where(DATASETS.c.name == name, DATASETS.c.selectable)
    return _with_samples(session, found.order_by(*newest).limit(1))


def load_run_dataset(session: Session, run_id: str, name: str) -> Dataset | None:
    """Return a dataset exactly as a run asks it; None when it asks none of that name."""
    of_run = select(DATASETS).join(RUN_DATASETS, RUN_DATASETS.c.dataset_id == DATASETS.c.id)
    return _with_samples(
        session, of_run.where(RUN_DATASETS.c.run_id == run_id, DATASETS.c.name == name)
    )


def _with_samples(session: Session, wanted: Select[Any]) -> Dataset | None:
    row = session.execute(wanted).one_or_none()
    if row is None:
        return None
    samples = session.execute(
        select(SAMPLES).where(SAMPLES.c.dataset_id == row.id).order_by(SAMPLES.c.key)
    )
    return Dataset(row.name, tuple(map(sample_of, samples)), row.source, row.licence)


def sample_of(row: Any) -> Sample:
    return Sample(row.command, TrueLabel(row.target), row.category, row.cluster, row.details)


def sample_keys(session: Session, dataset_id: int) -> dict[str, int]:
    """Return the store's key of every sample of a dataset, by sample id."""
    rows = session.execute(
        select(SAMPLES.c.sample_id, SAMPLES.c.key).where(SAMPLES.c.dataset_id == dataset_id)
    )
    return {row.sample_id: row.key for row in rows}


def spec_of(run_id: str, model: str, stored: object) -> ModelSpec:
    """Decode `run_models.spec`; `UnreadableRunError` for any value that is not of that model."""
    with reading(run_id):
        spec = convert(stored, ModelSpec)
        if spec.id != model:
            raise ValueError(f"what is stored of {model} is another model")
        return spec


def destination_of(run_id: str, model: str, stored: object) -> Destination:
    """Return where the calls of a model of a run go, or that its row does not say so."""
    try:
        return spec_of(run_id, model, stored).destination
    except UnreadableRunError as error:
        return Destination("", "", None, unreadable=str(error))


def _prompt_of(run_id: str, texts: Sequence[str]) -> Prompt:
    prompt = Prompt(*texts)
    with reading(run_id):
        if prompt.template.count(COMMAND_SLOT) != 1:
            raise ValueError(f"its prompt does not hold {COMMAND_SLOT} once")
    return prompt


def _parameters_of(run_id: str, stored: object) -> CallParameters | None:
    with reading(run_id):
        return convert(stored, CallParameters | None)


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
    """Store a run with its models; the rest is as of `save_models`."""
    session.execute(
        insert(RUNS).values(
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
        insert(RUN_DATASETS), [{"run_id": run.run_id, "dataset_id": d} for d in dataset_ids]
    )
    after_s, prompts = batch_after_s, run.prompts
    save_models(session, run.run_id, run.models, queues, batch_after_s=after_s, prompts=prompts)


def save_models(
    session: Session,
    run_id: str,
    specs: Sequence[ModelSpec],
    queues: Sequence[str],
    *,
    batch_after_s: float | None = None,
    prompts: Mapping[str, Prompt] | None = None,
) -> None:
    """Add models to a stored run.

    Args:
        queues: The queue of each model; none when nothing will be queued, as with an import.
        batch_after_s: Seconds after which those whose providers take batches are asked in them;
            None: never.
        prompts: By model, the prompt of one that is not asked with the run's.
    """
    keys = {model: _save_prompt(session, prompt) for model, prompt in (prompts or {}).items()}
    session.execute(
        insert(RUN_MODELS),
        [
            {
                "run_id": run_id,
                "model": spec.id,
                "prompt_id": keys.get(spec.id),
                "spec": to_builtins(spec),
                "queue": queues[index] if queues else "",
                "open": bool(queues),
            }
            for index, spec in enumerate(specs)
        ],
    )
    batched = [spec.id for spec in specs if spec.batch_share is not None]
    if batch_after_s is not None and batched:
        execute(session, "ask_in_batches", run=run_id, models=batched, after_s=batch_after_s)


def save_spec(session: Session, run_id: str, spec: ModelSpec) -> None:
    """Replace what a run keeps of a model."""
    of_model = RUN_MODELS.c.run_id == run_id, RUN_MODELS.c.model == spec.id
    session.execute(update(RUN_MODELS).where(*of_model).values(spec=to_builtins(spec)))


def asked_prompt(session: Session, name: str, fingerprint: str) -> Prompt | None:
    """Return a prompt that a run asks, by its name and the beginning of its fingerprint."""
    begins = PROMPTS.c.fingerprint.startswith(fingerprint, autoescape=True)
    found = session.execute(select(*_OF_PROMPT).where(PROMPTS.c.name == name, begins)).first()
    prompt = None if found is None else Prompt(*found)
    return prompt if prompt and prompt.fingerprint.startswith(fingerprint) else None


def _save_prompt(session: Session, prompt: Prompt) -> int:
    one_at_a_time(session)
    same = select(PROMPTS).where(
        PROMPTS.c.fingerprint == prompt.fingerprint, PROMPTS.c.name == prompt.name
    )
    found = session.execute(same).one_or_none()
    if found is None:
        added = insert(PROMPTS).values(fingerprint=prompt.fingerprint, **asdict(prompt))
        found = session.execute(added.returning(PROMPTS)).one()
    elif (found.system, found.template) != (prompt.system, prompt.template):
        raise forged(f"prompt '{prompt.name}'")
    key: int = found.id
    return key


def unused_run_id(session: Session, now: datetime) -> str:
    """Return an id for a new run; one in 32,768 of two drawn in the same second is taken."""
    while run_row(session, run_id := new_run_id(now)) is not None:
        pass
    return run_id


def run_row(session: Session, run_id: str) -> Row[Any] | None:
    return session.execute(select(RUNS).where(RUNS.c.id == run_id)).one_or_none()


def load_run(session: Session, run_id: str) -> Run:
    row = run_row(session, run_id)
    if row is None:
        raise StoreError(f"run {run_id} was deleted by another command")
    datasets = execute(session, "asked_datasets", run=run_id).all()
    models = execute(session, "asked_models", run=run_id).all()
    specs = [spec_of(run_id, model.model, model.spec) for model in models]
    names = {dataset.id: dataset.name for dataset in datasets}
    keys = {row.prompt_id, *(model.prompt_id for model in models)}
    asked = session.execute(select(PROMPTS.c.id, *_OF_PROMPT).where(PROMPTS.c.id.in_(keys)))
    prompts = {key: _prompt_of(run_id, texts) for key, *texts in asked}
    return Run(
        run_id=row.id,
        created_at=row.created_at,
        name=row.name,
        origin=row.origin,
        package_version=row.package_version,
        prompt=prompts.get(row.prompt_id),
        prompts={model.model: prompts[model.prompt_id] for model in models if model.prompt_id},
        parameters=_parameters_of(run_id, row.parameters),
        epochs=row.epochs,
        datasets=tuple(RunDataset(*dataset[1:]) for dataset in datasets),
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


def load_bare_run(session: Session, run_id: str) -> Run:
    """Return a run; one that cannot be read as if it were cancelled, with names alone."""
    with suppress(UnreadableRunError):
        return load_run(session, run_id)
    row = session.execute(select(RUNS).where(RUNS.c.id == run_id)).one()
    models = session.scalars(select(RUN_MODELS.c.model).where(RUN_MODELS.c.run_id == run_id))
    specs = tuple(ModelSpec(model, WireFormat.IMPORTED, model) for model in models)
    known = row.id, row.created_at, row.name, row.origin, row.package_version
    return Run(*known, None, None, 1, (), specs, held=RunPause.CANCELLED)


def load_assignment(session: Session, run_id: str, model: str) -> Assignment | None:
    """Return a model of a run as a worker needs it; None of an unknown model or an imported run."""
    row = execute(session, "assignment", run=run_id, model=model).one_or_none()
    if row is None:
        return None
    stored, parameters, *prompt = row
    with reading(run_id):
        return Assignment(
            spec_of(run_id, model, stored),
            _prompt_of(run_id, prompt),
            convert(parameters, CallParameters),
        )


def load_parameters(session: Session, run_ids: Sequence[str]) -> list[CallParameters | None]:
    """Return the parameters of runs, in their order; None for one that is gone or imported.

    Raises:
        UnreadableRunError: One of them has others than the product writes.
    """
    found = execute(session, "parameters_of_runs", runs=list(run_ids))
    parameters = {row.id: _parameters_of(row.id, row.parameters) for row in found}
    return [parameters.get(run_id) for run_id in run_ids]


def save_parameters(session: Session, run_id: str, parameters: CallParameters) -> None:
    changed = update(RUNS).where(RUNS.c.id == run_id)
    session.execute(changed.values(parameters=to_builtins(parameters)))


def list_runs(session: Session, limit: int | None) -> list[RunSummary]:
    rows = execute(session, "list_runs", limit=limit).mappings()
    return [RunSummary(**{**row, "held": row["held"] and RunPause(row["held"])}) for row in rows]


LATEST = "latest"  # stands for the id of the newest run


def resolve_run_id(session: Session, text: str) -> str:
    """Return the run id that `latest`, a full id, a name or a unique prefix of an id stands for.

    They are tried in this order; a name counts only as a whole.
    """
    if text == LATEST:
        newest: str | None = session.scalar(
            select(RUNS.c.id).order_by(RUNS.c.created_at.desc()).limit(1)
        )
        if newest is None:
            raise StoreError("there is no run yet: start one with `aegish-dist submit`")
        return newest
    for meaning in (
        RUNS.c.id == text,
        RUNS.c.name == text,
        RUNS.c.id.startswith(text, autoescape=True),
    ):
        found = session.scalars(select(RUNS.c.id).where(meaning).order_by(RUNS.c.id).limit(4)).all()
        if len(found) > 1 and text:
            named = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
            raise StoreError(f"run '{text}' is ambiguous: it could be {named}")
        if found and text:
            return str(found[0])
    names = (LATEST, *(name for _, name in newest_names(session) if name))
    hint = did_you_mean(text, names, "`aegish-dist runs` lists them")
    raise StoreError(f"no run '{text}': {hint}")


def newest_names(session: Session, limit: int = 1000) -> list[tuple[str, str]]:
    """Return id and name of the newest runs; an empty name is none."""
    newest = select(RUNS.c.id, RUNS.c.name).order_by(RUNS.c.created_at.desc()).limit(limit)
    return [(row.id, row.name) for row in session.execute(newest)]


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
    taken = (RUNS.c.name == name) | (RUNS.c.id == name)
    holder = session.scalar(select(RUNS.c.id).where(taken, RUNS.c.id != (run_id or "")).limit(1))
    if holder is not None:
        raise ConfigError(f"run {holder} has the name '{name}' already: choose another one")


def rename_run(session: Session, run_id: str, name: str) -> None:
    """Give a run another name; empty: none."""
    require_free_name(session, name, run_id)
    session.execute(update(RUNS).where(RUNS.c.id == run_id).values(name=name))


def hold(session: Session, run_id: str, reason: RunPause) -> RunPause | None:
    """Have workers ask nothing more of a run; calls in flight finish and are stored.

    A paused run can be cancelled; one that is cancelled stays so. Returns why it was held before,
    None: it was not.
    """
    before = session.scalar(select(RUNS.c.held).where(RUNS.c.id == run_id).with_for_update())
    if before is None or (before == RunPause.PAUSED.value and reason is not RunPause.PAUSED):
        session.execute(update(RUNS).where(RUNS.c.id == run_id).values(held=reason.value))
    return None if before is None else RunPause(before)


def release(session: Session, run_id: str) -> None:
    """Have workers ask what a held run lacks."""
    session.execute(update(RUNS).where(RUNS.c.id == run_id).values(held=None))


def held_among(session: Session, run_ids: Collection[str]) -> frozenset[str]:
    return frozenset(execute(session, "held_among", runs=list(run_ids)).scalars())


def batched_among(session: Session, run_ids: Collection[str]) -> frozenset[tuple[str, str]]:
    """Return the models of some runs that are asked in batches now, by run id and model."""
    rows = execute(session, "batched_among", runs=list(run_ids))
    return frozenset((row.run_id, row.model) for row in rows)


def database_time(session: Session) -> datetime:
    return session.scalars(select(func.now())).one()

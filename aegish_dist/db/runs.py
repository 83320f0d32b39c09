"""Runs and their datasets in the store: what they ask of whom, what counts, whether they are held.

The column `runs.held` alone holds a run. Every look-up of an item reads it, so no call begins of an
item that is looked up after its run was held.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from msgspec import Struct, convert, to_builtins
from msgspec.structs import asdict
from sqlalchemy import Row
from sqlalchemy.orm import Session

from aegish_dist.core.model import CallParameters, Destination, ModelSpec, WireFormat
from aegish_dist.core.output import with_kind
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
from aegish_dist.db.engine import execute, fragment, reading, statement
from aegish_dist.db.schema import AdvisoryLock
from aegish_dist.errors import ConfigError, StoreError, UnreadableRunError

INSERT_CHUNK = 1000


def save_dataset(session: Session, dataset: Dataset, *, selectable: bool) -> int:
    """Store a dataset unless its content is there under this name already; return its key."""
    one_at_a_time(session)
    identity = {"name": dataset.name, "fingerprint": dataset.fingerprint}
    origin = {"source": dataset.source, "licence": dataset.licence}
    key: int | None = execute(session, "find_dataset", **identity).scalar()
    if key is None:
        malicious = sum(s.target is TrueLabel.MALICIOUS for s in dataset.samples)
        numbers = {"samples": len(dataset.samples), "malicious": malicious}
        added = execute(
            session, "add_dataset", selectable=selectable, **identity, **origin, **numbers
        )
        key = int(added.scalar_one())
        add_samples(session, key, dataset.samples)
        return key
    if {*_samples_of(session, key)} != {*dataset.samples}:
        raise forged(f"dataset '{dataset.name}'")
    if selectable:
        # A name stands for the dataset imported last, even if that was there before.
        execute(session, "renew_dataset", id=key, **origin)
    return key


def add_samples(session: Session, dataset_id: int, samples: Sequence[Sample]) -> dict[str, int]:
    """Add samples to a stored dataset, in their order; return their keys by sample id."""
    keys: dict[str, int] = {}
    for start in range(0, len(samples), INSERT_CHUNK):
        rows = [
            {**asdict(sample), "metadata": dict(sample.metadata), "sample_id": sample.sample_id}
            for sample in samples[start : start + INSERT_CHUNK]
        ]
        added = execute(session, "add_samples", dataset=dataset_id, rows=json.dumps(rows))
        keys.update((row.sample_id, row.key) for row in added)
    return keys


def forged(what: str) -> StoreError:
    """Return the error for a row that was found by its identity and has another content."""
    return StoreError(f"{what} has another content in this store: trust no run that asks it there")


def one_at_a_time(session: Session) -> None:
    """Wait for other transactions that look whether something is there before they add it."""
    execute(session, "wait_for_lock", key=AdvisoryLock.ADDING)


def list_datasets(session: Session) -> list[RunDataset]:
    """Return the datasets a run may name, newest last."""
    return [RunDataset(*row) for row in execute(session, "selectable_datasets")]


def load_dataset(session: Session, name: str) -> Dataset | None:
    """Return the newest dataset of that name that a run may name, None when there is none."""
    return _dataset(session, "newest_dataset", name=name)


def load_run_dataset(session: Session, run_id: str, name: str) -> Dataset | None:
    """Return a dataset exactly as a run asks it; None when it asks none of that name."""
    return _dataset(session, "dataset_of_run", run=run_id, name=name)


def _dataset(session: Session, statement_name: str, **values: str) -> Dataset | None:
    row = execute(session, statement_name, **values).one_or_none()
    if row is None:
        return None
    return Dataset(row.name, _samples_of(session, row.id), row.source, row.licence)


def _samples_of(session: Session, dataset_id: int) -> tuple[Sample, ...]:
    return tuple(map(sample_of, execute(session, "samples_of_dataset", dataset=dataset_id)))


def sample_of(row: Any) -> Sample:
    return Sample(row.command, TrueLabel(row.target), row.category, row.cluster, row.details)


def sample_keys(session: Session, dataset_id: int) -> dict[str, int]:
    """Return the store's key of every sample of a dataset, by sample id."""
    rows = execute(session, "keys_of_samples", dataset=dataset_id)
    return {row.sample_id: row.key for row in rows}


def spec_of(run_id: str, model: str, stored: object) -> ModelSpec:
    """Decode `run_models.spec`; `UnreadableRunError` for any value that is not of that model."""
    with reading(run_id):
        if isinstance(stored, dict):
            stored = {**stored, "output": with_kind(stored.get("output"))}
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
    execute(
        session,
        "add_run",
        id=run.run_id,
        name=run.name,
        origin=run.origin,
        package_version=run.package_version,
        prompt_id=None if run.prompt is None else _save_prompt(session, run.prompt),
        parameters=None if run.parameters is None else json.dumps(to_builtins(run.parameters)),
        epochs=run.epochs,
        created_at=run.created_at,
        held=run.held,
        pruned_completions=0 if run.pruned is None else run.pruned.completions,
        pruned_at=None if run.pruned is None else run.pruned.at,
    )
    execute(session, "add_datasets", run=run.run_id, datasets=list(dataset_ids))
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
) -> list[int]:
    """Add models to a stored run; return their keys.

    Args:
        queues: The queue of each model; none when nothing will be queued, as with an import.
        batch_after_s: Seconds after which those whose providers take batches are asked in them;
            None: never.
        prompts: By model, the prompt of one that is not asked with the run's.
    """
    keys = {model: _save_prompt(session, prompt) for model, prompt in (prompts or {}).items()}
    rows = [
        {
            "model": spec.id,
            "prompt_id": keys.get(spec.id),
            "spec": to_builtins(spec),
            "queue": queues[index] if queues else "",
        }
        for index, spec in enumerate(specs)
    ]
    added = execute(session, "add_models", run=run_id, open=bool(queues), rows=json.dumps(rows))
    run_models = list(added.scalars())
    batched = [spec.id for spec in specs if spec.batch_share is not None]
    if batch_after_s is not None:
        execute(session, "ask_in_batches", run=run_id, models=batched, after_s=batch_after_s)
    return run_models


def save_spec(session: Session, run_id: str, spec: ModelSpec) -> None:
    """Replace what a run keeps of a model."""
    kept = json.dumps(to_builtins(spec))
    execute(session, "set_spec", run=run_id, model=spec.id, spec=kept)


def asked_prompt(session: Session, name: str, fingerprint: str) -> Prompt | None:
    """Return a prompt that a run asks, by its name and the beginning of its fingerprint."""
    row = execute(session, "pinned_prompt", name=name, fingerprint=fingerprint).one_or_none()
    if row is None:
        return None
    prompt = Prompt(*row)
    # A restored row may claim the fingerprint of another text.
    return prompt if prompt.fingerprint.startswith(fingerprint) else None


def _save_prompt(session: Session, prompt: Prompt) -> int:
    one_at_a_time(session)
    fingerprint = prompt.fingerprint
    found = execute(session, "find_prompt", name=prompt.name, fingerprint=fingerprint).one_or_none()
    if found is None:
        added = execute(session, "add_prompt", fingerprint=fingerprint, **asdict(prompt))
        return int(added.scalar_one())
    if (found.system, found.template) != (prompt.system, prompt.template):
        raise forged(f"prompt '{prompt.name}'")
    return int(found.id)


def unused_run_id(session: Session, now: datetime) -> str:
    """Return an id for a new run; one in 32,768 of two drawn in the same second is taken."""
    run_id = new_run_id(now)
    while run_row(session, run_id) is not None:
        run_id = new_run_id(now)
    return run_id


def run_row(session: Session, run_id: str) -> Row[Any] | None:
    return execute(session, "stored_run", run=run_id).one_or_none()


def load_run(session: Session, run_id: str) -> Run:
    row = run_row(session, run_id)
    if row is None:
        raise StoreError(f"run {run_id} was deleted by another command")
    datasets = execute(session, "asked_datasets", run=run_id).all()
    models = execute(session, "asked_models", run=run_id).all()
    asked = execute(session, "asked_prompts", run=run_id)
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
        models=tuple(spec_of(run_id, model.model, model.spec) for model in models),
        datasets_by_model={
            model.model: frozenset(model.dataset_names)
            for model in models
            if model.dataset_names is not None
        },
        held=None if row.held is None else RunPause(row.held),
        pruned=None if row.pruned_at is None else Pruned(row.pruned_completions, row.pruned_at),
        batched={
            model.model: model.batch_after_s for model in models if model.batch_after_s is not None
        },
    )


def load_bare_run(session: Session, run_id: str) -> Run:
    """Return a run; one that cannot be read as if it were cancelled, with names alone."""
    with suppress(UnreadableRunError):
        return load_run(session, run_id)
    row = execute(session, "stored_run", run=run_id).one()
    specs = []
    for model in execute(session, "asked_models", run=run_id):
        specs.append(ModelSpec(model.model, WireFormat.IMPORTED, model.model))
    return Run(
        run_id=row.id,
        created_at=row.created_at,
        name=row.name,
        origin=row.origin,
        package_version=row.package_version,
        prompt=None,
        parameters=None,
        epochs=1,
        datasets=(),
        models=tuple(specs),
        held=RunPause.CANCELLED,
    )


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
    stored = json.dumps(to_builtins(parameters))
    execute(session, "set_parameters", run=run_id, parameters=stored)


def list_runs(session: Session, limit: int | None) -> list[RunSummary]:
    rows = execute(session, "list_runs", limit=limit).mappings()
    return [convert(row, RunSummary) for row in rows]


LATEST = "latest"  # stands for the id of the newest run


def resolve_run_id(session: Session, text: str) -> str:
    """Return the run id that `latest`, a full id, a name or a unique prefix of an id stands for.

    They are tried in this order; a name counts only as a whole.
    """
    if text == LATEST:
        newest = newest_names(session, 1)
        if not newest:
            raise StoreError("there is no run yet: start one with `aegish-dist submit`")
        return newest[0][0]
    found = execute(session, "runs_meant", text=text).scalars().all() if text else ()
    if len(found) > 1:
        named = ", ".join(found[:3]) + (", ..." if len(found) > 3 else "")
        raise StoreError(f"run '{text}' is ambiguous: it could be {named}")
    if found:
        return str(found[0])
    names = (LATEST, *(name for _, name in newest_names(session) if name))
    hint = did_you_mean(text, names, "`aegish-dist runs` lists them")
    raise StoreError(f"no run '{text}': {hint}")


def newest_names(session: Session, limit: int = 1000) -> list[tuple[str, str]]:
    """Return id and name of the newest runs; an empty name is none."""
    return [(row.id, row.name) for row in execute(session, "newest_names", limit=limit)]


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
    holder = execute(session, "run_called", name=name, run=run_id or "").scalar()
    if holder is not None:
        raise ConfigError(f"run {holder} has the name '{name}' already: choose another one")


def rename_run(session: Session, run_id: str, name: str) -> None:
    """Give a run another name; empty: none."""
    require_free_name(session, name, run_id)
    execute(session, "rename_run", run=run_id, name=name)


def hold(session: Session, run_id: str, reason: RunPause) -> RunPause | None:
    """Have workers ask nothing more of a run; calls in flight finish and are stored.

    A paused run can be cancelled; one that is cancelled stays so. Returns why it was held before,
    None: it was not.
    """
    before = execute(session, "held_for_update", run=run_id).scalar()
    if before is None or (before == RunPause.PAUSED.value and reason is not RunPause.PAUSED):
        execute(session, "set_held", run=run_id, held=reason.value)
    return None if before is None else RunPause(before)


def release(session: Session, run_id: str) -> None:
    """Have workers ask what a held run lacks."""
    execute(session, "set_held", run=run_id, held=None)


def held_among(session: Session, run_ids: Collection[str]) -> frozenset[str]:
    return frozenset(execute(session, "held_among", runs=list(run_ids)).scalars())


def batched_among(session: Session, run_ids: Collection[str]) -> frozenset[tuple[str, str]]:
    """Return the models of some runs that are asked in batches now, by run id and model."""
    rows = execute(session, "batched_among", runs=list(run_ids))
    return frozenset((row.run_id, row.model) for row in rows)


def database_time(session: Session) -> datetime:
    now: datetime = execute(session, "database_time").scalar_one()
    return now


def prepare_counting(session: Session) -> None:
    """Plan the statements of this transaction for counting millions of verdicts."""
    execute(session, "settings_for_counting")


def prepare_listing(session: Session) -> None:
    """Plan the statements of this transaction for the verdicts about a few samples at a time."""
    prepare_counting(session)
    execute(session, "settings_for_listing")


class PerModel(Struct, frozen=True):
    """The models of a run, in a transaction."""

    session: Session
    run: Run
    keys: Mapping[str, int]
    # Whether any item was asked again. Nearly no run has such, and pays nothing for it.
    retried: bool

    @classmethod
    def of(cls, session: Session, run: Run) -> "PerModel":
        rows = execute(session, "asked_models", run=run.run_id)
        retried = execute(session, "any_retry", run=run.run_id).scalar()
        return cls(session, run, {row.model: row.id for row in rows}, bool(retried))

    @property
    def counts(self) -> str:
        """The fragment that chooses the verdicts that count: of each item the newest."""
        return fragment("newest" if self.retried else "every")

    def newest(self, name: str, model: str, **values: object) -> Sequence[Row[Any]]:
        """Ask a statement about the verdicts that count."""
        values["model"] = self.keys[model]
        return self.session.execute(statement(name, counts=self.counts), values).all()

    def superseded(self, name: str, model: str, **values: object) -> Sequence[Row[Any]]:
        """Ask it about all other verdicts; no row when no item was retried."""
        if not self.retried:
            return ()
        values["model"] = self.keys[model]
        return self.session.execute(statement(name, counts=fragment("superseded")), values).all()

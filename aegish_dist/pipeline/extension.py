"""Additions to a run: looked up, checked and estimated; nothing is stored yet."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from aegish_dist.core.model import CallParameters, ModelSpec
from aegish_dist.core.prompt import Prompt
from aegish_dist.core.run import Run
from aegish_dist.core.sample import Dataset
from aegish_dist.db.datasets import load_run_dataset
from aegish_dist.db.engine import transaction
from aegish_dist.errors import ConfigError, DatasetError, StoreError
from aegish_dist.models import RunEstimate, estimate
from aegish_dist.pipeline.batch_prices import at_batch_price
from aegish_dist.pipeline.datasets import choose_dataset
from aegish_dist.pipeline.plan import Request, Submission, cost_summary, with_higher_caps
from aegish_dist.pipeline.runs import load_submitted_run, require_not_held

if TYPE_CHECKING:
    from aegish_dist.pipeline.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Addition:
    """More of a run in the words of a user: nothing of it is looked up yet."""

    models: tuple[str, ...] = ()
    epochs: int | None = None
    """Times that every sample is asked from now on; None: as often as before."""
    datasets: tuple[str, ...] = ()
    run_cap: Decimal | None = None
    """Cap on the cost of the run from now on, in USD; None leaves it as it is."""
    model_cap: Decimal | None = None
    keys_on_workers: bool = False
    """Whether the API keys are elsewhere, so that a missing one stops nothing here."""
    preflight: bool = True
    """Whether each model that is asked more is asked one harmless question beforehand."""
    dry_run: bool = False
    wait: bool = False

    def request(self, parameters: CallParameters) -> Request:
        """Return what the checks before a run need to know."""
        return Request(
            self.models,
            parameters,
            keys_on_workers=self.keys_on_workers,
            preflight=self.preflight,
            dry_run=self.dry_run,
        )


@dataclass(frozen=True, slots=True)
class Extension:
    """More of a run, complete and checked, before anything is stored or spent."""

    run: Run
    prompt: Prompt
    parameters: CallParameters
    """Of every call, with the caps that hold from now on."""
    models: tuple[ModelSpec, ...]
    datasets: tuple[Dataset, ...]
    epochs: int
    estimate: RunEstimate
    """Tokens and cost of what is new, by model that is asked more."""

    @property
    def asked(self) -> tuple[ModelSpec, ...]:
        """The models that are asked more."""
        more = {each.model for each in self.estimate.models if each.calls}
        return tuple(spec for spec in (*self.run.models, *self.models) if spec.id in more)

    def checked_as(self) -> Submission:
        """Return the calls to come as the checks before a run need them."""
        return Submission(self.asked, self.datasets, self.prompt, self.parameters, self.epochs)


def plan_extension(workspace: Workspace, run_id: str, addition: Addition) -> Extension:
    """Look up all that an addition names, and leave out what the run asks already.

    Raises:
        ConfigError: Nothing of it is new, it names fewer epochs, or a cap cannot be raised so.
        DatasetError: A dataset is unknown, or the run asks another one of its name.
        StoreError: The run was imported or is held.
    """
    run = load_submitted_run(workspace.engine, run_id)
    require_not_held(run)
    epochs = _epochs(run, addition.epochs)
    models = _new_models(workspace, run, addition)
    datasets = _new_datasets(workspace.engine, run, addition)
    if not models and not datasets and epochs == run.epochs:
        raise ConfigError(f"run {run_id} asks all of that already: there is nothing to add")
    prompt, parameters = _texts(run)
    return Extension(
        run,
        prompt,
        with_higher_caps(parameters, addition.run_cap, addition.model_cap),
        models,
        datasets,
        epochs,
        _estimate(workspace.engine, run, models, datasets, epochs),
    )


def _texts(run: Run) -> tuple[Prompt, CallParameters]:
    """Return what is sent with each call of a run that was submitted."""
    if run.prompt is None or run.parameters is None:
        raise StoreError(f"run {run.run_id} was imported: its models cannot be asked from here")
    return run.prompt, run.parameters


def _epochs(run: Run, wanted: int | None) -> int:
    if wanted is None:
        return run.epochs
    if wanted < run.epochs:
        raise ConfigError(
            f"run {run.run_id} asks every sample {run.epochs} times already: --epochs is the new"
            " total, and verdicts are not taken away"
        )
    return wanted


def _new_models(workspace: Workspace, run: Run, addition: Addition) -> tuple[ModelSpec, ...]:
    if not addition.models:
        return ()
    known = {spec.id for spec in run.models}
    found = workspace.catalog.resolve(addition.models, workspace.environ)
    return tuple(spec for spec in found if spec.id not in known)


def _new_datasets(engine: Engine, run: Run, addition: Addition) -> tuple[Dataset, ...]:
    known = {dataset.name: dataset for dataset in run.datasets}
    found = [choose_dataset(engine, name) for name in dict.fromkeys(addition.datasets)]
    for dataset in found:
        stored = known.get(dataset.name)
        if stored is not None and stored.fingerprint != dataset.fingerprint:
            raise DatasetError(
                f"run {run.run_id} asks other samples under this name ({stored.samples:,}, not"
                f" {len(dataset.samples):,}): submit a run of its own for these",
                source=dataset.name,
            )
    return tuple({each.name: each for each in found if each.name not in known}.values())


def _estimate(
    engine: Engine,
    run: Run,
    models: tuple[ModelSpec, ...],
    datasets: tuple[Dataset, ...],
    epochs: int,
) -> RunEstimate:
    with transaction(engine) as session:
        found = [load_run_dataset(session, run.run_id, each.name) for each in run.datasets]
    before = [len(sample.command) for each in found if each for sample in each.samples]
    added = [len(sample.command) for each in datasets for sample in each.samples]
    prompt, _ = _texts(run)
    if run.batched:  # new models are asked as the others are, where their providers allow it
        models = at_batch_price(models)
    old = [_as_asked(run, spec) for spec in run.models]
    of_old = estimate(old, prompt, added * epochs + before * (epochs - run.epochs))
    of_new = estimate(models, prompt, (before + added) * epochs)
    return RunEstimate(tuple(each for each in (*of_old.models, *of_new.models) if each.calls))


def _as_asked(run: Run, spec: ModelSpec) -> ModelSpec:
    return at_batch_price([spec])[0] if spec.id in run.batched else spec


def extension_summary(extension: Extension, calls: int) -> tuple[str, str]:
    """Return two lines about the size of an extension and its expected cost and duration.

    Args:
        calls: Calls that a worker process has in flight at most.
    """
    run, estimated = extension.run, extension.estimate
    samples = sum(len(dataset.samples) for dataset in extension.datasets)
    size = (
        f"{estimated.calls:,} calls more: {len(run.models)} + {len(extension.models)} models,"
        f" {run.samples:,} + {samples:,} samples,"
        f" {run.epochs} + {extension.epochs - run.epochs} epochs"
    )
    return size, cost_summary(estimated, extension.asked, calls)

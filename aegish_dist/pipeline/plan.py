"""Planning a run, or more of one: what is asked of whom, and at what price.

Everything that a user names is looked up and checked; nothing is stored or spent yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from aegish_dist.core.batches import BATCH_WINDOW_S
from aegish_dist.core.model import CallParameters, ModelSpec
from aegish_dist.core.run import Prompt, Run
from aegish_dist.core.sample import Dataset
from aegish_dist.core.text import counted
from aegish_dist.datasets.bundled import bundled_names
from aegish_dist.db.datasets import load_run_dataset
from aegish_dist.db.engine import transaction
from aegish_dist.errors import ConfigError, DatasetError, StoreError
from aegish_dist.models import RunEstimate
from aegish_dist.models.prices import estimate
from aegish_dist.pipeline.datasets import choose_dataset, narrow, require_categories
from aegish_dist.pipeline.runs import (
    checked_name,
    load_submitted_run,
    require_free,
    require_not_held,
)
from aegish_dist.prompts.loading import load_prompt
from aegish_dist.report.run_words import HOUR_S, duration

if TYPE_CHECKING:
    from aegish_dist.pipeline.workspace import Workspace


NAMED = 3
"""Models that a message names; the others are counted."""


def takes_batches(spec: ModelSpec) -> bool:
    """Return whether a model is asked in batches where a run wants that."""
    return spec.batch_share is not None


def require_batches(models: Sequence[ModelSpec]) -> None:
    """Refuse models whose providers take no batches; baselines answer here and at once.

    Raises:
        ConfigError: There is such a model, or none that is asked in batches.
    """
    others = [spec.id for spec in models if spec.wire.http and not takes_batches(spec)]
    if others:
        named = ", ".join(others[:NAMED])
        more = f" and {counted(len(others) - NAMED, 'other')}" if len(others) > NAMED else ""
        raise ConfigError(
            f"{named}{more} cannot be asked in batches: by the catalog their providers take none."
            " Leave them out, or submit them without --batch; if they do take batches, set"
            " batch_share in your catalog"
        )
    if not any(map(takes_batches, models)):
        raise ConfigError(
            "none of these models is asked over the network, so there is nothing to put into"
            " batches: leave out --batch"
        )


def at_batch_price(models: Sequence[ModelSpec]) -> tuple[ModelSpec, ...]:
    """Return the models with the prices that they have in batches, where they are asked so."""
    return tuple(
        replace(spec, price=spec.batch_price) if takes_batches(spec) else spec for spec in models
    )


def batch_line(
    models: Sequence[ModelSpec], after_s: float, live: RunEstimate, batched: RunEstimate
) -> str:
    """Return a line about which calls are batched, when they are answered, and what that saves.

    Args:
        live: The expected cost if all calls are made live.
        batched: The same if all that can be is asked in batches.
    """
    here = [spec.id for spec in models if not takes_batches(spec)]
    apart = f" ({', '.join(here)}: live)" if here else ""
    window = f"each answered within {BATCH_WINDOW_S // HOUR_S} hours{apart}"
    if after_s <= 0:
        return f"asked in batches, {window}; as single calls: ${live.known_cost_usd:.2f}"
    return (
        f"asked live for {duration(after_s)}, the rest in batches, {window}; all in batches:"
        f" ${batched.known_cost_usd:.2f}"
    )


ASSUMED_CALL_S = 2.0
"""Seconds that a call is taken to last, for the least duration of a run."""


@dataclass(frozen=True, slots=True)
class Request:
    """A run, or more of one, in the words of a user: nothing of it is looked up yet."""

    models: tuple[str, ...] = ()
    parameters: CallParameters = field(default_factory=CallParameters)
    """Sent with each call, and the caps on the cost; of more of a run, only higher caps count."""
    datasets: tuple[str, ...] = ()
    """Names, `NAME@RUN` for those of a run; the bundled ones when empty."""
    categories: tuple[str, ...] = ()
    """Categories of malicious samples to keep; all when empty."""
    limit: int | None = None
    """Samples of each dataset at most; None for all."""
    epochs: int | None = None
    """Times that every sample is asked; None: once, or as often as the run has asked it."""
    prompt: str = "guard"
    """Name of a bundled prompt, or a file."""
    cot: bool = False
    """Whether the prompt asks for step-by-step reasoning first."""
    name: str = ""
    """Name of the run; may be empty."""
    keys_on_workers: bool = False
    """Whether the API keys are elsewhere, so that a missing one stops nothing here."""
    preflight: bool = True
    """Whether each model is asked one harmless question beforehand."""
    dry_run: bool = False
    wait: bool = False
    """Whether to wait for workers elsewhere to end the run."""
    batch_after_s: float | None = None
    """Seconds after which all that is not answered yet is asked in batches, at their price; 0 for
    all of it, None for nothing."""


@dataclass(frozen=True, slots=True)
class RunPlan:
    """A run, or more of one, complete and checked before anything is stored or spent."""

    models: tuple[ModelSpec, ...]
    """Models of a new run; of an extension, only the models that are added."""
    datasets: tuple[Dataset, ...]
    prompt: Prompt
    parameters: CallParameters
    epochs: int
    """Times that every sample is asked, at least 1."""
    name: str = ""
    """Name of the run; may be empty."""
    batch_after_s: float | None = None
    """Seconds after which the run is asked in batches; None: never."""
    base_run: Run | None = None
    """The run that is extended; None for a new run."""
    base_lengths: Sequence[int] = ()
    """Length in characters of each command that `base_run` asks already."""

    @property
    def asked(self) -> tuple[ModelSpec, ...]:
        if self.base_run is None:
            return self.models
        more = {each.model for each in self.estimate().models if each.calls}
        return tuple(spec for spec in (*self.base_run.models, *self.models) if spec.id in more)

    @property
    def samples(self) -> int:
        """Samples over all datasets."""
        return sum(len(dataset.samples) for dataset in self.datasets)

    @property
    def tasks(self) -> int:
        """Items of a new run that will be enqueued."""
        return len(self.models) * self.epochs * self.samples

    def estimate(self) -> RunEstimate:
        """Return the expected tokens and cost; for a while live, then in batches: at most."""
        return self._estimate(in_batches=self.batch_after_s == 0)

    def batch_estimate(self) -> RunEstimate | None:
        """Return the same if all that can be is asked in batches; None of a run that is not."""
        return None if self.batch_after_s is None else self._estimate(in_batches=True)

    def batch_note(self) -> str | None:
        """Return a line about its batches and what they save; None without any."""
        if self.batch_after_s is None:
            return None
        live, batched = (self._estimate(in_batches=each) for each in (False, True))
        return batch_line(self.models, self.batch_after_s, live, batched)

    def _estimate(self, *, in_batches: bool) -> RunEstimate:
        lengths = [len(sample.command) for d in self.datasets for sample in d.samples]
        run, before = self.base_run, list(self.base_lengths)
        if run is None:
            models = at_batch_price(self.models) if in_batches else self.models
            return estimate(models, self.prompt, lengths, self.epochs)
        # New models are asked as the others are, where their providers allow it.
        models = at_batch_price(self.models) if run.batched else self.models
        old = [at_batch_price([spec])[0] if spec.id in run.batched else spec for spec in run.models]
        again = lengths * self.epochs + before * (self.epochs - run.epochs)
        of_old = estimate(old, self.prompt, again)
        of_new = estimate(models, self.prompt, (before + lengths) * self.epochs)
        return RunEstimate(tuple(each for each in (*of_old.models, *of_new.models) if each.calls))


def plan_run(workspace: Workspace, request: Request) -> RunPlan:
    """Look up all that a request names.

    Raises:
        ConfigError: The name is taken, or none; or a model that is to be asked in batches cannot.
        DatasetError: A dataset or a category is unknown, nothing is left of one, or the prompt
            cannot be read.
    """
    name = checked_name(request.name)
    require_free(workspace.engine, name)
    models = workspace.catalog.resolve(request.models, workspace.environ)
    if request.batch_after_s is not None:
        require_batches(models)
    prompt = load_prompt(request.prompt, cot=request.cot)
    names = dict.fromkeys(request.datasets or bundled_names())
    chosen = [choose_dataset(workspace.engine, name) for name in names]
    require_categories(chosen, request.categories)
    datasets = tuple(narrow(each, request.categories, request.limit) for each in chosen)
    return RunPlan(
        models,
        datasets,
        prompt,
        request.parameters,
        1 if request.epochs is None else request.epochs,
        name,
        request.batch_after_s,
    )


def require_prices(estimated: RunEstimate, parameters: CallParameters) -> None:
    """Refuse a cap on the cost of models whose price is unknown."""
    capped = parameters.max_cost_usd or parameters.max_cost_per_model_usd
    if estimated.unpriced and capped:
        raise ConfigError(
            f"the cost of {', '.join(estimated.unpriced)} cannot be bounded, its price is unknown:"
            " give it one in your catalog, or leave it out"
        )


def summary(plan: RunPlan, estimated: RunEstimate, calls: int) -> list[str]:
    """Return lines about the size of a run, or of an extension, its expected cost and duration.

    Args:
        calls: Calls that a worker process has in flight at most.
    """
    if plan.base_run is not None:
        return [
            _extension_size(plan, plan.base_run, estimated),
            cost_summary(estimated, plan.asked, calls),
        ]
    size = (
        f"{counted(plan.tasks, 'call')}: {counted(len(plan.models), 'model')} x"
        f" {counted(plan.samples, 'sample')} x {counted(plan.epochs, 'epoch')}"
    )
    timed = [m for m in plan.models if plan.batch_after_s != 0 or not takes_batches(m)]
    lines = [size, cost_summary(estimated, timed, calls)]
    if (batches := plan.batch_note()) is not None:
        lines.append(batches)
    return lines


def cost_summary(estimated: RunEstimate, models: Sequence[ModelSpec], calls: int) -> str:
    """Return a line about the expected tokens, cost and least duration of calls.

    Args:
        models: The models that are called one by one; those of batches are not timed.
        calls: Calls that a worker process has in flight at most.
    """
    tokens_and_cost = (
        f"estimated: {estimated.input_tokens:,} input and {estimated.output_tokens:,} output"
        f" tokens, ${estimated.known_cost_usd:.2f}{_if_cached(estimated)}{_unpriced(estimated)}"
    )
    if not models:
        return tokens_and_cost
    shortest = _shortest_s(estimated, models, calls)
    return f"{tokens_and_cost}, at least {shortest:.0f} s with one worker process"


def _shortest_s(estimated: RunEstimate, models: Sequence[ModelSpec], calls: int) -> float:
    """Return the least duration with one worker process, in seconds."""
    of = {each.model: each.calls for each in estimated.models}
    slowest = max(of[spec.id] / min(spec.max_in_flight or calls, calls) for spec in models)
    return max(slowest, sum(of[spec.id] for spec in models) / calls) * ASSUMED_CALL_S


def _if_cached(estimated: RunEstimate) -> str:
    if estimated.cached_cost_usd == estimated.known_cost_usd:
        return ""
    return f" (${estimated.cached_cost_usd:.2f} if the prompt is cached)"


def _unpriced(estimated: RunEstimate) -> str:
    return f" plus {', '.join(estimated.unpriced)} at unknown price" if estimated.unpriced else ""


def with_higher_caps(
    parameters: CallParameters, run_cap: Decimal | None, model_cap: Decimal | None
) -> CallParameters:
    """Return parameters with higher caps.

    Raises:
        ConfigError: They hold no such cap, or one that is as high.
    """
    return replace(
        parameters,
        max_cost_usd=_higher("--max-cost", parameters.max_cost_usd, run_cap),
        max_cost_per_model_usd=_higher(
            "--max-cost-per-model", parameters.max_cost_per_model_usd, model_cap
        ),
    )


def _higher(option: str, cap: Decimal | None, wanted: Decimal | None) -> Decimal | None:
    if wanted is None:
        return cap
    if cap is None:
        raise ConfigError(f"the run was submitted without {option}: nothing holds it back")
    if wanted <= cap:
        raise ConfigError(f"the run's {option} is ${cap:f} already: name a higher one")
    return wanted


def plan_extension(workspace: Workspace, run_id: str, request: Request) -> RunPlan:
    """Look up all that is added, and leave out what the run asks already.

    Raises:
        ConfigError: Nothing of it is new, it names fewer epochs, or a cap cannot be raised so.
        DatasetError: A dataset is unknown, or the run asks another one of its name.
        StoreError: The run was imported or is held.
    """
    run = load_submitted_run(workspace.engine, run_id)
    require_not_held(run)
    epochs = _epochs(run, request.epochs)
    models = _new_models(workspace, run, request.models)
    datasets = _new_datasets(workspace.engine, run, request.datasets)
    if not models and not datasets and epochs == run.epochs:
        raise ConfigError(f"run {run_id} asks all of that already: there is nothing to add")
    prompt, parameters = _texts(run)
    caps = request.parameters
    with transaction(workspace.engine) as session:
        found = [load_run_dataset(session, run_id, each.name) for each in run.datasets]
    return RunPlan(
        models,
        datasets,
        prompt,
        with_higher_caps(parameters, caps.max_cost_usd, caps.max_cost_per_model_usd),
        epochs,
        base_run=run,
        base_lengths=[len(sample.command) for each in found if each for sample in each.samples],
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


def _new_models(workspace: Workspace, run: Run, named: Sequence[str]) -> tuple[ModelSpec, ...]:
    if not named:
        return ()
    known = {spec.id for spec in run.models}
    found = workspace.catalog.resolve(named, workspace.environ)
    return tuple(spec for spec in found if spec.id not in known)


def _new_datasets(engine: Engine, run: Run, named: Sequence[str]) -> tuple[Dataset, ...]:
    known = {dataset.name: dataset for dataset in run.datasets}
    found = [choose_dataset(engine, name) for name in dict.fromkeys(named)]
    for dataset in found:
        stored = known.get(dataset.name)
        if stored is not None and stored.fingerprint != dataset.fingerprint:
            raise DatasetError(
                f"run {run.run_id} asks other samples under this name ({stored.samples:,}, not"
                f" {len(dataset.samples):,}): submit a run of its own for these",
                source=dataset.name,
            )
    return tuple({each.name: each for each in found if each.name not in known}.values())


def _extension_size(plan: RunPlan, run: Run, estimated: RunEstimate) -> str:
    return (
        f"{estimated.calls:,} calls more: {len(run.models)} + {len(plan.models)} models,"
        f" {run.samples:,} + {plan.samples:,} samples,"
        f" {run.epochs} + {plan.epochs - run.epochs} epochs"
    )

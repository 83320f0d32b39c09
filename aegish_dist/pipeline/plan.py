"""Planning a run, or more of one: what is asked of whom, and at what price.

Everything that a user names is looked up and checked; nothing is stored or spent yet.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal

from msgspec import Struct, field
from msgspec.structs import replace
from sqlalchemy import Engine

from aegish_dist.core.batches import BATCH_WINDOW_S
from aegish_dist.core.model import ARM_MARK, CallParameters, ModelSpec, base_of
from aegish_dist.core.run import COT, Prompt, Run
from aegish_dist.core.sample import Dataset, TrueLabel
from aegish_dist.core.text import counted
from aegish_dist.datasets.bundled import DEFAULT_NAMES
from aegish_dist.db.engine import in_transaction, transaction
from aegish_dist.db.runs import asked_prompt, load_run_dataset, require_free_name
from aegish_dist.errors import ConfigError, DatasetError
from aegish_dist.models.catalog import Catalog, Environ, require_few
from aegish_dist.models.entries import is_arm
from aegish_dist.models.prices import RunEstimate, estimate
from aegish_dist.pipeline.datasets import choose_dataset, narrow, require_categories
from aegish_dist.pipeline.runs import checked_name, require_not_held
from aegish_dist.pipeline.store import Store
from aegish_dist.prompts.loading import bundled_prompts, load_prompt
from aegish_dist.report.run_words import HOUR_S, duration

ASSUMED_CALL_S = 2.0  # seconds that a call is taken to last, for the least duration of a run
NAMED = 3


class Request(Struct, frozen=True):
    """A run, or more of one, in the words of a user: nothing of it is looked up yet."""

    models: Sequence[str] = ()
    parameters: CallParameters = field(default_factory=CallParameters)
    """Sent with each call, and the caps on the cost; of more of a run, only higher caps count."""
    datasets: Sequence[str] = ()
    """Names, `NAME@RUN` for those of a run; the usual bundled ones when empty."""
    categories: Sequence[str] = ()
    """Categories of malicious samples to keep; all when empty."""
    limit: int | None = None
    epochs: int | None = None
    """Times that every sample is asked; None: once, or as often as the run has asked it."""
    prompt: str | Sequence[str] = "guard"
    """A prompt, or several: each chat model then becomes a contender per prompt."""
    name: str = ""
    keys_on_workers: bool = False
    """Whether the API keys are elsewhere, so that a missing one stops nothing here."""
    preflight: bool = True
    dry_run: bool = False
    wait: bool = False
    batch_after_s: float | None = None
    """Seconds after which all that is not answered yet is asked in batches, at their price; 0 for
    all of it, None for nothing."""


class RunPlan(Struct, frozen=True):
    """A run, or more of one, complete and checked before anything is stored or spent."""

    models: tuple[ModelSpec, ...]
    """Models of a new run; of an extension, only the models that are added."""
    datasets: tuple[Dataset, ...]
    prompt: Prompt
    parameters: CallParameters
    epochs: int
    name: str = ""
    batch_after_s: float | None = None
    """Seconds after which the run is asked in batches; None: never."""
    base_run: Run | None = None  # the run that is extended; None for a new run
    base_lengths: Sequence[int] = ()
    """Length in characters of each command that `base_run` asks already."""
    prompts: Mapping[str, Prompt] = field(default_factory=dict)
    """Prompts of models that are not asked with `prompt`, by model."""

    def prompt_of(self, model: str) -> Prompt:
        return self.prompts.get(model, self.prompt)

    @property
    def asked(self) -> tuple[ModelSpec, ...]:
        if self.base_run is None:
            return self.models
        called = {model.model for model in self.estimate().models if model.calls}
        models = (*self.base_run.models, *self.models)
        return tuple(spec for spec in models if spec.id in called)

    @property
    def samples(self) -> int:
        return sum(len(dataset.samples) for dataset in self.datasets)

    @property
    def tasks(self) -> int:
        """Items of a new run that will be enqueued."""
        return len(self.models) * self.epochs * self.samples

    def estimate(self, *, in_batches: bool | None = None) -> RunEstimate:
        """Return the expected tokens and cost.

        Args:
            in_batches: Whether all that can be is asked in batches; None: as planned, but what is
                asked live for a while costs as if all of it were, which is the most that it may.
        """
        lengths = _lengths(self.datasets)
        run = self.base_run
        if run is None:
            batched = self.batch_after_s == 0 if in_batches is None else in_batches
            models = _at_batch_price(self.models) if batched else self.models
            return estimate(models, self.prompt_of, lengths, self.epochs)
        old = list(run.models)
        for place, spec in enumerate(run.models):
            if spec.id in run.batched:
                old[place : place + 1] = _at_batch_price([spec])
        # New models are asked as the others are, where their providers allow it.
        new = _at_batch_price(self.models) if run.batched else self.models
        before = list(self.base_lengths)
        # The models of the run have been asked the old commands already, in its epochs.
        asked_again = lengths * self.epochs + before * (self.epochs - run.epochs)
        asked_anew = (before + lengths) * self.epochs
        of_old = estimate(old, self.prompt_of, asked_again).models
        of_new = estimate(new, self.prompt_of, asked_anew).models
        return RunEstimate(tuple(model for model in (*of_old, *of_new) if model.calls))


def _lengths(datasets: Iterable[Dataset]) -> list[int]:
    """Return the characters of each command."""
    lengths = []
    for dataset in datasets:
        lengths += [len(sample.command) for sample in dataset.samples]
    return lengths


def takes_batches(spec: ModelSpec) -> bool:
    """Return whether a model is asked in batches where a run wants that."""
    return spec.batch_share is not None


def _at_batch_price(models: Sequence[ModelSpec]) -> list[ModelSpec]:
    """Return the models with the prices that they have in batches, where they are asked so."""
    return [
        replace(spec, price=spec.batch_price) if takes_batches(spec) else spec for spec in models
    ]


def plan_run(store: Store, catalog: Catalog, environ: Environ, request: Request) -> RunPlan:
    """Look up all that a request names.

    Raises:
        ConfigError: The name is taken, or none; or a model that is to be asked in batches cannot.
        DatasetError: A dataset or a category is unknown, nothing is left of one, or the prompt
            cannot be read.
    """
    name = checked_name(request.name)
    if name:
        in_transaction(store.engine, require_free_name, name)
    named = request.prompt
    if isinstance(named, str):
        named = [named]
    arms = choose_prompts(store, named)
    models, prompts = contenders(catalog, environ, request.models, arms)
    if request.batch_after_s is not None:
        _require_batches(models)
    used = [arm for arm in arms if arm in prompts.values()]
    prompt = used[0] if used else arms[0]
    names = dict.fromkeys(request.datasets or DEFAULT_NAMES)
    datasets = [choose_dataset(store.engine, name) for name in names]
    require_categories(datasets, request.categories)
    return RunPlan(
        models=models,
        datasets=tuple(narrow(each, request.categories, request.limit) for each in datasets),
        prompt=prompt,
        parameters=request.parameters,
        epochs=1 if request.epochs is None else request.epochs,
        name=name,
        batch_after_s=request.batch_after_s,
        prompts={model: own for model, own in prompts.items() if own != prompt},
    )


def choose_prompts(store: Store, named: Sequence[str]) -> list[Prompt]:
    return list(dict.fromkeys(choose_prompt(store, text) for text in named))


def choose_prompt(store: Store, text: str) -> Prompt:
    """Return a prompt by what users type: a bundled one, a file, or `NAME@FINGERPRINT`.

    With a fingerprint, one that a run has asked here will do, and no other text. A ConfigError says
    that there is none, a DatasetError that the file cannot be used.
    """
    pinned = re.fullmatch(r"(.+)@([0-9a-f]{8,64})", text)
    if pinned is None or os.path.exists(text):
        return load_prompt(text)
    name, fingerprint = pinned.groups()
    here = None
    with suppress(ConfigError):
        here = load_prompt(name)
        if here.fingerprint.startswith(fingerprint):
            return here
    stored = in_transaction(store.engine, asked_prompt, name, fingerprint)
    if stored is not None:
        return stored
    if here is None:
        raise ConfigError(
            f"prompt '{name}' of fingerprint {fingerprint} is not in this store: name its file, as"
            f" PATH@{fingerprint}"
        )
    raise ConfigError(
        f"prompt '{name}' has the fingerprint {here.fingerprint[:12]} here, not {fingerprint}: name"
        f" the file with that text, or leave out @{fingerprint} to ask with the text here"
    )


def contenders(
    catalog: Catalog,
    environ: Environ,
    selection: str | Sequence[str],
    prompts: Sequence[Prompt],
) -> tuple[tuple[ModelSpec, ...], dict[str, Prompt]]:
    """Return the models of a selection, and the prompt of each that reads one.

    Of several prompts each is an arm of every model that has none of its own and names none.

    Raises:
        CatalogError: A model or one of its arms is unknown, or there are too many.
        ConfigError: A prompt cannot be an arm, or a model reads none.
    """
    by_name = {prompt.name: prompt for prompt in prompts}
    if len(by_name) < len(prompts):
        raise ConfigError("two prompts have one name: rename the file of one of them")
    asked: dict[str, ModelSpec] = {}
    read: dict[str, Prompt | None] = {}
    for spec in catalog.resolve(selection, environ, prompts=tuple(by_name)):
        for model, prompt in _arms(catalog, spec, by_name):
            asked[model] = replace(spec, id=model)
            read[model] = prompt
    require_few(asked)
    prompt_of = {model: prompt for model, prompt in read.items() if prompt is not None}
    return tuple(asked.values()), prompt_of


def _arms(
    catalog: Catalog, spec: ModelSpec, prompts: Mapping[str, Prompt]
) -> Iterator[tuple[str, Prompt | None]]:
    """Yield the ids that a model is asked under, and the prompt of each; None: it reads none."""
    only, *others = prompts.values()
    variant, named = catalog.arm_of(spec.id)
    own = catalog.entry(spec.id).prompt
    if not spec.wire.reads_prompt:
        if named:
            raise ConfigError(f"{base_of(spec.id)} reads no prompt: leave out #{named}")
        yield spec.id, None
    elif named:
        yield spec.id, prompts[named]
    elif own is not None:
        yield spec.id, _own_prompt(catalog, own)
    elif not others:
        yield spec.id, only
    else:
        for name, prompt in prompts.items():
            mark = "+" if variant else ARM_MARK
            model = f"{spec.id}{mark}{name}"
            if not is_arm(name) or catalog.arm_of(model) != (variant, name):
                raise ConfigError(
                    f"prompt '{name}' cannot be an arm of {spec.id} by this name: use letters,"
                    " digits, '.', '_' and '-' in its name, and no name of a variant"
                )
            yield model, prompt


def _own_prompt(catalog: Catalog, name: str) -> Prompt:
    """Load a prompt that the catalog names: a bundled one, or a file beside the catalog."""
    if name.removesuffix(COT) in bundled_prompts():
        return load_prompt(name)
    if catalog.path is None:
        return load_prompt(name)
    return load_prompt(str(catalog.path.parent / name))


def _require_batches(models: Sequence[ModelSpec]) -> None:
    """Refuse models whose providers take no batches; baselines answer here and at once."""
    others = [spec.id for spec in models if spec.wire.http and not takes_batches(spec)]
    if others:
        named = ", ".join(others[:NAMED])
        if len(others) > NAMED:
            named += f" and {counted(len(others) - NAMED, 'other')}"
        raise ConfigError(
            f"{named} cannot be asked in batches: by the catalog their providers take none."
            " Leave them out, or submit them without --batch; if they do take batches, set"
            " batch_share in your catalog"
        )
    if not any(map(takes_batches, models)):
        raise ConfigError(
            "none of these models is asked over the network, so there is nothing to put into"
            " batches: leave out --batch"
        )


def plan_extension(
    engine: Engine, catalog: Catalog, environ: Environ, run: Run, request: Request
) -> RunPlan:
    """Look up all that is added to a submitted run, and leave out what it asks already.

    Raises:
        ConfigError: Nothing of it is new, it names fewer epochs, or a cap cannot be raised so.
        DatasetError: A dataset is unknown, or the run asks another one of its name.
        StoreError: The run is held.
    """
    require_not_held(run)
    epochs = run.epochs if request.epochs is None else request.epochs
    if epochs < run.epochs:
        raise ConfigError(
            f"run {run.run_id} asks every sample {run.epochs} times already: --epochs is the new"
            " total, and verdicts are not taken away"
        )
    models: tuple[ModelSpec, ...] = ()
    read: dict[str, Prompt] = {}
    if request.models:
        models, read = contenders(catalog, environ, request.models, run.arms)
    known = {spec.id for spec in run.models}
    models = tuple(spec for spec in models if spec.id not in known)
    datasets = _new_datasets(engine, run, request.datasets)
    if not models and not datasets and epochs == run.epochs:
        raise ConfigError(f"run {run.run_id} asks all of that already: there is nothing to add")
    if run.prompt is None or run.parameters is None:
        raise TypeError("a run that was imported is not extended")
    caps = request.parameters
    with transaction(engine) as session:
        asked = [load_run_dataset(session, run.run_id, each.name) for each in run.datasets]
    prompts = {model: prompt for model, prompt in read.items() if prompt != run.prompt}
    return RunPlan(
        models=models,
        datasets=datasets,
        prompt=run.prompt,
        parameters=with_higher_caps(run.parameters, caps.max_cost_usd, caps.max_cost_per_model_usd),
        epochs=epochs,
        base_run=run,
        base_lengths=_lengths(dataset for dataset in asked if dataset),
        prompts=prompts | dict(run.prompts),
    )


def _new_datasets(engine: Engine, run: Run, named: Sequence[str]) -> tuple[Dataset, ...]:
    known = {dataset.name: dataset for dataset in run.datasets}
    added: dict[str, Dataset] = {}
    chosen = [choose_dataset(engine, name) for name in dict.fromkeys(named)]
    for dataset in chosen:
        stored = known.get(dataset.name)
        if stored is None:
            added[dataset.name] = dataset
        elif stored.fingerprint != dataset.fingerprint:
            raise DatasetError(
                f"run {run.run_id} asks other samples under this name ({stored.samples:,}, not"
                f" {len(dataset.samples):,}): submit a run of its own for these",
                source=dataset.name,
            )
    return tuple(added.values())


def with_higher_caps(
    parameters: CallParameters, run_cap: Decimal | None, model_cap: Decimal | None
) -> CallParameters:
    """Return parameters with higher caps, or raise a ConfigError: there is none, or one as high."""
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
        raise ConfigError(f"the run's {option} is {_usd(cap)} already: name a higher one")
    return wanted


def require_prices(estimated: RunEstimate, parameters: CallParameters) -> None:
    if estimated.unpriced and (parameters.max_cost_usd or parameters.max_cost_per_model_usd):
        models = ", ".join(estimated.unpriced)
        raise ConfigError(
            f"the cost of {models} cannot be bounded, its price is unknown:"
            " give it one in your catalog, or leave it out"
        )


def summary(plan: RunPlan, estimated: RunEstimate, calls: int) -> list[str]:
    """Return lines about the size of a run, or of an extension, its expected cost and duration.

    `calls` is how many a worker process has in flight at most.
    """
    run = plan.base_run
    if run is not None:
        size = (
            f"{estimated.calls:,} calls more: {len(run.models)} + {len(plan.models)} models,"
            f" {run.samples:,} + {plan.samples:,} samples,"
            f" {run.epochs} + {plan.epochs - run.epochs} epochs"
        )
        return [size, *_cost(plan, estimated, plan.asked, calls)]
    malicious = 0
    for dataset in plan.datasets:
        malicious += sum(sample.target is TrueLabel.MALICIOUS for sample in dataset.samples)
    size = (
        f"{counted(plan.tasks, 'call')}: {counted(len(plan.models), 'model')} x"
        f" {counted(plan.samples, 'sample')} x {counted(plan.epochs, 'epoch')};"
        f" {malicious:,} malicious, {plan.samples - malicious:,} harmless"
    )
    after_s = plan.batch_after_s
    timed = [model for model in plan.models if after_s != 0 or not takes_batches(model)]
    lines = [size, *_cost(plan, estimated, timed, calls)]
    if after_s is not None:
        lines.append(_batches(plan, after_s))
    return lines


def _cost(
    plan: RunPlan, estimated: RunEstimate, timed: Sequence[ModelSpec], calls: int
) -> list[str]:
    """Return lines about the expected tokens and cost, and the least duration of calls.

    Only models that are called one by one are `timed`, those of batches are not.
    """
    cost = estimated.known_cost_usd
    cached = estimated.cached_cost_usd
    amount = f"${cost:.2f}"
    if cached != cost:
        amount += f" (${cached:.2f} if the prompt is cached)"
    free = {spec.id for spec in plan.asked if spec.simulated}
    unpriced = [model for model in estimated.unpriced if model not in free]
    if unpriced:
        named = ", ".join(unpriced)
        if len(unpriced) >= NAMED:
            named = counted(len(unpriced), "model")
        amount += f" plus {named} at unknown price"
    if free:
        amount += "; simulated models cost nothing"
    lines = [
        f"estimated: {estimated.input_tokens:,} input and {estimated.output_tokens:,} output"
        f" tokens, {amount}"
    ]
    cap = plan.parameters.max_cost_usd
    if cap is not None and cached > cap:
        lines.append(f"cap {_usd(cap)}: below the estimate, the run will probably stop early")
    elif cap is not None and cost > cap:
        only_if = "the run stops early only if the provider does not cache the prompt"
        lines.append(f"cap {_usd(cap)}: {only_if}")
    if timed:
        time = duration(_rounds(estimated, timed, calls) * ASSUMED_CALL_S)
        call = f"if a call takes {ASSUMED_CALL_S:g} s"
        lines.append(f"about {time} with one worker process, {call}")
    return lines


def _rounds(estimated: RunEstimate, timed: Sequence[ModelSpec], calls: int) -> float:
    """Return how many calls follow each other at least, of `calls` at a time."""
    calls_of = {model.model: model.calls for model in estimated.models}
    rounds = 1.0
    total = 0
    # A run takes as long as its slowest model, and as all calls together, at least.
    for spec in timed:
        at_a_time = min(spec.max_in_flight or calls, calls)
        rounds = max(rounds, calls_of[spec.id] / at_a_time)
        total += calls_of[spec.id]
    return max(rounds, total / calls)


def _usd(amount: Decimal) -> str:
    cents = f"{amount:.2f}"
    if Decimal(cents) == amount:
        return f"${cents}"
    return f"${amount.normalize():f}"


def _batches(plan: RunPlan, after_s: float) -> str:
    window = f"each answered within {BATCH_WINDOW_S // HOUR_S} hours"
    live = [spec.id for spec in plan.models if not takes_batches(spec)]
    if live:
        window += f" ({', '.join(live)}: live)"
    otherwise_usd = plan.estimate(in_batches=after_s > 0).known_cost_usd
    if after_s <= 0:
        return f"asked in batches, {window}; as single calls: ${otherwise_usd:.2f}"
    return (
        f"asked live for {duration(after_s)}, the rest in batches, {window}; all in batches:"
        f" ${otherwise_usd:.2f}"
    )

"""Runs: the prompt, the models and whatever else is needed to repeat a run.

Two runs can be compared if they differ only in name, caps, epochs and version of the package.
"""

import hashlib
import json
import secrets
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, NamedTuple

from msgspec import Meta, Struct, field

from aegish_dist.core.model import ARM_MARK, CallParameters, ModelSpec, WireFormat
from aegish_dist.core.verdict import Number

COMMAND_SLOT = "{command}"
COT = "+cot"  # end of the name of a prompt that asks for reasoning first


class Messages(Struct, frozen=True):
    """The two texts sent to a model for one sample."""

    system: str  # identical for every sample of a run, so that providers cache it
    user: str


class Prompt(Struct, frozen=True):
    """A named prompt; `fingerprint` tells two versions of one name apart."""

    name: str
    system: str  # the system text, with any step-by-step instruction already appended
    template: str  # the user text; `{command}` marks where the command goes, exactly once

    @property
    def fingerprint(self) -> str:
        """SHA-256 of system text and template."""
        return hashlib.sha256(json.dumps([self.system, self.template]).encode()).hexdigest()

    @property
    def pinned(self) -> str:
        """The name that asks with this text or not at all, in `--prompt` and in run files."""
        return f"{self.name}@{self.fingerprint[:16]}"

    def render(self, command: str) -> Messages:
        """Fill in one command as it stands, braces and all."""
        return Messages(self.system, self.template.replace(COMMAND_SLOT, command, 1))


ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no letter looks like a digit

_EPOCH_S = 1_735_689_600  # 2025-01-01T00:00:00Z keeps six characters enough until 2059
_TIME_CHARACTERS = 6
_RANDOM_CHARACTERS = 3


def is_arm_of(model: str, prompt: Prompt) -> bool:
    """Whether a model's id ends with the prompt as its arm."""
    arm = model.partition(ARM_MARK)[2]
    return arm == prompt.name or arm.endswith(f"+{prompt.name}")


def new_run_id(now: datetime, entropy: int | None = None) -> str:
    """Return nine characters that sort by time; `entropy`, in [0, 32768), is random when None."""
    draws = 32**_RANDOM_CHARACTERS
    if entropy is None:
        entropy = secrets.randbelow(draws)
    seconds = int(now.timestamp()) - _EPOCH_S
    value = seconds * draws + entropy
    characters = ""
    for _ in range(_TIME_CHARACTERS + _RANDOM_CHARACTERS):
        value, digit = divmod(value, 32)
        characters = ALPHABET[digit] + characters
    return characters


class RunPause(StrEnum):
    """Why workers ask nothing of a run although some of its items have no verdict."""

    PAUSED = "paused"  # a user stopped it for a while; `resume` goes on
    CANCELLED = "cancelled"  # a user stopped it and does not mean to go on


class BatchState(StrEnum):
    PLANNED = "planned"  # its items are chosen, and the provider knows nothing of it
    CREATING = "creating"  # a worker has begun to hand it over; the provider may know it already
    IN_PROGRESS = "in_progress"  # the provider has named it and works on it
    COLLECTING = "collecting"  # the provider has ended it; its results are being stored
    ENDED = "ended"  # all results are stored; items without a verdict are free to be asked again


class RunDataset(Struct, frozen=True):
    name: str
    fingerprint: str
    samples: int
    malicious: int
    source: str = ""
    licence: str = ""


class Pruned(Struct, frozen=True):
    """Completions of a run that were deleted while their verdicts stayed."""

    completions: Annotated[int, Meta(ge=0, le=2**62)]
    at: Annotated[datetime, Meta(tz=True)]


class Run(Struct, frozen=True):
    """One experiment: models x samples x epochs under one set of parameters."""

    run_id: Annotated[str, Meta(pattern=r"^[0-9a-z]{9}\Z")]
    created_at: Annotated[datetime, Meta(tz=True)]
    name: str
    origin: Annotated[str, Meta(pattern=r"^(submit|import)\Z")]
    package_version: str
    prompt: Prompt | None  # the first, if there are several; None for imported runs
    parameters: CallParameters | None
    epochs: Number
    datasets: tuple[RunDataset, ...]
    models: tuple[ModelSpec, ...]
    # The datasets that a model is asked about; an absent model is asked about all.
    datasets_by_model: Mapping[str, frozenset[str]] = field(default_factory=dict)
    held: RunPause | None = None
    pruned: Pruned | None = None
    # By model, seconds from the run's creation until the model is asked in batches.
    batched: Mapping[str, float] = field(default_factory=dict)
    # Prompts of models that are not asked with `prompt`, by model.
    prompts: Mapping[str, Prompt] = field(default_factory=dict)

    @property
    def titled(self) -> str:
        """The id, with the name behind it where there is one; foreign text."""
        return f"{self.run_id} ({self.name})" if self.name else self.run_id

    def prompt_of(self, model: str) -> Prompt | None:
        return self.prompts.get(model, self.prompt)

    @property
    def asked_with(self) -> tuple[Prompt, ...]:
        """All prompts, the run's first."""
        prompts = self.prompts.values()
        return tuple(dict.fromkeys(prompts if self.prompt is None else (self.prompt, *prompts)))

    @property
    def arms(self) -> tuple[Prompt, ...]:
        """The prompts of every model that has no prompt of its own."""
        if self.prompt is None:
            return ()
        arms = [self.prompt]
        # A model that reads a prompt of its own is no arm: then no model is named by the first.
        if any(is_arm_of(spec.id, self.prompt) for spec in self.models):
            arms += [prompt for model, prompt in self.prompts.items() if is_arm_of(model, prompt)]
        return tuple(dict.fromkeys(arms))

    @property
    def typed(self) -> str:
        """The value for `--run-id`, quoted for a shell: the name, which is unique, or the id."""
        return shlex.quote(self.name or self.run_id)

    @property
    def samples(self) -> int:
        return sum(dataset.samples for dataset in self.datasets)

    def datasets_of(self, model: str) -> tuple[RunDataset, ...]:
        if model not in self.datasets_by_model:
            return self.datasets
        return tuple(d for d in self.datasets if d.name in self.datasets_by_model[model])

    @property
    def caps(self) -> tuple[Decimal | None, Decimal | None]:
        """Caps in USD on the cost of the run, and of each of its models; None: no cap."""
        asked = self.parameters
        return (asked.max_cost_usd, asked.max_cost_per_model_usd) if asked else (None, None)

    def over_budget(self, spent: Mapping[str, Decimal]) -> set[str]:
        """Return the models that have spent, in USD, what they may, worker or not."""
        cap, model_cap = self.caps
        if cap is not None and sum(spent.values()) >= cap:
            return set(spent)
        if model_cap is None:
            return set()
        return {model for model, cost in spent.items() if cost >= model_cap}

    @property
    def imported(self) -> bool:
        """Whether the verdicts were imported; then none are missing beyond those in the files."""
        return self.origin == "import"

    def planned(self, model: str) -> int:
        """Return how many verdicts are planned for a model; an imported run may have fewer."""
        return sum(dataset.samples for dataset in self.datasets_of(model)) * self.epochs


class RunSummary(Struct, frozen=True):
    run_id: str
    name: str
    origin: str
    created_at: datetime
    models: int
    samples: int
    epochs: int
    verdicts: int
    held: RunPause | None
    pruned_completions: int


class ModelOfRun(Struct, frozen=True, order=True):
    run_id: str
    model: str


# Names of parameters in messages.
_PARAMETERS = {
    "seed": "seed",
    "temperature": "temperature",
    "max_output_tokens": "most output tokens",
    "time_limit_s": "time limit in s",
}


def incompatibilities(
    base: Run,
    other: Run,
    models: Collection[str],
    parsers: Mapping[ModelOfRun, Collection[int]],
) -> list[str]:
    """Return a phrase for each difference, also where a fact is known of one run only."""
    runs = (base, other)
    facts = [*_dataset_facts(runs, models), *_prompt_facts(runs, models), *_parameter_facts(runs)]
    for model in models:
        facts += _model_facts(runs, model, parsers)
    differences = []
    for name, (value, other_value) in facts:
        if value.key != other_value.key:
            differences.append(f"{name}: {value.words} against {other_value.words}")
    return list(dict.fromkeys(differences))


class _Value(NamedTuple):
    key: object  # equal in runs that can be compared
    words: object


_ABSENT = _Value(None, "none")

# The name of a fact, and its value in each run.
_Fact = tuple[str, Sequence[_Value]]


def _dataset_facts(runs: Sequence[Run], models: Iterable[str]) -> Iterator[_Fact]:
    for model in models:
        # By name, the dataset of each run.
        datasets: dict[str, list[_Value]] = {}
        for side, run in enumerate(runs):
            for dataset in run.datasets_of(model):
                values = datasets.setdefault(dataset.name, [_ABSENT, _ABSENT])
                words = f"{dataset.samples:,} ({dataset.fingerprint[:8]})"
                values[side] = _Value(dataset.fingerprint, words)
        for name in sorted(datasets):
            yield f"samples of '{name}'", datasets[name]


def _prompt_facts(runs: Sequence[Run], models: Iterable[str]) -> Iterator[_Fact]:
    reading = set()
    for spec in (*runs[0].models, *runs[1].models):
        if spec.wire.reads_prompt or spec.wire is WireFormat.IMPORTED:
            reading.add(spec.id)
    for model in models:
        if model in reading:
            yield "prompt", [_of_prompt(run.prompt_of(model)) for run in runs]


def _of_prompt(prompt: Prompt | None) -> _Value:
    if prompt is None:
        return _Value(None, "unknown")
    return _Value(prompt.fingerprint, f"'{prompt.name}' ({prompt.fingerprint[:8]})")


def _parameter_facts(runs: Sequence[Run]) -> Iterator[_Fact]:
    parameters = [run.parameters for run in runs]
    yield "parameters", _plain("given at submit" if each else "unknown" for each in parameters)
    if None in parameters:
        return
    for field_name, name in _PARAMETERS.items():
        values = [getattr(each, field_name) for each in parameters]
        yield name, [_Value(value, "none" if value is None else value) for value in values]


def _model_facts(
    runs: Sequence[Run], model: str, parsers: Mapping[ModelOfRun, Collection[int]]
) -> Iterator[_Fact]:
    specs = []
    versions = []
    for run in runs:
        specs += [spec for spec in run.models if spec.id == model]
        read_by = sorted(set(parsers.get(ModelOfRun(run.run_id, model), ())))
        versions.append(", ".join(map(str, read_by)))
    yield f"answers of {model}", _plain("simulated" if spec.simulated else "real" for spec in specs)
    # Nothing is known of how an imported model was asked.
    if all(spec.wire is not WireFormat.IMPORTED for spec in specs):
        yield f"name of {model} at its provider", _plain(spec.name for spec in specs)
        yield f"structured output of {model}", _plain(spec.structured or "no" for spec in specs)
        yield f"parameters of {model}", [_in_json(dict(spec.parameters)) for spec in specs]
    if all(versions):
        yield "parser version", _plain(versions)


def _plain(texts: Iterable[str]) -> list[_Value]:
    return [_Value(text, text) for text in texts]


def _in_json(parameters: dict[str, object]) -> _Value:
    return _Value(parameters, json.dumps(parameters, sort_keys=True, default=str))

"""Runs: the prompt, the models and whatever else is needed to repeat a run.

Two runs can be compared if they differ only in name, caps, epochs and version of the package.
"""

import hashlib
import json
import secrets
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from enum import StrEnum

from msgspec import Struct, field

from aegish_dist.core.model import CallParameters, ModelSpec, WireFormat

COMMAND_SLOT = "{command}"


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

    def render(self, command: str) -> Messages:
        """Fill in one command as it stands, braces and all."""
        return Messages(self.system, self.template.replace(COMMAND_SLOT, command, 1))


ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no letter looks like a digit

_EPOCH_S = 1_735_689_600  # 2025-01-01T00:00:00Z keeps six characters enough until 2059
_TIME_CHARACTERS = 6
_RANDOM_CHARACTERS = 3


def new_run_id(now: datetime, entropy: int | None = None) -> str:
    """Return nine characters that sort by time; `entropy`, in [0, 32768), is random when None."""
    draw = secrets.randbelow(32**_RANDOM_CHARACTERS) if entropy is None else entropy
    value = (int(now.timestamp()) - _EPOCH_S) * 32**_RANDOM_CHARACTERS + draw
    digits = []
    for _ in range(_TIME_CHARACTERS + _RANDOM_CHARACTERS):
        value, digit = divmod(value, 32)
        digits.append(ALPHABET[digit])
    return "".join(reversed(digits))


class RunPause(StrEnum):
    """Why workers ask nothing of a run although some of its items have no verdict."""

    PAUSED = "paused"  # a user stopped it for a while; `resume` goes on
    CANCELLED = "cancelled"  # a user stopped it and does not mean to go on


class BatchState(StrEnum):
    PLANNED = "planned"  # its items are chosen, and the provider knows nothing of it
    CREATING = "creating"  # a worker has begun to hand it over; the provider may know it already
    IN_PROGRESS = "in_progress"  # the provider has named it and works on it
    COLLECTING = "collecting"  # the provider has ended it; its results are being stored
    ENDED = "ended"
    """All results are stored, and items without a verdict are free to be asked again."""


class RunDataset(Struct, frozen=True):
    name: str
    fingerprint: str
    samples: int
    malicious: int
    source: str = ""
    licence: str = ""


class Pruned(Struct, frozen=True):
    """Completions of a run that were deleted while their verdicts stayed."""

    completions: int
    at: datetime


class Run(Struct, frozen=True):
    """One experiment: models x samples x epochs under one prompt and one set of parameters."""

    run_id: str
    created_at: datetime
    name: str
    origin: str
    package_version: str
    prompt: Prompt | None  # None for imported runs
    parameters: CallParameters | None
    epochs: int
    datasets: tuple[RunDataset, ...]
    models: tuple[ModelSpec, ...]
    datasets_by_model: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The datasets that a model is asked about; an absent model is asked about all."""
    held: RunPause | None = None
    pruned: Pruned | None = None
    batched: Mapping[str, float] = field(default_factory=dict)
    """By model, seconds from the run's creation until the model is asked in batches."""

    @property
    def samples(self) -> int:
        return sum(dataset.samples for dataset in self.datasets)

    @property
    def planned_per_model(self) -> int:
        return self.samples * self.epochs

    def datasets_of(self, model: str) -> tuple[RunDataset, ...]:
        if model not in self.datasets_by_model:
            return self.datasets
        return tuple(d for d in self.datasets if d.name in self.datasets_by_model[model])

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


_PARAMETERS = {
    "seed": "seed",
    "temperature": "temperature",
    "max_output_tokens": "most output tokens",
    "time_limit_s": "time limit in s",
}
"""Names of parameters in messages."""


def incompatibilities(
    base: Run,
    other: Run,
    models: Collection[str],
    parsers: Mapping[ModelOfRun, Collection[int]],
) -> list[str]:
    """Return a phrase for each difference, also where a fact is known of one run only."""
    found = [*_samples(base, other, models), *_prompt(base, other), *_parameters(base, other)]
    for model in models:
        found += _model(base, other, model)
        read = [parsers.get(ModelOfRun(run.run_id, model), ()) for run in (base, other)]
        if all(read) and set(read[0]) != set(read[1]):
            versions = (", ".join(map(str, sorted(each))) for each in read)
            found.append(_difference("parser version", *versions))
    return list(dict.fromkeys(found))


def _difference(of: str, base: object, other: object) -> str:
    a, b = ("unknown" if each is None else each for each in (base, other))
    return f"{of}: {a} against {b}"


def _samples(base: Run, other: Run, models: Collection[str]) -> Iterator[str]:
    for model in models:
        sides = [{d.name: d for d in run.datasets_of(model)} for run in (base, other)]
        for name in sorted(sides[0].keys() | sides[1].keys()):
            found = [side.get(name) for side in sides]
            if len({d and d.fingerprint for d in found}) > 1:
                words = (
                    "none" if d is None else f"{d.samples:,} ({d.fingerprint[:8]})" for d in found
                )
                yield _difference(f"samples of '{name}'", *words)


def _prompt(base: Run, other: Run) -> Iterator[str]:
    prompts = [run.prompt for run in (base, other)]
    if len({each and each.fingerprint for each in prompts}) > 1:
        words = (each and f"'{each.name}' ({each.fingerprint[:8]})" for each in prompts)
        yield _difference("prompt", *words)


def _parameters(base: Run, other: Run) -> Iterator[str]:
    if base.parameters is None or other.parameters is None:
        if base.parameters is not other.parameters:
            yield _difference(
                "parameters",
                *(run.parameters and "given at submit" for run in (base, other)),
            )
        return
    for name, of in _PARAMETERS.items():
        a, b = getattr(base.parameters, name), getattr(other.parameters, name)
        if a != b:
            yield _difference(of, *("none" if each is None else each for each in (a, b)))


def _model(base: Run, other: Run, model: str) -> Iterator[str]:
    a, b = (next(spec for spec in run.models if spec.id == model) for run in (base, other))
    if a.simulated != b.simulated:
        kinds = ("simulated" if spec.simulated else "real" for spec in (a, b))
        yield _difference(f"answers of {model}", *kinds)
    if WireFormat.IMPORTED in (a.wire, b.wire):
        return
    if a.name != b.name:
        yield _difference(f"name of {model} at its provider", a.name, b.name)
    if dict(a.parameters) != dict(b.parameters):
        yield _difference(f"parameters of {model}", *map(_as_text, (a.parameters, b.parameters)))


def _as_text(parameters: Mapping[str, object]) -> str:
    return json.dumps(dict(parameters), sort_keys=True, default=str)

"""Differences of two runs besides their answers: reasons not to compare them.

A difference of scores is one of models only where everything else is alike. Names, caps on cost,
epochs and the version of the package are no such differences.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from aegish_dist.core.model import WireFormat
from aegish_dist.core.run import ModelOfRun, Run

_UNKNOWN = "unknown"
_PARAMETERS = {
    "seed": "seed",
    "temperature": "temperature",
    "max_output_tokens": "most output tokens",
    "time_limit_s": "time limit in s",
}
"""Parameters that may change answers, by what a message calls them."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """One respect in which two runs differ."""

    of: str
    base: object
    other: object

    def __str__(self) -> str:
        base, other = (_UNKNOWN if each is None else each for each in (self.base, self.other))
        return f"{self.of}: {base} against {other}"


def incompatibilities(
    base: Run,
    other: Run,
    models: Collection[str],
    parsers: Mapping[ModelOfRun, Collection[int]],
) -> list[str]:
    """Return what the runs differ in, one phrase for each difference; foreign text.

    What an imported run does not tell is unknown: a difference where the other run knows it.

    Args:
        parsers: By side, the versions of the parser behind its verdicts; empty without verdicts.
    """
    found = [*_samples(base, other, models), *_prompt(base, other), *_parameters(base, other)]
    for model in models:
        found += _model(base, other, model)
        found += _parser(*(parsers.get(ModelOfRun(run.run_id, model), ()) for run in (base, other)))
    return list(dict.fromkeys(map(str, found)))


def _samples(base: Run, other: Run, models: Collection[str]) -> Iterator[_Seen]:
    for model in models:
        ours, theirs = ({d.name: d for d in run.datasets_of(model)} for run in (base, other))
        for name in sorted(ours.keys() | theirs.keys()):
            a, b = ours.get(name), theirs.get(name)
            if a is None or b is None or a.fingerprint != b.fingerprint:
                yield _Seen(
                    f"samples of '{name}'",
                    *("none" if d is None else f"{d.samples:,} ({d.fingerprint[:8]})"
                      for d in (a, b)),
                )  # fmt: skip


def _prompt(base: Run, other: Run) -> Iterator[_Seen]:
    a, b = (None if run.prompt is None else run.prompt.fingerprint for run in (base, other))
    if a != b:
        yield _Seen(
            "prompt",
            *(run.prompt and f"'{run.prompt.name}' ({run.prompt.fingerprint[:8]})"
              for run in (base, other)),
        )  # fmt: skip


def _parameters(base: Run, other: Run) -> Iterator[_Seen]:
    if base.parameters is None or other.parameters is None:
        if base.parameters is not other.parameters:
            known = "given at submit"
            yield _Seen(
                "parameters",
                *(None if run.parameters is None else known for run in (base, other)),
            )
        return
    for field, of in _PARAMETERS.items():
        a, b = getattr(base.parameters, field), getattr(other.parameters, field)
        if a != b:
            yield _Seen(of, *("none" if each is None else each for each in (a, b)))


def _model(base: Run, other: Run, model: str) -> Iterator[_Seen]:
    a, b = (next(spec for spec in run.models if spec.id == model) for run in (base, other))
    if a.simulated != b.simulated:
        kinds = ("simulated" if spec.simulated else "real" for spec in (a, b))
        yield _Seen(f"answers of {model}", *kinds)
    if WireFormat.IMPORTED in (a.wire, b.wire):
        return
    if a.name != b.name:
        yield _Seen(f"name of {model} at its provider", a.name, b.name)
    if dict(a.parameters) != dict(b.parameters):
        yield _Seen(f"parameters of {model}", *map(_as_text, (a.parameters, b.parameters)))


def _as_text(parameters: Mapping[str, object]) -> str:
    return json.dumps(dict(parameters), sort_keys=True, default=str)


def _parser(base: Collection[int], other: Collection[int]) -> Iterator[_Seen]:
    if base and other and set(base) != set(other):
        yield _Seen(
            "parser version", *(", ".join(map(str, sorted(each))) for each in (base, other))
        )

"""Datasets of the reference benchmark: one JSON object with `metadata` and `commands`.

A command is labelled either by `category` (a GTFOBins function, with its `binary`) or by
`ground_truth` (the action a guard should take).
"""

from pathlib import Path
from typing import Any

from msgspec import Struct

from aegish_dist.core.sample import Sample, Target
from aegish_dist.datasets.draft import (
    MAX_SAMPLES,
    Draft,
    SampleRecord,
    dataset_name,
    given,
    to_sample,
)
from aegish_dist.datasets.validation import CATEGORIES
from aegish_dist.inputs.checking import Location
from aegish_dist.inputs.documents import parse_json, read_text

MAX_BYTES = 16 * 2**20
"""Size of a file; decoded as a whole, which takes twenty times that where a file is hostile."""
_TARGETS = {"ALLOW": Target.HARMLESS, "WARN": Target.MALICIOUS, "BLOCK": Target.MALICIOUS}


class _Labels(Struct, frozen=True):
    """The labels of a command; null and empty mean absent."""

    binary: str | None = None
    category: str | None = None
    ground_truth: str | None = None
    """The action that a guard should take, in any letter case."""


def read_aegish(path: Path, name: str | None = None) -> Draft:
    """Read a dataset of the reference benchmark.

    Args:
        name: Name of the dataset; None takes it from the file's name.

    Raises:
        DatasetError: For the first thing wrong, naming file, record and field.
    """
    location = Location(str(path))
    with location:
        values = parse_json(read_text(path, MAX_BYTES))
    content = location.checked(values, dict[str, Any])
    commands = location.checked(content.get("commands"), list[Any], "commands")
    if len(commands) > MAX_SAMPLES:
        raise location.error(f"more than {MAX_SAMPLES:,} samples are not read", "commands")
    about = location.checked(content.get("metadata") or {}, dict[str, Any], "metadata")
    return Draft(
        name=dataset_name(path, name),
        samples=tuple(
            _sample(Location(str(path), record), each) for record, each in enumerate(commands, 1)
        ),
        lines=tuple(range(1, len(commands) + 1)),
        file=str(path),
        source=str(about.get("source") or path.name),
        licence=str(about.get("license") or ""),
    )


def _sample(location: Location, entry: object) -> Sample:
    values = location.checked(entry, dict[str, Any], "commands")
    labels = location.checked(given(values, _Labels), _Labels)
    if labels.category is not None and labels.category not in CATEGORIES:
        problem = f"{labels.category!a} is none of {', '.join(CATEGORIES)}"
        raise location.error(problem, "category")
    fields = {**values, "target": _target(location, labels), "cluster": labels.binary}
    fields.pop("binary", None)
    return to_sample(location, location.checked(given(fields, SampleRecord), SampleRecord), fields)


def _target(location: Location, labels: _Labels) -> Target:
    truth = labels.ground_truth
    if truth is None and labels.category:
        return Target.MALICIOUS
    if truth is None:
        raise location.error("is missing, and there is no category either", "ground_truth")
    if truth.upper() not in _TARGETS:
        raise location.error(f"{truth!a} is none of {', '.join(_TARGETS)}", "ground_truth")
    return _TARGETS[truth.upper()]

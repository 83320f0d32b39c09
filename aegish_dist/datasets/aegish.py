"""Datasets of the reference benchmark: one JSON object with `metadata` and `commands`.

A command is labelled either by `category` (a GTFOBins function, with its `binary`) or by
`ground_truth` (the action a guard should take).
"""

import json
from pathlib import Path
from typing import Any

from aegish_dist.core.sample import Dataset, Sample, Target
from aegish_dist.datasets.draft import MAX_SAMPLES, Draft, dataset_name, read_text
from aegish_dist.datasets.rows import Row, decode_json
from aegish_dist.datasets.validation import CATEGORIES
from aegish_dist.errors import DatasetError

MAX_BYTES = 16 * 2**20
"""Decoded as a whole, which takes twenty times that where a file is hostile."""
_TARGETS = {"ALLOW": Target.HARMLESS, "WARN": Target.MALICIOUS, "BLOCK": Target.MALICIOUS}


def import_aegish(path: Path, name: str | None = None) -> Dataset:
    """Read and check a dataset of the reference benchmark.

    Args:
        path: The JSON file.
        name: Name of the dataset; None takes it from the file's name.

    Raises:
        DatasetError: For the first thing wrong, naming file, record and field.
    """
    return read_aegish(path, name).checked()


def read_aegish(path: Path, name: str | None = None) -> Draft:
    """Read such a dataset without the label checks; see `import_aegish`."""
    content = _read_object(path)
    commands = content.get("commands")
    if not isinstance(commands, list):
        raise DatasetError("must be a list", source=str(path), field="commands")
    if len(commands) > MAX_SAMPLES:
        problem = f"more than {MAX_SAMPLES:,} samples are not read"
        raise DatasetError(problem, source=str(path), field="commands")
    about = content.get("metadata") or {}
    if not isinstance(about, dict):
        raise DatasetError("must be an object", source=str(path), field="metadata")
    return Draft(
        name=dataset_name(path, name),
        samples=tuple(_sample(path, record, each) for record, each in enumerate(commands, 1)),
        lines=tuple(range(1, len(commands) + 1)),
        file=str(path),
        source=str(about.get("source") or path.name),
        licence=str(about.get("license") or ""),
    )


def _read_object(path: Path) -> dict[str, Any]:
    try:
        content = decode_json(read_text(path, MAX_BYTES))
    except json.JSONDecodeError as error:
        raise DatasetError(
            f"is not JSON: {error.msg}", source=str(path), line=error.lineno
        ) from error
    except ValueError as error:
        raise DatasetError(f"is not JSON: {error}", source=str(path)) from error
    if not isinstance(content, dict):
        raise DatasetError("is not a JSON object", source=str(path))
    return content


def _sample(path: Path, record: int, entry: object) -> Sample:
    if not isinstance(entry, dict):
        raise DatasetError("is not a JSON object", source=str(path), line=record, field="commands")
    row = Row(str(path), record, entry)
    target, cluster = _target(row), row.optional_text("binary")
    category = row.optional_text("category")
    if category is not None and category not in CATEGORIES:
        raise row.wrong("category", f"{category!a} is none of {', '.join(CATEGORIES)}")
    rest = {field: value for field, value in entry.items() if field != "binary"}
    return Row(str(path), record, {**rest, "target": target, "cluster": cluster}).sample()


def _target(row: Row) -> Target:
    truth = row.optional_text("ground_truth")
    if truth is None and row.optional_text("category"):
        return Target.MALICIOUS
    if truth is None:
        raise row.wrong("ground_truth", "is missing, and there is no category either")
    if truth.upper() not in _TARGETS:
        raise row.wrong("ground_truth", f"{truth!a} is none of {', '.join(_TARGETS)}")
    return _TARGETS[truth.upper()]

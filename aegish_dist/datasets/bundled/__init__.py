"""The sets that come with the package: enough for a first run, written for this project."""

from dataclasses import replace
from pathlib import Path

from aegish_dist.core.sample import Dataset
from aegish_dist.datasets.table import read_table
from aegish_dist.errors import DatasetError

_NAMES = ("malicious", "harmless", "harmless-hard")
_DIRECTORY = Path(__file__).parent


def bundled_names() -> tuple[str, ...]:
    """The names `load_bundled` knows."""
    return _NAMES


def load_bundled(name: str) -> Dataset:
    """Load a bundled set, checked more strictly than imported data."""
    if name not in _NAMES:
        raise DatasetError(f"no such bundled set, there are {', '.join(_NAMES)}", source=name)
    draft = read_table(_DIRECTORY / f"{name}.jsonl", name)
    return replace(draft, source="aegish-dist", licence="MIT").checked(strict=True)

"""The sets that come with the package: enough for a first run, written for this project."""

from pathlib import Path

import msgspec

from aegish_dist.core.sample import Dataset, Sample
from aegish_dist.errors import DatasetError

# The sets that a run asks unless it names others.
DEFAULT_NAMES = ("malicious", "harmless", "harmless-hard")
_NAMES = (*DEFAULT_NAMES, "agent-work", "twins")
_DIRECTORY = Path(__file__).parent


def bundled_names() -> tuple[str, ...]:
    return _NAMES


def card_of(dataset: Dataset) -> str:
    """Return what is to be known of a bundled set, in Markdown; empty where it has no card."""
    card = _DIRECTORY / f"{dataset.name}.md"
    is_ours = dataset.name in _NAMES and dataset.source == "aegish-dist"
    if is_ours and card.exists():
        return card.read_text("utf-8")
    return ""


def load_bundled(name: str) -> Dataset:
    """Load a bundled set; tests check its samples, so that no command has to."""
    if name not in _NAMES:
        raise DatasetError(f"no such bundled set, there are {', '.join(_NAMES)}", source=name)
    lines = (_DIRECTORY / f"{name}.jsonl").read_bytes()
    samples = msgspec.json.Decoder(Sample).decode_lines(lines)
    return Dataset(name, tuple(samples), source="aegish-dist", licence="MIT")

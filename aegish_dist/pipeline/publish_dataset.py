"""Writing a dataset for publication: its samples, their metadata as Croissant, and a card."""

import hashlib
import re
from pathlib import Path

from aegish_dist.core.sample import Dataset
from aegish_dist.datasets.export import dataset_lines
from aegish_dist.files import replacing_in
from aegish_dist.interchange.croissant import DataFile, croissant, dataset_card

_METADATA = "croissant.json"
_CARD = "README.md"


def publish_dataset(dataset: Dataset, folder: Path) -> tuple[str, ...]:
    """Write a dataset into a folder: all files, or none. The same dataset gives the same bytes.

    Args:
        folder: Made when it is missing; files of an earlier publication are replaced.

    Returns:
        The names of the files.

    Raises:
        OutputError: A file cannot be written, or a README.md without metadata beside it is there.
    """
    data = "".join(dataset_lines(dataset)).encode()
    # The name of a dataset that came with verdicts may be any text.
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", dataset.name).strip("._-")[:100] or "dataset"
    file = DataFile(f"{stem}.jsonl", len(data), hashlib.sha256(data).hexdigest())
    files = {
        file.name: data,
        _METADATA: croissant(dataset, file).encode(),
        _CARD: dataset_card(dataset, file).encode(),
    }
    with replacing_in(folder, _is_ours) as opened:
        for name, content in files.items():
            opened(name).write(content)
    return tuple(files)


def _is_ours(path: Path) -> bool:
    """Keep the readme of a project: only beside metadata is it the card of a dataset."""
    is_readme = path.name == _CARD and path.is_file()
    return not is_readme or (path.parent / _METADATA).exists()

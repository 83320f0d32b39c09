"""The step between a file and a dataset: samples that were read but not yet checked."""

import re
from dataclasses import dataclass
from pathlib import Path

from aegish_dist.core.sample import Dataset, Sample
from aegish_dist.datasets.validation import Problem, Severity, problems
from aegish_dist.errors import DatasetError
from aegish_dist.inputs.files import read_input

MAX_TABLE_BYTES = 64 * 2**20
"""Of a file with a dataset; the bundled ones have a tenth of a MiB."""
MAX_SAMPLES = 200_000
"""Of a dataset, which is held in memory as a whole."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Draft:
    """What an importer read."""

    name: str
    """Name the dataset will have."""
    samples: tuple[Sample, ...]
    """In file order, duplicates included."""
    lines: tuple[int, ...]
    """The 1-based line or record number of each sample."""
    file: str
    """What was read, as error messages name it."""
    source: str
    """Where the samples come from."""
    licence: str = ""
    """SPDX identifier or a sentence; empty when unknown."""

    def problems(self, *, strict: bool = False) -> tuple[Problem, ...]:
        """All that the label checks find; see `validation.problems`."""
        return problems(self.samples, lines=self.lines, strict=strict)

    def checked(self, *, strict: bool = False) -> Dataset:
        """The dataset, if there is nothing wrong with it.

        Args:
            strict: Whether warnings stop it too.

        Raises:
            DatasetError: For the first error, or when there are no samples.
        """
        if not self.samples:
            raise DatasetError("holds no samples", source=self.file)
        for problem in self.problems(strict=strict):
            if problem.severity is Severity.ERROR:
                raise DatasetError(
                    problem.message, source=self.file, line=problem.record, field=problem.field
                )
        return Dataset(self.name, self.samples, self.source, self.licence)


def dataset_name(path: Path, name: str | None) -> str:
    """The name a user chose, else one made of the file's name.

    Raises:
        DatasetError: When the chosen name is not made of letters, digits, dot, dash, underscore.
    """
    if name is None:
        return re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("._-")[:100] or "dataset"
    if not _NAME.fullmatch(name):
        raise DatasetError(
            f"{name!a} is no dataset name: use up to 100 letters, digits, '.', '-' and '_'",
            source=str(path),
            field="name",
        )
    return name


def read_text(path: Path, max_bytes: int = MAX_TABLE_BYTES) -> str:
    """A whole UTF-8 file, without its byte order mark.

    Raises:
        DatasetError: When it cannot be read, is too large or is not UTF-8.
    """
    try:
        raw = read_input(path, max_bytes)
    except OSError as error:
        raise DatasetError(f"cannot be read: {error.strerror}", source=str(path)) from error
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DatasetError("is not UTF-8 text", source=str(path), line=line) from error

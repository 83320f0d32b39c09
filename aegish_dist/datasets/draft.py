"""The steps between a file and a dataset: records become samples, samples a draft to be checked."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import Struct

from aegish_dist.core.sample import Dataset, Sample, Target
from aegish_dist.datasets.validation import Problem, Severity, problems
from aegish_dist.errors import DatasetError
from aegish_dist.inputs.checking import Location

MAX_FILE_BYTES = 64 * 2**20
"""Size of a file with a dataset; the bundled ones have a tenth of a MiB."""
MAX_SAMPLES = 200_000
"""Samples of a dataset, which is held in memory as a whole."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Draft:
    """A dataset whose labels have not been checked yet."""

    name: str
    samples: tuple[Sample, ...]
    """In file order, duplicates included."""
    lines: tuple[int, ...]
    """The 1-based line or record number of each sample."""
    file: str
    """The file or folder, as error messages name it."""
    source: str
    licence: str = ""
    """SPDX identifier or a sentence; empty when unknown."""

    def problems(self, *, strict: bool = False) -> tuple[Problem, ...]:
        """Return all that the label checks find; see `validation.problems`."""
        return problems(self.samples, lines=self.lines, strict=strict)

    def checked(self, *, strict: bool = False) -> Dataset:
        """Return the dataset, if there is nothing wrong with it.

        Raises:
            DatasetError: For the first error, or when there are no samples.
        """
        if not self.samples:
            raise DatasetError("holds no samples", source=self.file)
        for problem in self.problems(strict=strict):
            if problem.severity is Severity.ERROR:
                raise Location(self.file, problem.record).error(problem.message, problem.field)
        return Dataset(self.name, self.samples, self.source, self.licence)


class SampleRecord(Struct, frozen=True, kw_only=True):
    """The fields of a sample in a record; null and empty mean absent."""

    command: str
    target: Target
    category: str | None = None
    """The purpose of a malicious command, such as `file-read`."""
    cluster: str | None = None
    """Shared by samples that are alike, usually the binary."""


def given(values: Mapping[str, object], kind: type[Struct]) -> dict[str, object]:
    """Return those fields of a record that are neither absent, null nor an empty text."""
    return {
        field: values[field]
        for field in kind.__struct_fields__
        if values.get(field) not in (None, "")
    }


def to_sample(location: Location, record: SampleRecord, values: Mapping[str, object]) -> Sample:
    """Make a sample of a record.

    Args:
        values: All that it holds; what is no field of the record becomes metadata, and so does
            what stands in an object `metadata`.

    Raises:
        DatasetError: The metadata are no object, or nested too deeply.
    """
    nested = values.get("metadata")
    metadata = {} if nested is None else location.checked(nested, dict[str, Any], "metadata")
    fields = (*record.__struct_fields__, "metadata")
    extra = {key: each for key, each in values.items() if key not in fields}
    try:
        texts = {
            str(key): _as_text(each)
            for key, each in {**extra, **metadata}.items()
            if each is not None
        }
    except RecursionError:
        raise location.error("is nested too deeply", "metadata") from None
    return Sample(record.command, record.target, record.category, record.cluster, texts)


def _as_text(value: object) -> str:
    if isinstance(value, bool | int | float | list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)


def dataset_name(path: Path, name: str | None) -> str:
    """Return the name a user chose, else one made of the file's name.

    Raises:
        DatasetError: The chosen name is not made of letters, digits, dot, dash, underscore.
    """
    if name is None:
        return re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("._-")[:100] or "dataset"
    if not _NAME.fullmatch(name):
        problem = f"{name!a} is no dataset name: use up to 100 letters, digits, '.', '-' and '_'"
        raise Location(str(path)).error(problem, "name")
    return name

"""Samples and datasets: the commands a model is asked to judge."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cached_property
from typing import Annotated

from msgspec import Meta, Struct, field

REPEATS = "repeats"  # metadata: ids, by blanks, of the same command that an import left out
MAX_COMMAND_CHARS = 10_000
MAX_LABEL_CHARS = 200  # they stand in database indexes, limited to 2.7 KB
Name = Annotated[str, Meta(max_length=MAX_LABEL_CHARS)]
Command = Annotated[str, Meta(max_length=MAX_COMMAND_CHARS)]


class TrueLabel(StrEnum):
    MALICIOUS = "malicious"
    HARMLESS = "harmless"


class Sample(Struct, frozen=True):
    """One labelled command; samples of equal content are the same sample, wherever they stand."""

    command: Command
    target: TrueLabel
    category: Name | None = (
        None  # GTFOBins function such as `file-read`; None for harmless commands
    )
    cluster: Name | None = None  # name shared by similar samples, usually the binary; None: alone
    # Free annotations, which are no part of the identity.
    metadata: Mapping[str, str] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sample) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    @property
    def _content(self) -> tuple[str | None, ...]:
        return self.target, self.category, self.cluster, self.command

    @property
    def sample_id(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of the content."""
        parts = (self.target, self.category or "", self.cluster or "", self.command)
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Dataset(Struct, frozen=True, dict=True):
    """A named, immutable set of samples; its fingerprint is its identity."""

    name: Name
    samples: tuple[Sample, ...]  # in file order; no two have the same `sample_id`
    source: str = ""  # where the samples come from: a file, a repository with its commit
    licence: str = ""  # SPDX identifier or a sentence; empty when unknown

    @property
    def licences(self) -> Counter[str]:
        """How many samples have which licence of their own in their metadata; empty if none has."""
        found = Counter(each.metadata.get("licence") or "not recorded" for each in self.samples)
        return found if found.keys() - {"not recorded"} else Counter()

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the sorted sample ids: independent of name and order."""
        return dataset_fingerprint(sample.sample_id for sample in self.samples)


def dataset_fingerprint(sample_ids: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(sample_ids)).encode()).hexdigest()

"""Samples and datasets: the commands a model is asked to judge."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

MAX_COMMAND_CHARS = 10_000
MAX_LABEL_CHARS = 200  # they stand in database indexes, limited to 2.7 KB


class TrueLabel(StrEnum):
    MALICIOUS = "malicious"
    HARMLESS = "harmless"


@dataclass(frozen=True, slots=True)
class Sample:
    """One labelled command; samples of equal content are the same sample, wherever they stand."""

    command: str
    target: TrueLabel
    category: str | None = None  # GTFOBins function such as `file-read`; None for harmless commands
    cluster: str | None = None  # name shared by similar samples, usually the binary; None: alone
    metadata: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Free annotations, which are no part of the identity."""

    def __reduce__(self) -> tuple[type["Sample"], tuple[object, ...]]:
        """Pickle in a third of the time that a dataclass takes."""
        return Sample, (self.command, self.target, self.category, self.cluster, self.metadata)

    @property
    def sample_id(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of the content."""
        parts = (self.target, self.category or "", self.cluster or "", self.command)
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class Dataset:
    """A named, immutable set of samples; its fingerprint is its identity."""

    name: str
    samples: tuple[Sample, ...]  # in file order; no two have the same `sample_id`
    source: str = ""  # where the samples come from: a file, a repository with its commit
    licence: str = ""  # SPDX identifier or a sentence; empty when unknown

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the sorted sample ids: independent of name and order."""
        return dataset_fingerprint(sample.sample_id for sample in self.samples)


def dataset_fingerprint(sample_ids: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(sample_ids)).encode()).hexdigest()

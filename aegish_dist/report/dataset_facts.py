"""Facts about an exported dataset that its metadata and its card share."""

from collections.abc import Mapping
from dataclasses import dataclass

from aegish_dist import __version__
from aegish_dist.core.sample import Dataset, Target
from aegish_dist.core.text import counted, printable

_SPDX = (
    *("MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Unlicense", "CC0-1.0"),
    *("CC-BY-4.0", "CC-BY-SA-4.0", "CC-BY-NC-4.0", "GPL-2.0", "GPL-3.0", "AGPL-3.0", "LGPL-3.0"),
    *("MPL-2.0", "ODbL-1.0", "PDDL-1.0"),
)
_IDS: Mapping[str, str] = {
    **{name.lower(): name for name in _SPDX},
    **{
        f"{name.lower()}{suffix}": f"{name}{suffix}"
        for name in _SPDX
        if "GPL" in name
        for suffix in ("-only", "-or-later")
    },
}


@dataclass(frozen=True, slots=True)
class DataFile:
    """The file that holds the samples."""

    name: str
    size: int
    sha256: str
    """Of its bytes, in hexadecimal digits."""

    @property
    def stem(self) -> str:
        """Its name without the suffix: that of the dataset when it is imported."""
        return self.name.removesuffix(".jsonl")


@dataclass(frozen=True, slots=True)
class ColumnFact:
    """One key of the objects in that file."""

    name: str
    meaning: str


COLUMNS = (
    ColumnFact("command", "The shell command as a model is shown it; never executed."),
    ColumnFact(
        "target", "The label: malicious (a guard has to block it) or harmless (let it pass)."
    ),
    ColumnFact("category", "What a malicious command does, such as file-read; null for others."),
    ColumnFact("cluster", "A name that alike commands share, usually the binary; null if alone."),
    ColumnFact("source", "Where the dataset comes from; null if unknown."),
    ColumnFact("licence", "Under which terms; null if unknown."),
    ColumnFact("metadata", "Further labels of the sample, all of them texts."),
)
"""In the order of the file."""


def spdx_id(licence: str) -> str | None:
    """Return the SPDX identifier that a licence is given by; None for a sentence."""
    return _IDS.get(licence.strip().lower())


def description(dataset: Dataset) -> str:
    """Return what a dataset holds, in two sentences."""
    malicious = sum(sample.target is Target.MALICIOUS for sample in dataset.samples)
    harmless = len(dataset.samples) - malicious
    return (
        f"{counted(len(dataset.samples), 'labelled shell command')}: {malicious:,} malicious,"
        f" {harmless:,} harmless. It measures whether a language model that guards a shell blocks"
        " the ones and lets the others pass."
    )


def citation(dataset: Dataset) -> str:
    """Return an entry for BibTeX; the fingerprint says which samples were meant."""
    source = f" from {dataset.source}" if dataset.source else ""
    key = "".join(each for each in dataset.name if each.isascii() and each.isalnum())
    return printable(
        f"@misc{{{key}, title = {{{dataset.name}: labelled shell commands}}, note = {{dataset"
        f"{source}, fingerprint {dataset.fingerprint}, exported by aegish-dist {__version__}}}}}"
    )

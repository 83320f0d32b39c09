"""A dataset for publication: metadata as Croissant 1.1, and a card for Hugging Face's hub."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Any

from aegish_dist import __version__
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.text import changed_texts, counted, printable, printable_json
from aegish_dist.datasets.table import dataset_lines
from aegish_dist.files import replacing_in
from aegish_dist.report.markdown import markdown_row, markdown_text
from aegish_dist.report.numbers import UNDEFINED, format_count

_SPDX = (
    *("MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Unlicense", "CC0-1.0"),
    *("CC-BY-4.0", "CC-BY-SA-4.0", "CC-BY-NC-4.0", "GPL-2.0", "GPL-3.0", "AGPL-3.0", "LGPL-3.0"),
    *("MPL-2.0", "ODbL-1.0", "PDDL-1.0"),
)
_IDS: Mapping[str, str] = {
    f"{name}{end}".lower(): f"{name}{end}"
    for name in _SPDX
    for end in (("", "-only", "-or-later") if "GPL" in name else ("",))
}


_METADATA = "croissant.json"
_CARD = "README.md"


def publish_dataset(dataset: Dataset, folder: Path, card: str = "") -> tuple[str, ...]:
    """Write a dataset into a folder: all files, or none; return their names.

    The same dataset gives the same bytes. Files of an earlier publication are replaced; a
    README.md without metadata beside it is an OutputError. `card` is what is to be known, in
    Markdown.
    """
    data = "".join(dataset_lines(dataset)).encode()
    # The name of a dataset that came with verdicts may be any text.
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", dataset.name).strip("._-")[:100] or "dataset"
    words = {
        "file": f"{stem}.jsonl",
        "size_bytes": str(len(data)),
        "sha256": hashlib.sha256(data).hexdigest(),
        "fingerprint": dataset.fingerprint,
        "description": _description(dataset),
        "card": f"\n\n{card.strip()}" if card else "",
    }
    files = {
        words["file"]: data,
        _METADATA: _croissant(dataset, words).encode(),
        _CARD: _dataset_card(dataset, words).encode(),
    }
    with replacing_in(folder, _is_ours) as opened:
        for name, content in files.items():
            opened(name).write(content)
    return tuple(files)


def _is_ours(path: Path) -> bool:
    """Keep the readme of a project: only beside metadata is it the card of a dataset."""
    is_readme = path.name == _CARD and path.is_file()
    return not is_readme or (path.parent / _METADATA).exists()


def _spdx_id(licence: str) -> str | None:
    """Return the SPDX identifier that a licence is given by; None for a sentence."""
    return _IDS.get(licence.strip().lower())


def _description(dataset: Dataset) -> str:
    malicious = sum(sample.target is TrueLabel.MALICIOUS for sample in dataset.samples)
    harmless = len(dataset.samples) - malicious
    return (
        f"{counted(len(dataset.samples), 'labelled shell command')}: {malicious:,} malicious,"
        f" {harmless:,} harmless. It measures whether a language model that guards a shell blocks"
        " the ones and lets the others pass."
    )


def _citation(dataset: Dataset) -> str:
    """Return an entry for BibTeX; the fingerprint says which samples were meant."""
    source = f" from {dataset.source}" if dataset.source else ""
    key = "".join(each for each in dataset.name if each.isascii() and each.isalnum())
    return printable(
        f"@misc{{{key}, title = {{{dataset.name}: labelled shell commands}}, note = {{dataset"
        f"{source}, fingerprint {dataset.fingerprint}, exported by aegish-dist {__version__}}}}}"
    )


_PARTS = json.loads(files(__package__).joinpath(_METADATA).read_text("utf-8"))
"""`document` with the fields of every dataset, and the field of one `label` in the metadata."""
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _croissant(dataset: Dataset, words: Mapping[str, str]) -> str:
    """Return the metadata of a dataset as JSON-LD, in ASCII."""
    spdx = _spdx_id(dataset.licence)
    licence = f"https://spdx.org/licenses/{spdx}.html" if spdx else dataset.licence
    own = {"name": dataset.name, "licence": licence, "citation": _citation(dataset)}
    document = _filled("document", {**words, **own})
    if not dataset.licence:
        del document["license"]
    keys = sorted({key for sample in dataset.samples for key in sample.metadata})
    document["recordSet"][0]["field"] += [
        _filled("label", {**words, "key": key}) for key in keys if _PLAIN_KEY.fullmatch(key)
    ]
    return printable_json(document) + "\n"


def _filled(part: str, words: Mapping[str, str]) -> Any:
    return changed_texts(_PARTS[part], lambda text: Template(text).substitute(words))


_CARD_TEXT = Template(files(__package__).joinpath("dataset_card.md").read_text("utf-8"))
_SIZES = {10**3: "n<1K", 10**4: "1K<n<10K", 10**5: "10K<n<100K", 10**6: "100K<n<1M"}
_UNKNOWN_TERMS = (
    "\n\nFind out under which terms the commands may be passed on before you publish them."
)
_SAME_TERMS = (
    "\n\nCopies and changed versions have to be passed on under the same licence. aegish-dist"
    " itself ships none of these commands; they were read from the source."
)


def _dataset_card(dataset: Dataset, words: Mapping[str, str]) -> str:
    fields = _PARTS["document"]["recordSet"][0]["field"]
    columns = [(f"`{each['name']}`", markdown_text(each["description"])) for each in fields]
    licence, samples = dataset.licence, len(dataset.samples)
    licences = (f"{name} ({number})" for name, number in dataset.licences.items())
    terms = _SAME_TERMS if "GPL" in licence.upper() else ""
    return _CARD_TEXT.substitute(
        words,
        front_licence="\n".join(_front_licence(licence)),
        pretty_name=json.dumps(dataset.name),
        size=next((name for most, name in _SIZES.items() if samples < most), "n>1M"),
        data_file=json.dumps(words["file"]),
        title=markdown_text(dataset.name),
        columns=_table(("column", "meaning"), columns),
        labels=_table(("target", "category", "commands", "clusters"), _labels(dataset)),
        source=markdown_text(dataset.source) if dataset.source else "not recorded",
        licence=markdown_text(licence or ", ".join(licences) or "not recorded"),
        terms=terms if licence else _UNKNOWN_TERMS,
        further_limits="".join(f"\n- {text}" for text in _further_limits(dataset)),
        commands=format_count(samples),
        first_digits=dataset.fingerprint[:12],
        bytes=format_count(int(words["size_bytes"])),
        version=__version__,
        name=words["file"].removesuffix(".jsonl"),
        citation=_block("bibtex", _citation(dataset)),
    )


def _front_licence(licence: str) -> list[str]:
    """Return lines of YAML; texts are quoted as in JSON, which is YAML too."""
    spdx = _spdx_id(licence)
    if spdx is not None:
        return [f"license: {spdx.lower().removesuffix('-only').removesuffix('-or-later')}"]
    if licence:
        return ["license: other", f"license_name: {json.dumps(licence)}"]
    return ["license: unknown"]


def _labels(dataset: Dataset) -> Iterator[tuple[str, ...]]:
    """Yield rows; a sample without a cluster is a cluster of its own."""
    ordered = sorted(dataset.samples, key=_label)
    for (target, category), group in groupby(ordered, _label):
        clusters = [sample.cluster for sample in group]
        distinct = len(set(filter(None, clusters))) + sum(not each for each in clusters)
        counts = format_count(len(clusters)), format_count(distinct)
        yield target.value, markdown_text(category) or UNDEFINED, *counts


def _label(sample: Sample) -> tuple[TrueLabel, str]:
    return sample.target, sample.category or ""


def _further_limits(dataset: Dataset) -> Iterator[str]:
    targets = {sample.target for sample in dataset.samples}
    if len(targets) == 1:
        yield (
            f"All commands are {targets.pop()}: alone, the dataset cannot tell a careful guard"
            " from one that always gives the same answer."
        )
    without = sum(not sample.cluster for sample in dataset.samples)
    if without:
        yield f"Commands without a cluster ({format_count(without)}) count as independent."


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(map(markdown_row, [head, [":--"] * len(head), *rows]))


def _block(language: str, text: str) -> str:
    """Return a fenced block; its fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"

"""A dataset for publication: metadata as Croissant 1.1, and a card for Hugging Face's hub."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from aegish_dist import __version__
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.text import counted, printable, printable_json
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
    **{name.lower(): name for name in _SPDX},
    **{
        f"{name.lower()}{suffix}": f"{name}{suffix}"
        for name in _SPDX
        if "GPL" in name
        for suffix in ("-only", "-or-later")
    },
}


_COLUMNS = {
    "command": "The shell command as a model is shown it; never executed.",
    "target": "The label: malicious (a guard has to block it) or harmless (let it pass).",
    "category": "What a malicious command does, such as file-read; null for others.",
    "cluster": "A name that alike commands share, usually the binary; null if alone.",
    "source": "Where the dataset comes from; null if unknown.",
    "licence": "Under which terms; null if unknown.",
    "metadata": "Further labels of the sample, all of them texts.",
}
"""By what they mean, in the order of the file."""
_METADATA = "croissant.json"
_CARD = "README.md"


class _DataFile(Struct, frozen=True):
    name: str
    size: int
    sha256: str  # in hexadecimal digits


def publish_dataset(dataset: Dataset, folder: Path) -> tuple[str, ...]:
    """Write a dataset into a folder: all files, or none; return their names.

    The same dataset gives the same bytes. Files of an earlier publication are replaced; a
    README.md without metadata beside it is an OutputError.
    """
    data = "".join(dataset_lines(dataset)).encode()
    # The name of a dataset that came with verdicts may be any text.
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", dataset.name).strip("._-")[:100] or "dataset"
    file = _DataFile(f"{stem}.jsonl", len(data), hashlib.sha256(data).hexdigest())
    files = {
        file.name: data,
        _METADATA: _croissant(dataset, file).encode(),
        _CARD: _dataset_card(dataset, file).encode(),
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


_TERMS = (
    *("arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract", "field"),
    *("fileProperty", "fileObject", "fileSet", "format", "includes", "isArray", "isLiveDataset"),
    *("jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex"),
    *("repeated", "replace", "samplingRate", "separator", "source", "subField", "transform"),
)
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    **{term: f"cr:{term}" for term in _TERMS},
}
"""The whole vocabulary of the specification: loaders warn of any other context."""
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _croissant(dataset: Dataset, file: _DataFile) -> str:
    """Return the metadata of a dataset as JSON-LD, in ASCII."""
    licence = {}
    if dataset.licence:
        spdx = _spdx_id(dataset.licence)
        licence["license"] = f"https://spdx.org/licenses/{spdx}.html" if spdx else dataset.licence
    keys = sorted({key for sample in dataset.samples for key in sample.metadata})
    fields = [
        *(
            _field(file, name, meaning, extract={"column": name})
            for name, meaning in _COLUMNS.items()
            if name != "metadata"
        ),
        *(
            _field(
                file,
                f"metadata.{key}",
                f"The value of '{key}' among the metadata of a sample; null where it has none.",
                extract={"column": "metadata"},
                transform={"jsonPath": f"$.{key}"},
            )
            for key in keys
            if _PLAIN_KEY.fullmatch(key)
        ),
    ]
    document = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": dataset.name,
        "description": _description(dataset),
        "identifier": f"sha256:{dataset.fingerprint}",
        **licence,
        "citeAs": _citation(dataset),
        "isLiveDataset": False,
        "keywords": ["shell", "security", "command classification"],
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": file.name,
                "name": file.name,
                "contentUrl": file.name,
                "contentSize": f"{file.size} B",
                "encodingFormat": "application/jsonlines",
                "sha256": file.sha256,
            }
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "samples",
                "name": "samples",
                "description": "One record per labelled shell command.",
                "field": fields,
            }
        ],
    }
    return printable_json(document) + "\n"


def _field(file: _DataFile, name: str, meaning: str, **source: dict[str, str]) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"samples/{name}",
        "name": name,
        "description": meaning,
        "dataType": "sc:Text",
        "source": {"fileObject": {"@id": file.name}, **source},
    }


_SIZES = {10**3: "n<1K", 10**4: "1K<n<10K", 10**5: "10K<n<100K", 10**6: "100K<n<1M"}
_LIMITS = (
    "A label is of a command alone. Who runs it, where, and with which permissions is not known.",
    "Commands of one cluster are alike: results about them are no independent observations.",
    "The commands are no sample of what is typed somewhere: the share of malicious ones says"
    " nothing about how often attacks happen.",
    "Published commands may be in the training data of a model: a high score may be memory.",
)


def _dataset_card(dataset: Dataset, file: _DataFile) -> str:
    columns = [(f"`{name}`", markdown_text(meaning)) for name, meaning in _COLUMNS.items()]
    parts = [
        _front_matter(dataset, file),
        f"# {markdown_text(dataset.name)}",
        _description(dataset),
        "## Columns",
        f"`{file.name}` has one JSON object per line:",
        _table(("column", "meaning"), columns),
        "## Labels",
        *_labels(dataset),
        "## Source and licence",
        *_provenance(dataset),
        "## Known limits",
        "\n".join(f"- {text}" for text in _limits(dataset)),
        "## Identity",
        *_identity(dataset, file),
        "## Use",
        *_use(dataset, file),
        "## Citation",
        _block("bibtex", _citation(dataset)),
    ]
    return "\n\n".join(parts) + "\n"


def _front_matter(dataset: Dataset, file: _DataFile) -> str:
    """Return YAML; texts are quoted as in JSON, which is YAML too."""
    size = next((name for most, name in _SIZES.items() if len(dataset.samples) < most), "n>1M")
    spdx = _spdx_id(dataset.licence)
    if spdx is not None:
        licence = [f"license: {spdx.lower().removesuffix('-only').removesuffix('-or-later')}"]
    elif dataset.licence:
        licence = ["license: other", f"license_name: {json.dumps(dataset.licence)}"]
    else:
        licence = ["license: unknown"]
    lines = [
        *licence,
        f"pretty_name: {json.dumps(dataset.name)}",
        "task_categories:",
        "- text-classification",
        "tags:",
        *(f"- {tag}" for tag in ("security", "shell", "benchmark", "croissant")),
        "size_categories:",
        f"- {size}",
        "configs:",
        "- config_name: default",
        f"  data_files: {json.dumps(file.name)}",
    ]
    return "\n".join(["---", *lines, "---"])


def _labels(dataset: Dataset) -> Iterator[str]:
    yield (
        "`malicious`: a guard has to answer BLOCK. `harmless`: ALLOW or WARN. Which answer counts"
        " as right is a matter of the rule set under which results are scored."
    )
    counts = Counter((sample.target, sample.category or "") for sample in dataset.samples)
    yield _table(
        ("target", "category", "commands", "clusters"),
        [
            (
                target.value,
                markdown_text(category) or UNDEFINED,
                format_count(number),
                format_count(_clusters(dataset.samples, target, category)),
            )
            for (target, category), number in sorted(counts.items())
        ],
    )


def _clusters(samples: Sequence[Sample], target: TrueLabel, category: str) -> int:
    """Count clusters; a sample without one is a cluster of its own."""
    chosen = [s for s in samples if s.target is target and (s.category or "") == category]
    return len({s.cluster for s in chosen if s.cluster}) + sum(not s.cluster for s in chosen)


def _provenance(dataset: Dataset) -> Iterator[str]:
    source = markdown_text(dataset.source) if dataset.source else "not recorded"
    licence = markdown_text(dataset.licence) if dataset.licence else "not recorded"
    yield f"- **Source:** {source}\n- **Licence:** {licence}"
    if not dataset.licence:
        yield "Find out under which terms the commands may be passed on before you publish them."
    elif "GPL" in dataset.licence.upper():
        yield (
            "Copies and changed versions have to be passed on under the same licence. aegish-dist"
            " itself ships none of these commands; they were read from the source."
        )


def _limits(dataset: Dataset) -> Iterator[str]:
    yield from _LIMITS
    targets = {sample.target for sample in dataset.samples}
    if len(targets) == 1:
        (only,) = targets
        yield (
            f"All commands are {only.value}: alone, the dataset cannot tell a careful guard from"
            " one that always gives the same answer."
        )
    without = sum(not sample.cluster for sample in dataset.samples)
    if without:
        yield f"Commands without a cluster ({format_count(without)}) count as independent."


def _identity(dataset: Dataset, file: _DataFile) -> Iterator[str]:
    yield _table(
        ("", ""),
        [
            ("commands", format_count(len(dataset.samples))),
            ("fingerprint", f"`{dataset.fingerprint}`"),
            (f"SHA-256 of `{file.name}`", f"`{file.sha256}`"),
            ("bytes", format_count(file.size)),
            ("written by", f"aegish-dist {__version__}"),
        ],
    )
    yield (
        "The fingerprint is made of command, target, category and cluster of every sample,"
        " whatever their order: two datasets with the same one ask the same."
    )


def _use(dataset: Dataset, file: _DataFile) -> Iterator[str]:
    name = file.name.removesuffix(".jsonl")
    yield (
        "`croissant.json` describes the file to loaders that know Croissant. To ask models with"
        " aegish-dist:"
    )
    yield _block(
        "",
        f"aegish-dist datasets import table {file.name} --name {name}\n"
        f"aegish-dist submit --dataset {name} --models ID[,ID...]",
    )
    yield f"The import prints the fingerprint; it begins with `{dataset.fingerprint[:12]}`."


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(map(markdown_row, [head, [":--"] * len(head), *rows]))


def _block(language: str, text: str) -> str:
    """Return a fenced block; its fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"

"""A dataset's card: Markdown with the front matter that Hugging Face's hub reads."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from aegish_dist import __version__
from aegish_dist.core.sample import Dataset, Sample, Target
from aegish_dist.report.dataset_facts import COLUMNS, DataFile, citation, description, spdx_id
from aegish_dist.report.markdown import markdown_row, markdown_text
from aegish_dist.report.numbers import UNDEFINED, format_count

_SIZES = (
    (10**3, "n<1K"),
    (10**4, "1K<n<10K"),
    (10**5, "10K<n<100K"),
    (10**6, "100K<n<1M"),
)
_LIMITS = (
    "A label is of a command alone. Who runs it, where, and with which permissions is not known.",
    "Commands of one cluster are alike: results about them are no independent observations.",
    "The commands are no sample of what is typed somewhere: the share of malicious ones says"
    " nothing about how often attacks happen.",
    "Published commands may be in the training data of a model: a high score may be memory.",
)


def dataset_card(dataset: Dataset, file: DataFile) -> str:
    """Return a card: what a dataset holds, where it comes from, and how to use and cite it."""
    parts = [
        _front_matter(dataset, file),
        f"# {markdown_text(dataset.name)}",
        description(dataset),
        *_section("Columns", [_columns(file)]),
        *_section("Labels", _labels(dataset)),
        *_section("Source and licence", _provenance(dataset)),
        *_section("Known limits", [_items(_limits(dataset))]),
        *_section("Identity", [_identity(dataset, file)]),
        *_section("Use", [_use(dataset, file)]),
        *_section("Citation", [_block("bibtex", citation(dataset))]),
    ]
    return "\n\n".join(parts) + "\n"


def _section(title: str, parts: Iterable[str]) -> list[str]:
    return [f"## {title}", *parts]


def _front_matter(dataset: Dataset, file: DataFile) -> str:
    """Return YAML; texts are quoted as in JSON, which is YAML too."""
    size = next((name for most, name in _SIZES if len(dataset.samples) < most), "n>1M")
    lines = [
        *_licence(dataset),
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


def _licence(dataset: Dataset) -> list[str]:
    known = spdx_id(dataset.licence)
    if known is not None:
        return [f"license: {known.lower().removesuffix('-only').removesuffix('-or-later')}"]
    if not dataset.licence:
        return ["license: unknown"]
    return ["license: other", f"license_name: {json.dumps(dataset.licence)}"]


def _columns(file: DataFile) -> str:
    rows = [(f"`{column.name}`", markdown_text(column.meaning)) for column in COLUMNS]
    return f"`{file.name}` has one JSON object per line:\n\n{_table(('column', 'meaning'), rows)}"


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


def _clusters(samples: Sequence[Sample], target: Target, category: str) -> int:
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


def _identity(dataset: Dataset, file: DataFile) -> str:
    return _table(
        ("", ""),
        [
            ("commands", format_count(len(dataset.samples))),
            ("fingerprint", f"`{dataset.fingerprint}`"),
            (f"SHA-256 of `{file.name}`", f"`{file.sha256}`"),
            ("bytes", format_count(file.size)),
            ("written by", f"aegish-dist {__version__}"),
        ],
    ) + (
        "\n\nThe fingerprint is made of command, target, category and cluster of every sample,"
        " whatever their order: two datasets with the same one ask the same."
    )


def _use(dataset: Dataset, file: DataFile) -> str:
    commands = (
        f"aegish-dist datasets import table {file.name} --name {file.stem}\n"
        f"aegish-dist submit --dataset {file.stem} --models ID[,ID...]"
    )
    return (
        "`croissant.json` describes the file to loaders that know Croissant. To ask models with"
        f" aegish-dist:\n\n{_block('', commands)}\n\nThe import prints the fingerprint; it begins"
        f" with `{dataset.fingerprint[:12]}`."
    )


def _items(texts: Iterable[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(map(markdown_row, [head, [":--"] * len(head), *rows]))


def _block(language: str, text: str) -> str:
    """Return a fenced block; its fence is longer than any in the text."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"

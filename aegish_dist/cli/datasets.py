"""`aegish-dist datasets`: what models are asked."""

from collections import Counter
from pathlib import Path

import click
import msgspec

from aegish_dist.cli.command import FILE, group
from aegish_dist.cli.options import OneOf, Utf8, as_json, completes, open_store
from aegish_dist.cli.printing import note, say, say_json, say_lines, say_table
from aegish_dist.core.sample import Dataset, TrueLabel
from aegish_dist.core.text import JsonObject, counted
from aegish_dist.datasets.bundled import bundled_names, card_of
from aegish_dist.datasets.draft import Draft, Problem, Severity
from aegish_dist.datasets.duplicates import alike
from aegish_dist.datasets.formats import FORMATS, read_format
from aegish_dist.datasets.gtfobins import read_gtfobins
from aegish_dist.datasets.table import export_dataset, read_aegish, read_dataset, read_table
from aegish_dist.inputs.checking import Location
from aegish_dist.pipeline.datasets import choose_dataset, known_datasets, store_dataset

MAX_LINES = 1_000  # of problems, on a screen

_known_dataset = click.argument("name", type=Utf8(), shell_complete=completes(bundled_names))
_path = click.argument("path", type=FILE)
_name = click.option("--name", help="Default: the file's name.")


@group("aegish-dist datasets list")
def datasets() -> None:
    """List, show, import, validate and export datasets."""


@datasets.command("list", examples=("aegish-dist datasets list",))
@as_json
def list_(as_json: bool) -> None:
    """List the datasets that a run may name."""
    datasets = known_datasets(open_store().engine)
    if as_json:
        say_json([msgspec.structs.asdict(dataset) for dataset in datasets])
        return
    rows = []
    for dataset in datasets:
        numbers = (dataset.samples, dataset.malicious, dataset.samples - dataset.malicious)
        row = [dataset.name, dataset.fingerprint[:12]]
        rows.append(row + [f"{number:,}" for number in numbers])
    say_table(("Dataset", "Fingerprint"), rows, ("Samples", "Malicious", "Harmless"))


@datasets.command(examples=("aegish-dist datasets show harmless --samples 5",))
@_known_dataset
@click.option("--samples", type=click.IntRange(0), metavar="N", help="Print N samples.")
@as_json
def show(name: str, samples: int | None, as_json: bool) -> None:
    """Show what a dataset holds."""
    dataset = choose_dataset(open_store().engine, name)
    summary = _summary(dataset)
    examples = dataset.samples[: samples or 0]
    if as_json:
        say_json({**summary, "examples": msgspec.to_builtins(examples)})
        return
    for key, value in summary.items():
        text = str(value)
        if isinstance(value, dict):
            text = ", ".join(f"{part} {number}" for part, number in value.items())
        say(f"{key:12} {text}")
    card = card_of(dataset)
    if card:
        say_lines(f"\n{card.rstrip()}")
    # Printed at once: standard output is flushed each time.
    lines = []
    for sample in examples:
        category = sample.category or "-"
        lines.append(f"{sample.target:10} {category:14} {sample.command}")
    say(*lines)


def _summary(dataset: Dataset) -> JsonObject:
    samples = dataset.samples
    targets = Counter(sample.target.value for sample in samples)
    categories = Counter(sample.category for sample in samples if sample.category)
    clusters = {sample.cluster for sample in samples if sample.cluster}
    summary: JsonObject = {
        "name": dataset.name,
        "fingerprint": dataset.fingerprint,
        "source": dataset.source,
        "licence": dataset.licence,
    }
    if dataset.licences:
        summary["licences"] = dict(dataset.licences)
    return summary | {
        "samples": len(samples),
        "targets": dict(sorted(targets.items())),
        "categories": dict(sorted(categories.items())),
        "clusters": len(clusters),
    }


@datasets.group(
    "import",
    examples=("aegish-dist datasets import table commands.csv",),
    advice="`aegish-dist datasets import table FILE` reads a CSV, JSONL or Parquet file",
)
def import_() -> None:
    """Read a dataset and store it, whole or not at all."""


def _store(draft: Draft) -> None:
    # Refused as a whole before the store is opened, which may start a database.
    dataset = draft.checked()
    store_dataset(open_store().engine, dataset, note)
    _note_skipped(draft)
    summary = _summary(dataset)
    say(
        f"{dataset.name}: {summary['samples']} samples, {summary['clusters']} clusters,"
        f" fingerprint {dataset.fingerprint[:12]}"
    )


def _note_skipped(draft: Draft) -> None:
    for error in draft.skipped:
        note(f"skipped: {error}")
    if draft.skipped:
        note(f"{len(draft.skipped)} files or entries skipped, as they cannot be read")
    if draft.left_out:
        reasons = [f"{number:,} {reason}" for reason, number in draft.left_out.items()]
        note(f"left out: {', '.join(reasons)}")


@import_.command(examples=("aegish-dist datasets import gtfobins GTFOBins.github.io",))
@_path
def gtfobins(path: Path) -> None:
    """Read a checkout of GTFOBins (its data are GPL-3)."""
    _store(read_gtfobins(path))


@import_.command(examples=("aegish-dist datasets import aegish aegish.json --name mine",))
@_path
@_name
def aegish(path: Path, name: str | None) -> None:
    """Read a JSON file of the aegish benchmark.

    Its form is `{"metadata": {...}, "commands": [{"command", "binary", "category"}, ...]}`.
    """
    _store(read_aegish(path, name))


@import_.command("table", examples=("aegish-dist datasets import table commands.csv --name mine",))
@_path
@_name
def table_(path: Path, name: str | None) -> None:
    """Read a JSONL, CSV or Parquet file.

    Columns: command, target (malicious or harmless), category, cluster, source, licence; others
    become metadata.
    """
    _store(read_table(path, name))


def _importer(form: str) -> None:
    """Add the command that reads a published format, in the words of its entry."""
    about = FORMATS[form]

    @_path
    @click.option("--name", default=form, help="A name for the dataset.")
    def run(path: Path, name: str, label: str | None = None) -> None:
        _store(read_format(form, path, name, TrueLabel(label) if label else None))

    licence = about.licence or "licences vary"
    run.__doc__ = f"Read {about.source} ({licence}).\n\nPATH is {about.takes}."
    if about.declared:
        labels = OneOf([label.value for label in TrueLabel])
        text = "What you declare the commands to be; nothing in the file says it."
        run = click.option("--label", type=labels, required=True, help=text)(run)
    example = f"aegish-dist datasets import {form} {about.example}"
    import_.command(form, examples=(example,))(run)


for each in FORMATS:
    _importer(each)


@datasets.command(
    examples=(
        "aegish-dist datasets validate commands.csv",
        "aegish-dist datasets validate commands.csv harmless malicious",
    )
)
@click.argument(
    "sets", nargs=-1, required=True, type=Utf8(), shell_complete=completes(bundled_names)
)
@as_json
def validate(sets: tuple[str, ...], as_json: bool) -> int:
    """Check labels, and find commands that repeat each other.

    SETS are files and checkouts before their import, or names of datasets: a JSONL, CSV or Parquet
    file, a JSON file of the aegish benchmark, a checkout of GTFOBins or of a format of `datasets
    import`. Lists every wrong record with its line; what cannot be read at all ends the list.

    Commands that differ only in writing, and near duplicates, are looked for in all sets together.
    Exit code 1 if an error would stop an import, or if copies of a command have both labels.
    """
    drafts = [_draft(given) for given in sets]
    problems: list[tuple[int, Problem]] = []  # with the number of the set
    for number, draft in enumerate(drafts):
        problems += [(number, problem) for problem in draft.problems()]
    problems += alike(drafts)
    # By set, then by line: repeats come from a search over all sets.
    problems.sort(key=lambda numbered: (numbered[0], numbered[1].record))
    errors = sum(problem.severity is Severity.ERROR for _, problem in problems)
    warnings = len(problems) - errors
    exit_code = 1 if errors else 0
    if as_json:
        listed = []
        for number, problem in problems:
            listed.append({"dataset": drafts[number].file, **msgspec.structs.asdict(problem)})
        say_json({"errors": errors, "warnings": warnings, "problems": listed})
        return exit_code
    for draft in drafts:
        _note_skipped(draft)
    if len(problems) > MAX_LINES:
        # Errors first: warnings are left out before any of them is.
        problems.sort(key=lambda numbered: numbered[1].severity)
        note(f"{len(problems) - MAX_LINES:,} warnings or errors more are listed by --json")
    for number, problem in problems[:MAX_LINES]:
        place = f"{drafts[number].file}, line {problem.record}"
        field = problem.field or "record"
        say(f"{place}, {problem.severity}: {field}: {problem.message}")
    note(f"{errors} errors, {warnings} warnings")
    return exit_code


# What ends so is a file, if a missing one; `mine-1.2` is the name of a dataset.
_SUFFIXES = (".csv", ".json", ".jsonl", ".parquet")


def _draft(given: str) -> Draft:
    """Return a file or checkout as it is read, or a stored or bundled dataset as it stands."""
    path = Path(given)
    # A text may be too long for a path.
    with Location(given):
        is_file = path.suffix in _SUFFIXES or path.exists()
    if is_file and given not in bundled_names():
        return read_dataset(path)
    dataset = choose_dataset(open_store().engine, given)
    return Draft(
        name=given,
        samples=dataset.samples,
        lines=tuple(range(1, len(dataset.samples) + 1)),
        file=given,
        source=dataset.source,
        licence=dataset.licence,
    )


@datasets.command(examples=("aegish-dist datasets export harmless harmless.csv",))
@_known_dataset
@_path
def export(name: str, path: Path) -> None:
    """Write a dataset to a file: .jsonl, .csv or .parquet.

    `datasets import table` of the file gives the same dataset again.
    """
    dataset = choose_dataset(open_store().engine, name)
    export_dataset(dataset, path)
    note(f"{counted(len(dataset.samples), 'sample')} written to {path}")

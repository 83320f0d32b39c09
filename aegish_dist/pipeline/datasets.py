"""Choosing, importing and listing datasets."""

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace
from sqlalchemy import Engine

from aegish_dist.core.run import RunDataset
from aegish_dist.core.sample import Dataset, TrueLabel
from aegish_dist.core.text import counted, did_you_mean
from aegish_dist.datasets.bundled import bundled_names, load_bundled
from aegish_dist.db.engine import in_transaction, transaction
from aegish_dist.db.runs import (
    list_datasets,
    load_dataset,
    load_run_dataset,
    resolve_run_id,
    save_dataset,
)
from aegish_dist.errors import DatasetError


def choose_dataset(engine: Engine, name: str) -> Dataset:
    """Return a dataset by the name that users type: a stored one, else a bundled one.

    `NAME@RUN` stands for the part of it that a run asked or an import brought.
    """
    plain, _, run = name.partition("@")
    with transaction(engine) as session:
        if run:
            stored = load_run_dataset(session, resolve_run_id(session, run), plain)
        else:
            stored = load_dataset(session, name)  # nosec B615 # reads PostgreSQL
    if stored is not None:
        return stored
    if name in bundled_names():
        return load_bundled(name)
    listed = "`aegish-dist datasets list` shows them, `datasets import` adds one"
    known = [each.name for each in known_datasets(engine)]
    raise DatasetError(f"no such dataset; {did_you_mean(name, known, listed)}", source=name)


def require_categories(datasets: Iterable[Dataset], categories: Iterable[str]) -> None:
    """Refuse a category that occurs in none of the datasets: most likely it is misspelt.

    The DatasetError names the first such category and those that there are.
    """
    known = {sample.category for each in datasets for sample in each.samples if sample.category}
    for category in categories:
        if category not in known:
            hint = did_you_mean(category, known, f"there are {', '.join(sorted(known)) or 'none'}")
            raise DatasetError(f"no such category; {hint}", source=category)


def narrow(dataset: Dataset, categories: Sequence[str], limit: int | None) -> Dataset:
    """Return the part of a dataset that a run asks; a part has a fingerprint of its own.

    Categories choose malicious samples, all when empty; harmless samples have none and stay. A
    limit chooses samples by their ids: always the same ones, in no order of the file.
    """
    samples = dataset.samples
    if categories and any(sample.target is TrueLabel.MALICIOUS for sample in samples):
        samples = tuple(
            s for s in samples if s.target is TrueLabel.HARMLESS or s.category in categories
        )
    if limit is not None:
        kept = {s.sample_id for s in sorted(samples, key=lambda s: s.sample_id)[:limit]}
        samples = tuple(s for s in samples if s.sample_id in kept)
    if not samples:
        known = sorted({s.category for s in dataset.samples if s.category})
        raise DatasetError(
            f"nothing is left of it; its categories are {', '.join(known) or 'none'}",
            source=dataset.name,
        )
    return replace(dataset, samples=samples)


def store_dataset(engine: Engine, dataset: Dataset, note: Callable[[str], object]) -> None:
    """Store a dataset under its name, and note which one it takes the place of."""
    for known in known_datasets(engine):
        if known.name == dataset.name and known.fingerprint != dataset.fingerprint:
            replaced = counted(known.samples, "command")
            note(f"{known.name}: replaces {replaced}; earlier runs keep theirs")
    in_transaction(engine, save_dataset, dataset, selectable=True)


def known_datasets(engine: Engine) -> list[RunDataset]:
    """Return every dataset a run may name, stored ones in place of bundled ones of that name."""
    datasets = {name: describe(load_bundled(name)) for name in bundled_names()}
    for stored in in_transaction(engine, list_datasets):
        datasets[stored.name] = stored
    return list(datasets.values())


def describe(dataset: Dataset) -> RunDataset:
    return RunDataset(
        name=dataset.name,
        fingerprint=dataset.fingerprint,
        samples=len(dataset.samples),
        malicious=sum(sample.target is TrueLabel.MALICIOUS for sample in dataset.samples),
        source=dataset.source,
        licence=dataset.licence,
    )

"""Write a dataset to a file that `table.read_table` reads back."""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from aegish_dist.core.sample import Dataset, Sample
from aegish_dist.errors import DatasetError
from aegish_dist.files import replacing, replacing_text
from aegish_dist.inputs.parquet import load_pyarrow

_COLUMNS = ("command", "target", "category", "cluster", "source", "licence")


def export_dataset(dataset: Dataset, path: Path) -> None:
    """Write all samples; JSONL keeps all of it, CSV and Parquet flatten the metadata.

    The file appears whole or not at all.

    Args:
        path: A file ending in `.jsonl`, `.csv` or `.parquet`; replaced if it exists.

    Raises:
        ConfigError: Parquet is asked for and pyarrow is not installed.
    """
    write = _WRITERS.get(path.suffix.lower())
    if write is None:
        raise DatasetError(f"is none of {', '.join(_WRITERS)}", source=str(path))
    write(dataset, path)


def dataset_lines(dataset: Dataset) -> Iterator[str]:
    """Yield all samples as lines of JSON."""
    for sample in dataset.samples:
        yield json.dumps(_nested(dataset, sample), ensure_ascii=False) + "\n"


def _write_jsonl(dataset: Dataset, path: Path) -> None:
    with replacing_text(path) as file:
        file.writelines(dataset_lines(dataset))


def _nested(dataset: Dataset, sample: Sample) -> dict[str, object]:
    return {
        "command": sample.command,
        "target": sample.target,
        "category": sample.category,
        "cluster": sample.cluster,
        "source": dataset.source or None,
        "licence": dataset.licence or None,
        "metadata": dict(sample.metadata),
    }


def _write_csv(dataset: Dataset, path: Path) -> None:
    with replacing_text(path) as file:
        writer = csv.DictWriter(file, _flat_columns(dataset), lineterminator="\n")
        writer.writeheader()
        writer.writerows(_flat(dataset, sample) for sample in dataset.samples)


def _write_parquet(dataset: Dataset, path: Path) -> None:
    arrow = load_pyarrow()
    schema = arrow.schema([(column, arrow.string()) for column in _flat_columns(dataset)])
    rows = [_flat(dataset, sample) for sample in dataset.samples]
    with replacing(path) as stream:
        arrow.parquet.write_table(arrow.Table.from_pylist(rows, schema=schema), stream)


def _flat_columns(dataset: Dataset) -> list[str]:
    keys = dict.fromkeys(key for sample in dataset.samples for key in sample.metadata)
    return [*_COLUMNS, *(key for key in keys if key not in _COLUMNS)]


def _flat(dataset: Dataset, sample: Sample) -> dict[str, str]:
    fields = {"source": dataset.source, "licence": dataset.licence, **sample.metadata}
    fields |= {"command": sample.command, "target": sample.target.value}
    fields |= {"category": sample.category or "", "cluster": sample.cluster or ""}
    return {column: value for column, value in fields.items() if value}


_WRITERS: dict[str, Callable[[Dataset, Path], None]] = {
    ".jsonl": _write_jsonl,
    ".csv": _write_csv,
    ".parquet": _write_parquet,
}

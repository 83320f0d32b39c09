"""Reading whatever can be imported, by the look of its path."""

from pathlib import Path

from aegish_dist.datasets.draft import Draft
from aegish_dist.datasets.gtfobins import read_gtfobins
from aegish_dist.datasets.table import read_aegish, read_table
from aegish_dist.errors import DatasetError


def read_dataset(path: Path) -> Draft:
    """Read a table, a JSON file of the aegish benchmark or a checkout of GTFOBins.

    Args:
        path: A file ending in `.jsonl`, `.csv`, `.parquet` or `.json`, or a directory.

    Raises:
        DatasetError: When it cannot be read as what its name says.
        ConfigError: When it is Parquet and pyarrow is not installed.
    """
    if not path.exists():
        raise DatasetError("no such file or folder", source=str(path))
    if path.is_dir():
        return read_gtfobins(path)
    return read_aegish(path) if path.suffix.lower() == ".json" else read_table(path)

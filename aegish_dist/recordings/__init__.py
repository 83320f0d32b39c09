"""Recorded verdicts as files: what other tools measured comes in, what was measured here goes out.

Reading gives facts, judged by today's parser; nothing here knows the database.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

from aegish_dist.core.verdict import Recording
from aegish_dist.core.verdict_record import verdict_of
from aegish_dist.recordings.chunks import ChunkReader, split
from aegish_dist.recordings.record import Row

__all__ = ["read_recordings"]


def read_recordings(path: Path) -> Iterator[Recording]:
    """Read the recordings of a file one by one, as its suffix says.

    Args:
        path: A log of Inspect AI (`.eval`), verdict lines (`.jsonl`) or the same as `.parquet`.

    Raises:
        DatasetError: At once when the suffix is none of these or the file cannot be opened; while
            iterating when the file is wrong somewhere.
        ConfigError: The file is Parquet and pyarrow is not installed.
    """
    return map(_recording, chain.from_iterable(map(ChunkReader().read, split(path))))


def _recording(row: Row) -> Recording:
    return Recording(
        model=row.record.model,
        dataset=row.about.dataset,
        sample=replace(row.about.sample, metadata=row.record.metadata),  # no part of its identity
        epoch=row.record.epoch,
        verdict=verdict_of(row.record),
        generation=row.record.generation,
        simulated=row.record.simulated,
        negative_time=row.negative_time,
    )

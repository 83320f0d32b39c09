"""Rendered chunks get the keys that only the store can give, while others are being stored."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from typing import NamedTuple

from sqlalchemy.orm import Session

from aegish_dist.core.verdict_record import AttemptRecord
from aegish_dist.db.imports import RunImport
from aegish_dist.db.verdict_copy import SecondVerdictError, copy_errors, copy_verdicts
from aegish_dist.db.verdict_rows import VerdictKey
from aegish_dist.errors import DatasetError
from aegish_dist.pipeline.import_chunk import Rendered
from aegish_dist.recordings.chunks import Chunk


class Batch(NamedTuple):
    """A chunk as rows with keys."""

    chunk: Chunk
    rendered: Rendered
    lines: bytes
    """For `copy_verdicts`."""
    errors: list[tuple[VerdictKey, AttemptRecord]]


def with_keys(
    target: RunImport, writer: Executor, results: Iterable[tuple[Chunk, Rendered]]
) -> Iterator[Batch]:
    """Yield each chunk with its keys.

    Args:
        target: The run.
        writer: One thread, which alone uses the session: asked only for keys of what is new.
        results: The chunks.
    """
    known: dict[str, int] = {}
    samples_of: dict[int, list[int]] = defaultdict(list)
    for chunk, rendered in results:
        for model in rendered.models:
            if model not in known:
                known[model] = writer.submit(target.model_key, model).result()
        samples = samples_of[rendered.reader]
        if rendered.items:
            samples += writer.submit(target.sample_keys, rendered.items).result()
        models = [known[model] for model in rendered.models]
        yield _batch(chunk, rendered, models, samples)


def store(session: Session, batch: Batch) -> Batch:
    """Store a batch and return it.

    Raises:
        DatasetError: An item has a verdict already.
    """
    try:
        copy_verdicts(session, batch.lines)
    except SecondVerdictError as error:
        raise DatasetError(
            "holds a second verdict of one model about one sample in one epoch, in this file "
            "or one before; give repeats different epochs",
            source=str(batch.chunk.path),
        ) from error
    if batch.errors:
        copy_errors(session, batch.errors)
    return batch


def _batch(chunk: Chunk, rendered: Rendered, models: list[int], samples: list[int]) -> Batch:
    keys = zip(
        map(models.__getitem__, rendered.model_of),
        map(samples.__getitem__, rendered.sample_of),
        rendered.lines.splitlines(keepends=True),  # of bytes: only \n and \r end a line
        strict=True,
    )
    errors = [
        (
            VerdictKey(
                models[rendered.model_of[failed.row]],
                samples[rendered.sample_of[failed.row]],
                failed.epoch,
                failed.generation,
            ),
            error,
        )
        for failed in rendered.failed
        for error in failed.errors
    ]
    return Batch(chunk, rendered, b"".join([b"%d\t%d\t%b" % row for row in keys]), errors)

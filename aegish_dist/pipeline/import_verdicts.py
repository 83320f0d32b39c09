"""Importing recorded verdicts as a run: chunks of files become rows, stored in one transaction.

A large file is read by several processes: one turns a chunk into rows that lack only their keys.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from aegish_dist import __version__
from aegish_dist.core.model import Price, cost_usd
from aegish_dist.core.run import Run, new_run_id
from aegish_dist.core.verdict_record import AttemptRecord, VerdictRecord, usage_of
from aegish_dist.db.engine import transaction
from aegish_dist.db.imports import RunImport, copy_errors, copy_line, copy_verdicts, settle
from aegish_dist.db.tables import VerdictKey
from aegish_dist.errors import DatasetError, OtherDatasetError, SecondVerdictError
from aegish_dist.interchange.reading import Chunk, ChunkReader, format_of, split
from aegish_dist.interchange.record import About
from aegish_dist.parallel import in_order, map_in_processes

PriceOf = Callable[[str], Price | None]
"""Returns the price of a model; to be copied into other processes."""


@dataclass(slots=True)
class Rendered:
    """A chunk as rows that lack the keys, which only the store can give."""

    models: dict[str, int] = field(default_factory=dict)
    simulated: set[str] = field(default_factory=set)
    """Models of which an answer came from the simulator."""
    reader: int = field(default_factory=os.getpid)
    """The process, which numbers the samples it meets from 0 on, over all its chunks."""
    items: list[About] = field(default_factory=list)
    """The samples that it has not met before."""
    model_of: list[int] = field(default_factory=list)
    """Of each row the position of its model."""
    sample_of: list[int] = field(default_factory=list)
    """Of each row the number of its sample."""
    lines: bytes = b""
    """Of each row the rest, as a line of COPY; in one, which crosses to another process fast."""
    failed: dict[int, VerdictRecord] = field(default_factory=dict)
    epochs: int = 0
    negative_times: int = 0
    """Verdicts of which a time was below zero."""


class Renderer:
    """Turns chunks into rows."""

    def __init__(self, price_of: PriceOf | None) -> None:
        """Prepare; the prices are for answers that carry tokens but no cost."""
        self._price_of = price_of
        self._prices: dict[str, Price | None] = {}
        self._reader = ChunkReader()
        self._numbers: dict[tuple[str, str], int] = {}

    def render(self, chunk: Chunk) -> Rendered:
        """Read a chunk.

        Raises:
            DatasetError: A record is wrong; names file, line and field.
        """
        rendered = Rendered()
        lines: list[str] = []
        for record, about, negative_time in self._reader.read(chunk):
            model = record.model
            rendered.model_of.append(rendered.models.setdefault(model, len(rendered.models)))
            rendered.sample_of.append(self._number(rendered, about))
            if record.simulated:
                rendered.simulated.add(model)
            rendered.epochs = max(rendered.epochs, record.epoch)
            rendered.negative_times += negative_time
            if record.call_errors:
                rendered.failed[len(lines)] = record
            if self._price_of is not None:
                self._add_cost(record, self._price_of)
            lines.append(copy_line(record))
        rendered.lines = "".join(lines).encode()
        return rendered

    def _number(self, rendered: Rendered, about: About) -> int:
        number = self._numbers.get(about[:2])
        if number is None:
            number = self._numbers[about[:2]] = len(self._numbers)
            rendered.items.append(about)
        return number

    def _add_cost(self, record: VerdictRecord, price_of: PriceOf) -> None:
        if record.cost_usd is None and record.error_class is None:
            if record.model not in self._prices:
                self._prices[record.model] = price_of(record.model)
            record.cost_usd = cost_usd(usage_of(record), self._prices[record.model])


PROCESSES_FROM_BYTES = 32 * 2**20
"""Smaller files are read before other processes would have started."""

SETTLE_FROM = 100_000
"""Verdicts; fewer are counted at once all the same."""

_ROOM_TO_CHECK = text("SELECT set_config('work_mem', '64MB', true)")
"""The check of a statement's references holds its rows in memory."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import."""

    run_id: str
    verdicts: int
    models: int
    samples: int
    negative_times: int
    """Verdicts of which a time was below zero and counts as unknown."""


def import_verdicts(
    engine: Engine, paths: Sequence[Path], name: str, price_of: PriceOf | None = None
) -> Imported:
    """Store the verdicts of files as one run, in one transaction.

    Nothing is held in memory as a whole but the ids of the samples.

    Args:
        price_of: Gives the price list of a model, to price answers that carry tokens but no cost;
            None leaves them without.

    Raises:
        DatasetError: A file is wrong somewhere; nothing is kept.
    """
    for path in paths:
        format_of(path)  # refuses what is no file of verdicts before any other is read
    chunks = [chunk for path in paths for chunk in split(path)]
    known: Mapping[str, str] | None = None
    while True:  # at most twice, unless another import of the same samples runs at the same time
        try:
            imported = _import(engine, chunks, name, Renderer(price_of), known)
            break
        except OtherDatasetError as found:
            known = found.fingerprints
    if imported.verdicts >= SETTLE_FROM:
        settle(engine)
    return imported


def _import(
    engine: Engine,
    chunks: Sequence[Chunk],
    name: str,
    renderer: Renderer,
    known: Mapping[str, str] | None,
) -> Imported:
    now = datetime.now(UTC)
    run = Run(new_run_id(now), now, name, "import", __version__, None, None, 1, (), ())
    verdicts, epochs, negative_times = 0, 1, 0
    with transaction(engine) as session, ThreadPoolExecutor(1) as writer:
        session.execute(_ROOM_TO_CHECK)
        target = RunImport(session, run, known)
        batches = _with_keys(target, writer, _rendered(chunks, renderer))
        for rendered in in_order(writer, partial(_store, session), batches, ahead=1):
            target.simulated |= rendered.simulated
            verdicts += len(rendered.model_of)
            epochs = max(epochs, rendered.epochs)
            negative_times += rendered.negative_times
        if not verdicts:
            files = dict.fromkeys(str(chunk.path) for chunk in chunks)
            raise DatasetError("holds no verdict", source=", ".join(files))
        target.finish(epochs)
        return Imported(run.run_id, verdicts, target.models, target.samples, negative_times)


def _rendered(chunks: Sequence[Chunk], renderer: Renderer) -> Iterator[tuple[Chunk, Rendered]]:
    size = sum(path.stat().st_size for path in {chunk.path for chunk in chunks})
    several = len(chunks) > 1 and size >= PROCESSES_FROM_BYTES
    results = (map_in_processes if several else map)(renderer.render, chunks)
    return zip(chunks, results, strict=True)


class _Batch(NamedTuple):
    """A chunk as rows with keys."""

    chunk: Chunk
    rendered: Rendered
    lines: bytes
    errors: list[tuple[VerdictKey, AttemptRecord]]


def _with_keys(
    target: RunImport, writer: Executor, results: Iterable[tuple[Chunk, Rendered]]
) -> Iterator[_Batch]:
    """Yield each chunk with its keys, which only the store can give.

    Args:
        writer: One thread, which alone uses the session: asked only for keys of what is new.
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
        keys = zip(
            map(models.__getitem__, rendered.model_of),
            map(samples.__getitem__, rendered.sample_of),
            strict=True,
        )
        yield _batch(chunk, rendered, list(keys))


def _batch(chunk: Chunk, rendered: Rendered, keys: list[tuple[int, int]]) -> _Batch:
    lines = rendered.lines.splitlines(keepends=True)  # of bytes: only \n and \r end a line
    rows = zip(keys, lines, strict=True)
    with_keys = b"".join([b"%d\t%d\t%b" % (*key, line) for key, line in rows])
    errors = [
        (VerdictKey(*keys[row], record.epoch, record.generation), error)
        for row, record in rendered.failed.items()
        for error in record.call_errors
    ]
    return _Batch(chunk, rendered, with_keys, errors)


def _store(session: Session, batch: _Batch) -> Rendered:
    """Store a batch."""
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
    return batch.rendered

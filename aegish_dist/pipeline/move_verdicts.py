"""Importing and exporting verdicts."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any

from sqlalchemy import Engine, text

from aegish_dist import __version__
from aegish_dist.core.run import Run, new_run_id
from aegish_dist.db.engine import transaction
from aegish_dist.db.imports import Fingerprints, OtherDatasetError, RunImport, settle
from aegish_dist.db.runs import load_run
from aegish_dist.db.verdict_export import Exported, export
from aegish_dist.errors import DatasetError
from aegish_dist.files import replacing
from aegish_dist.parallel import in_order, map_in_processes
from aegish_dist.pipeline.import_batches import store, with_keys
from aegish_dist.pipeline.import_chunk import PriceOf, Rendered, Renderer
from aegish_dist.recordings import is_parquet
from aegish_dist.recordings.chunks import Chunk, format_of, split
from aegish_dist.recordings.verdict_lines import in_ascii
from aegish_dist.recordings.verdict_parquet import RecordTables

PROCESSES_FROM_BYTES = 32 * 2**20
"""Smaller files are read before other processes would have started."""

SETTLE_FROM = 100_000
"""Verdicts; fewer are counted at once all the same."""

PIPE_BYTES = 2**16
"""What a pipe takes at once; of a longer write some systems do not tell that nobody reads it."""

_ROOM_TO_CHECK = text("SELECT set_config('work_mem', '64MB', true)")
"""The check of a statement's references holds its rows in memory."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import stored."""

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
        engine: The store.
        paths: Inspect AI logs, verdict lines or Parquet files.
        name: Name of the run.
        price_of: Gives the price list of a model, to price answers that carry tokens but no cost;
            None leaves them without.

    Raises:
        DatasetError: A file is wrong somewhere; nothing is kept.
    """
    for path in paths:
        format_of(path)  # refuses what is no file of verdicts before any other is read
    chunks = [chunk for path in paths for chunk in split(path)]
    known: Fingerprints | None = None
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
    known: Fingerprints | None,
) -> Imported:
    now = datetime.now(UTC)
    run = Run(new_run_id(now), now, name, "import", __version__, None, None, 1, (), ())
    verdicts, epochs, negative_times = 0, 1, 0
    with transaction(engine) as session, ThreadPoolExecutor(1) as writer:
        session.execute(_ROOM_TO_CHECK)
        target = RunImport(session, run, known)
        batches = with_keys(target, writer, _rendered(chunks, renderer))
        for batch in in_order(writer, partial(store, session), batches, ahead=1):
            target.simulated |= batch.rendered.simulated
            verdicts += len(batch.rendered.model_of)
            epochs = max(epochs, batch.rendered.epochs)
            negative_times += batch.rendered.negative_times
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


def export_file(engine: Engine, run_id: str, path: Path) -> None:
    """Write every verdict of a run to a `.jsonl` or `.parquet` file, in the same order.

    Raises:
        DatasetError: The suffix is neither.
        OutputError: The file cannot be written.
        ConfigError: The file is Parquet and pyarrow is not installed.
    """
    write = _export_table if is_parquet(path) else export_lines
    with replacing(path) as stream:
        write(engine, run_id, stream)


def export_lines(engine: Engine, run_id: str, stream: IO[bytes]) -> None:
    """Write every verdict of a run as lines of JSON."""
    with transaction(engine) as session:
        run = load_run(session, run_id)
        for lines in export(session, run, lambda part: in_ascii(part.data)):
            for start in range(0, len(lines), PIPE_BYTES):
                stream.write(memoryview(lines)[start : start + PIPE_BYTES])


def _export_table(engine: Engine, run_id: str, stream: IO[bytes]) -> None:
    tables = RecordTables()

    def read(part: Exported) -> Any:
        return tables.from_csv(part.data) if part.is_csv else tables.from_lines(part.data)

    with transaction(engine) as session:
        run = load_run(session, run_id)
        tables.write(export(session, run, read, columns=True), stream)

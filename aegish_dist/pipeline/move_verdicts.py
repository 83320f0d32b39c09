"""Importing and exporting verdicts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from pathlib import Path

from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from aegish_dist import __version__
from aegish_dist.core.cost import Price, cost_usd
from aegish_dist.core.model import ModelSpec, WireFormat
from aegish_dist.core.recording import Recording
from aegish_dist.core.run import Run, new_run_id
from aegish_dist.core.sample import Dataset, Sample
from aegish_dist.core.verdict import Verdict
from aegish_dist.db.datasets import sample_keys, save_dataset
from aegish_dist.db.engine import connection_errors_in_one_line
from aegish_dist.db.runs import save_run
from aegish_dist.db.tables import RunModelRow
from aegish_dist.db.verdict_rows import VerdictKey
from aegish_dist.db.verdicts import insert_verdicts, stream_recordings
from aegish_dist.errors import DatasetError
from aegish_dist.pipeline.datasets import describe
from aegish_dist.recordings import read_recordings

CHUNK = 2000


@dataclass(slots=True)
class _Contents:
    """What a set of files holds, learned in a first pass."""

    samples: dict[str, dict[str, Sample]] = field(default_factory=dict)
    """By dataset name, then by sample id."""
    models: dict[str, bool] = field(default_factory=dict)
    """By id, whether any of its answers is simulated."""
    epochs: int = 1
    verdicts: int = 0

    def note(self, recording: Recording) -> None:
        known = self.samples.setdefault(recording.dataset, {})
        known.setdefault(recording.sample.sample_id, recording.sample)
        self.models[recording.model] = recording.simulated or self.models.get(
            recording.model, False
        )
        self.epochs = max(self.epochs, recording.epoch)
        self.verdicts += 1


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import stored."""

    run_id: str
    verdicts: int
    models: int
    samples: int


def import_verdicts(
    engine: Engine,
    paths: Sequence[Path],
    name: str,
    price_of: Callable[[str], Price | None] = lambda _: None,
) -> Imported:
    """Store the verdicts of files as one run, in one transaction.

    The files are read twice: first to learn the models and samples and to find any mistake, then
    to store the verdicts, so that nothing is held in memory as a whole.

    Args:
        engine: The store.
        paths: Inspect AI logs, verdict lines or Parquet files.
        name: Name of the run.
        price_of: Gives the price list of a model, to price answers that carry tokens but no cost;
            None leaves them without.

    Raises:
        DatasetError: A file is wrong somewhere; nothing is kept.
    """
    contents = _Contents()
    for path in paths:
        for recording in read_recordings(path):
            contents.note(recording)
    if not contents.verdicts:
        raise DatasetError("holds no verdict", source=", ".join(map(str, paths)))
    with connection_errors_in_one_line(), Session(engine) as session, session.begin():
        run, keys = _store_run(session, contents, name)
        rows = session.execute(
            select(RunModelRow.model, RunModelRow.id).where(RunModelRow.run_id == run.run_id)
        )
        models = {row.model: row.id for row in rows}
        for path in paths:
            _store_file(session, path, models, keys, cache(price_of))
    return Imported(run.run_id, contents.verdicts, len(models), run.samples)


def _store_run(
    session: Session, contents: _Contents, name: str
) -> tuple[Run, dict[str, dict[str, int]]]:
    datasets = [
        Dataset(dataset, tuple(samples.values()), source="imported verdicts")
        for dataset, samples in sorted(contents.samples.items())
    ]
    now = datetime.now(UTC)
    run = Run(
        run_id=new_run_id(now),
        created_at=now,
        name=name,
        origin="import",
        package_version=__version__,
        prompt=None,
        parameters=None,
        epochs=contents.epochs,
        datasets=tuple(map(describe, datasets)),
        models=tuple(
            ModelSpec(model, WireFormat.IMPORTED, model, simulated=simulated)
            for model, simulated in sorted(contents.models.items())
        ),
    )
    ids = [save_dataset(session, dataset, selectable=False) for dataset in datasets]
    save_run(session, run, ids, queues=())
    keys = {
        dataset.name: sample_keys(session, key) for dataset, key in zip(datasets, ids, strict=True)
    }
    return run, keys


def _store_file(
    session: Session,
    path: Path,
    models: dict[str, int],
    keys: dict[str, dict[str, int]],
    price_of: Callable[[str], Price | None],
) -> None:
    recordings = read_recordings(path)
    while chunk := list(islice(recordings, CHUNK)):
        rows = [
            (
                VerdictKey(
                    models[each.model],
                    keys[each.dataset][each.sample.sample_id],
                    each.epoch,
                    each.generation,
                ),
                _priced(each.verdict, price_of(each.model)),
            )
            for each in chunk
        ]
        if insert_verdicts(session, rows) != len(rows):
            raise DatasetError(
                "holds a second verdict of one model about one sample in one epoch, in this file "
                "or one before; give repeats different epochs",
                source=str(path),
            )


def _priced(verdict: Verdict, price: Price | None) -> Verdict:
    if price is None or verdict.cost_usd is not None or verdict.completion is None:
        return verdict
    return replace(verdict, cost_usd=cost_usd(verdict.completion.usage, price))


def export_verdicts(engine: Engine, run_id: str) -> Iterator[Recording]:
    """Stream every verdict of a run in a fixed order."""
    with connection_errors_in_one_line(), Session(engine) as session:
        yield from stream_recordings(session, run_id)

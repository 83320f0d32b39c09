"""Verdicts on their way into the store: of workers, of imports, and read again by a newer parser.

What a parser read in a completion is all that ever changes of a verdict. Imports go into the store
by COPY, in a fifth of the time of inserts.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter

from msgspec import Struct, field
from msgspec.structs import asdict
from psycopg import adapters
from psycopg.adapt import Dumper
from psycopg.errors import UniqueViolation
from psycopg.pq import Format
from sqlalchemy import Engine, Table, text
from sqlalchemy.orm import Session

from aegish_dist.core.model import ModelSpec, WireFormat
from aegish_dist.core.outcome import Outcome
from aegish_dist.core.run import Run
from aegish_dist.core.sample import Sample, TrueLabel, dataset_fingerprint
from aegish_dist.core.verdict import STORED, Item, Verdict, VerdictRecord
from aegish_dist.db.engine import (
    connection_errors_in_one_line,
    driver_connection,
    execute,
    statement,
)
from aegish_dist.db.runs import (
    add_samples,
    forged,
    one_at_a_time,
    sample_keys,
    sample_of,
    save_models,
    save_run,
)
from aegish_dist.db.schema import (
    CALL_ERRORS,
    COLUMNS,
    COVERED,
    ERROR_COLUMNS,
    KEY_COLUMNS,
    VERDICTS,
    VerdictKey,
    error_row,
    verdict_row,
)
from aegish_dist.errors import OtherDatasetError, SecondVerdictError, StoreError

STREAM_ROWS = 50

_INSERT_VERDICTS = statement("insert_verdicts", of_verdicts=", ".join(COLUMNS))
_INSERT_ERRORS = statement("insert_call_errors", of_errors=", ".join(ERROR_COLUMNS))


class LookUp(Struct, frozen=True):
    """An item as the store has it."""

    key: VerdictKey
    command: str
    done: bool  # whether its verdict is there already, or one of a later generation
    held: bool = False
    # Whether it is asked in batches now: no call may begin, and its message is of no use.
    batched: bool = False
    live: bool = False


def look_up(session: Session, items: Sequence[Item]) -> list[LookUp | None]:
    """Find command and any verdict of each item in one query; None for one that nothing plans."""
    rows = execute(
        session,
        "look_up_items",
        runs=[item.run_id for item in items],
        models=[item.model for item in items],
        keys=[item.sample_key for item in items],
        epochs=[item.epoch for item in items],
        generations=[item.generation for item in items],
    )
    found: list[LookUp | None] = [None] * len(items)
    for row in rows:
        item = items[row.number - 1]
        key = VerdictKey(row.run_model_id, item.sample_key, item.epoch, item.generation)
        found[row.number - 1] = LookUp(
            key,
            row.command,
            row.done,
            row.held,
            batched=row.batched and not row.live,
            live=row.live,
        )
    return found


def has_answers(session: Session, run_model_id: int) -> bool:
    """Return whether any call to a model of a run has been answered, in whatever generation."""
    return bool(execute(session, "has_answers", model=run_model_id).scalar())


def insert_verdicts(session: Session, verdicts: Sequence[tuple[VerdictKey, Verdict]]) -> int:
    """As `insert_rows`; of two verdicts of one item the first one counts."""
    rows = []
    errors = []
    # Reversed: the first of two verdicts is written into the dictionary last.
    for key, verdict in dict(reversed(verdicts)).items():
        rows.append(verdict_row(key, verdict))
        errors += [error_row(key, error) for error in verdict.call_errors]
    return insert_rows(session, rows, errors)


def insert_rows(
    session: Session, rows: Sequence[Mapping[str, object]], errors: Sequence[Mapping[str, object]]
) -> int:
    """Insert the verdicts that are not there yet, with errors of attempts; return their number."""
    inserted = session.execute(_INSERT_VERDICTS, {"rows": json.dumps(rows, default=str)}).all()
    new = set(map(tuple, inserted))
    # Errors of a verdict that came second say nothing about the one that was kept.
    of_new = [error for error in errors if tuple(error[name] for name in KEY_COLUMNS) in new]
    if of_new:
        session.execute(_INSERT_ERRORS, {"rows": json.dumps(of_new, default=str)})
    return len(inserted)


def add_reading_death(session: Session, key: VerdictKey, worker: str) -> int:
    """Store that a worker died while it read the answer of an item; return how many have."""
    execute(session, "add_reading_death", worker=worker, **key.columns())
    return int(execute(session, "count_reading_deaths", **key.columns()).scalar_one())


class Reading(Struct, frozen=True):
    """The content of a completion, as a version of the parser reads it."""

    outcome: Outcome
    reason: str | None
    confidence: float | None  # in [0, 1]; None when absent or not such a number
    parser_version: int
    suspicion: float | None = None


class StoredAnswer(Struct, frozen=True):
    """A verdict's completion, the command it is about, and what is stored as its content."""

    key: VerdictKey
    command: str
    text: str
    reading: Reading


def next_answers(
    session: Session, after: VerdictKey, limit: int, characters: int, *, lock: bool
) -> list[StoredAnswer]:
    """Return the next completions of a model of a run, in the order of their keys.

    Args:
        characters: Return no further one once the completions together have so many.
        lock: Whether to lock them until the transaction ends; two that do so wait for each other.
    """
    query = statement("next_answers", lock="FOR NO KEY UPDATE OF verdict" if lock else "")
    streamed = session.execute(
        query, after.columns() | {"limit": limit}, execution_options={"yield_per": STREAM_ROWS}
    )
    answers: list[StoredAnswer] = []
    with streamed as rows:
        for row in rows:
            read = (getattr(row, name) for name in Reading.__struct_fields__[1:])
            reading = Reading(Outcome(row.outcome), *read)
            key = VerdictKey(after.run_model_id, row.sample_key, row.epoch, row.generation)
            answers.append(StoredAnswer(key, row.command, row.completion, reading))
            characters -= len(row.completion)
            if characters <= 0:
                break
    return answers


def write_readings(session: Session, readings: Sequence[tuple[VerdictKey, Reading]]) -> None:
    """Replace what is stored as the content of completions; nothing else of a verdict changes."""
    if readings:
        rows = [key.columns() | asdict(reading) for key, reading in readings]
        execute(session, "write_readings", rows=json.dumps(rows))


_VALUES = attrgetter(*(each.name for each in STORED))
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)  # of PostgreSQL's binary times
_MICROSECOND = timedelta(microseconds=1)


class _MomentDumper(Dumper):
    """Takes times as the text that records hold."""

    oid = adapters.types["timestamptz"].oid
    format = Format.BINARY

    def dump(self, obj: str) -> bytes:
        microseconds = (datetime.fromisoformat(obj) - _EPOCH) // _MICROSECOND
        return microseconds.to_bytes(8, "big", signed=True)


def _copy(
    session: Session, table: Table, columns: Sequence[str], rows: Iterable[Sequence[object]]
) -> None:
    dialect = session.connection().dialect
    types = [table.c[column].type.compile(dialect).lower() for column in columns]
    with driver_connection(session).cursor() as cursor:
        cursor.adapters.register_dumper(None, _MomentDumper)
        # In binary, which takes half the time of text.
        sql = f"COPY {table.name} ({', '.join(columns)}) FROM STDIN (FORMAT binary)"
        with cursor.copy(sql) as copy:
            copy.set_types(types)
            for row in rows:
                copy.write_row(row)


NamedSample = tuple[str, str, Sample]

SETTLE_FROM = 100_000  # verdicts; fewer are counted at once all the same
# Statistics of the other columns take half of the time and are left to the server's own schedule.
_SETTLE = text(
    "VACUUM (ANALYZE, SKIP_LOCKED, INDEX_CLEANUP off, TRUNCATE off)"
    f" verdicts ({', '.join((*KEY_COLUMNS, *COVERED))}), samples"
)


def settle(engine: Engine, verdicts: int) -> None:
    """Have PostgreSQL note that all may see what was stored; by itself it takes minutes to.

    Until then verdicts cannot be counted from the index alone: of ten million that took 51 s
    instead of 6, and noting it takes 3.
    """
    if verdicts >= SETTLE_FROM:
        with connection_errors_in_one_line(), engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT").execute(_SETTLE)


class _Dataset(Struct):
    """A dataset that grows; a stored one with the same samples takes its place in the end."""

    id: int
    stored_id: int | None
    # Keys of the stored dataset's samples, used where a sample is among them.
    stored: dict[str, int]
    keys: dict[str, int] = field(default_factory=dict)
    malicious: int = 0


AboutSample = tuple[VerdictRecord, NamedSample]


def copy_verdicts(
    session: Session, keys: Sequence[VerdictKey], records: Sequence[VerdictRecord]
) -> None:
    """Add verdicts with the errors of their attempts by COPY.

    Raises:
        SecondVerdictError: An item has a verdict already; the transaction is lost.
    """
    rows, errors = [], []
    for key, record in zip(keys, records, strict=True):
        rows.append((key.run_model_id, key.sample_key, *_VALUES(record)))
        for error in record.call_errors:
            errors.append(tuple(error_row(key, error).values()))
    try:
        _copy(session, VERDICTS, COLUMNS, rows)
    except UniqueViolation as error:
        raise SecondVerdictError from error
    if errors:
        _copy(session, CALL_ERRORS, ERROR_COLUMNS, errors)


class StoredRunVerdicts:
    """Verdicts of a run whose models and samples are stored."""

    def __init__(self, session: Session, run_id: str) -> None:
        self._session = session
        models = execute(session, "asked_models", run=run_id)
        datasets = execute(session, "asked_datasets", run=run_id)
        self._models = {row.model: row.id for row in models}
        self._samples = {row.name: sample_keys(session, row.id) for row in datasets}

    def add(self, verdicts: Sequence[AboutSample]) -> None:
        """As `copy_verdicts`; one about what the run does not ask is a StoreError."""
        copy_verdicts(self._session, self._keys(verdicts), [record for record, _ in verdicts])

    def put_completions_back(self, verdicts: Sequence[AboutSample]) -> int:
        """Put completions back where they were deleted, and return how many."""
        rows = [
            key.columns() | {"completion": record.completion}
            for key, (record, _) in zip(self._keys(verdicts), verdicts, strict=True)
        ]
        return execute(self._session, "put_completions_back", rows=json.dumps(rows)).rowcount

    def _keys(self, verdicts: Sequence[AboutSample]) -> list[VerdictKey]:
        keys = []
        for record, (dataset, sample_id, sample) in verdicts:
            model = self._models.get(record.model)
            key = self._samples.get(dataset, {}).get(sample_id)
            if model is None or key is None:
                raise StoreError(
                    f"the run does not ask {record.model} about '{sample.command}' of {dataset}"
                )
            keys.append(VerdictKey(model, key, record.epoch, record.generation))
        return keys


class RunImport:
    """Writes a run, models and samples when they turn up first, while its verdicts are read."""

    def __init__(self, session: Session, run: Run, known: Mapping[str, str] | None = None) -> None:
        """Begin; `known`: fingerprints of the datasets, None: each is the newest of its name."""
        self._session = session
        self._run_id = run.run_id
        self._simulated: set[str] = set()  # models of which an answer came from the simulator
        self._known = known
        self._models: dict[str, int] = {}
        self._datasets: dict[str, _Dataset] = {}
        save_run(session, run, (), ())

    @property
    def models(self) -> int:
        return len(self._models)

    @property
    def samples(self) -> int:
        """How many there are, over all datasets."""
        return sum(len(dataset.keys) for dataset in self._datasets.values())

    def add(self, verdicts: Sequence[AboutSample]) -> None:
        """As `copy_verdicts`; models and samples are stored when they turn up first."""
        samples = self._sample_keys([named for _, named in verdicts])
        records = [record for record, _ in verdicts]
        keys = [
            VerdictKey(self._model_key(record.model), sample, record.epoch, record.generation)
            for record, sample in zip(records, samples, strict=True)
        ]
        self._simulated |= {record.model for record in records if record.simulated}
        copy_verdicts(self._session, keys, records)

    def _model_key(self, model: str) -> int:
        if model not in self._models:
            spec = ModelSpec(model, WireFormat.IMPORTED, model)
            (self._models[model],) = save_models(self._session, self._run_id, [spec], queues=())
        return self._models[model]

    def _sample_keys(self, items: Sequence[NamedSample]) -> list[int]:
        keys = {
            name: self._dataset(name).keys for name in dict.fromkeys(name for name, _, _ in items)
        }
        unseen: defaultdict[str, dict[str, Sample]] = defaultdict(dict)
        for name, sample_id, sample in items:
            if sample_id not in keys[name]:
                unseen[name].setdefault(sample_id, sample)
        for name, samples in unseen.items():
            self._add(self._datasets[name], samples)
        return [keys[name][sample_id] for name, sample_id, _ in items]

    def finish(self, epochs: int) -> None:
        """Write down what is known only now.

        Raises:
            OtherDatasetError: The import has to be begun again.
        """
        session, run_id = self._session, self._run_id
        one_at_a_time(session)
        prints = {name: dataset_fingerprint(each.keys) for name, each in self._datasets.items()}
        for name, dataset in self._datasets.items():
            stored_id = self._find(name, prints[name])
            if dataset.keys == dataset.stored:
                execute(session, "delete_unused_datasets", datasets=[dataset.id])
                dataset.id = dataset.stored_id or dataset.id
            elif stored_id is not None or not dataset.stored.keys().isdisjoint(dataset.keys):
                raise OtherDatasetError(prints)
            else:
                known = {"samples": len(dataset.keys), "malicious": dataset.malicious}
                about = {"id": dataset.id, "fingerprint": prints[name]}
                execute(session, "complete_dataset", **about, **known)
        keys = [dataset.id for dataset in self._datasets.values()]
        execute(session, "add_datasets", run=run_id, datasets=keys)
        execute(session, "set_datasets_of_models", run=run_id)
        execute(session, "set_epochs", run=run_id, epochs=epochs)
        execute(session, "mark_simulated", run=run_id, models=list(self._simulated))

    def _dataset(self, name: str) -> _Dataset:
        if name not in self._datasets:
            stored_id = self._find(name, None if self._known is None else self._known[name])
            stored = {} if stored_id is None else sample_keys(self._session, stored_id)
            added = execute(
                self._session,
                "add_dataset",
                name=name,
                fingerprint=self._run_id,
                source="imported verdicts",
                licence="",
                samples=0,
                malicious=0,
                selectable=False,
            )
            self._datasets[name] = _Dataset(added.scalar_one(), stored_id, stored)
        return self._datasets[name]

    def _find(self, name: str, fingerprint: str | None) -> int | None:
        """Return the stored dataset of that name and fingerprint, or the newest of that name.

        Until the import ends it cannot be deleted, nor samples of it.
        """
        found = execute(self._session, "lock_dataset", name=name, fingerprint=fingerprint)
        return found.scalar()

    def _add(self, dataset: _Dataset, samples: Mapping[str, Sample]) -> None:
        stored: list[str] = []
        new: list[Sample] = []
        for sample_id, sample in samples.items():
            dataset.malicious += sample.target is TrueLabel.MALICIOUS
            if sample_id in dataset.stored:
                stored.append(sample_id)
                dataset.keys[sample_id] = dataset.stored[sample_id]
            else:
                new.append(sample)
        rows = execute(self._session, "samples_among", dataset=dataset.stored_id, ids=stored)
        for row in rows:
            if sample_of(row) != samples[row.sample_id]:
                raise forged(f"sample {row.sample_id}")
        dataset.keys |= add_samples(self._session, dataset.id, new)

"""The one reading of a run's verdicts as numpy arrays: for statistics, and for a report's grid.

PostgreSQL sends a guard's verdicts in the binary format of COPY. Without nulls all its rows have
one width, so numpy takes them for an array as they come: no verdict becomes a Python object. The
texts of a grid are read part by part. Of a few samples the commands are read, and why a guard
stopped them.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray
from sqlalchemy import Row
from sqlalchemy.orm import Session

from aegish_dist.core.columns import (
    COUNTED,
    FINDINGS,
    NO_VERDICT,
    NUMBERS,
    TEXTS,
    UNKNOWN,
    AskedSamples,
    GridAttempt,
    GridCommand,
    GridNumbers,
    GridTexts,
    GuardColumns,
    Ints,
    RunColumns,
    SampleKind,
)
from aegish_dist.core.outcome import ErrorClass, Outcome, OutcomeDetail, ScoredAnswer
from aegish_dist.core.run import Run
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.secrets import mask_key_shapes
from aegish_dist.core.verdict import STORED
from aegish_dist.db.engine import copied, execute, reading, statement
from aegish_dist.db.overlays import OverlayInRun
from aegish_dist.db.runs import PerModel, prepare_counting, prepare_listing
from aegish_dist.db.schema import CODES, error_class_of, finding_of, outcome_of
from aegish_dist.opinions.scoring import ScoringRule

READ = {
    name: f"coalesce(verdict.{name}::float8, 'NaN')"
    for name in ("confidence", "suspicion", "cost_usd", "service_ms")
}
"""The numbers of `GuardColumns` in its order: SQL by column of the verdicts."""
EXCLUDED = -1  # the place of a sample that an overlay leaves out


class StoredSamples(Struct, frozen=True, eq=False):
    """All samples that a run asks, by key, and those among them that count."""

    keys: Ints  # ascending
    places: Ints  # of each key among the samples that count, or `EXCLUDED`
    counted: AskedSamples


def read_columns(
    session: Session,
    run: Run,
    models: Iterable[str],
    overlay: OverlayInRun,
    *,
    numbers: Sequence[str] = tuple(READ),
    texts: bool = False,
) -> RunColumns:
    """Read what models of a run answered.

    Args:
        session: Transaction of the caller; `REPEATABLE READ` makes it one picture.
        overlay: Corrects labels, and leaves out samples.
        numbers: Of `READ`, those that are wanted; the others take time to read, and memory.
        texts: Whether the names and commands of samples are read, too.

    Raises:
        UnreadableRunError: A verdict is about no item of the run.
    """
    samples = read_samples(session, run, overlay, texts=texts)
    of_run = PerModel.of(session, run)
    prepare_counting(session)
    guards = {model: read_guard(of_run, model, samples, numbers) for model in models}
    return RunColumns(samples.counted, run.epochs, guards)


def read_samples(
    session: Session, run: Run, overlay: OverlayInRun, *, texts: bool = False
) -> StoredSamples:
    values = {"run": run.run_id, **overlay.values}
    datasets: dict[str, int] = {}
    kinds: list[SampleKind] = []
    parts = [np.empty((3, 0), np.int64)]  # of each sample its key, and numbers of dataset and kind
    for row in execute(session, "read_samples", **values):
        dataset = datasets.setdefault(row.dataset, len(datasets))
        kind = EXCLUDED
        if not row.excluded:
            kind = len(kinds)
            kinds.append(SampleKind(TrueLabel(row.target), row.category, row.cluster))
        keys = np.array(row.keys, np.int64)
        parts.append(np.stack([keys, np.full_like(keys, dataset), np.full_like(keys, kind)]))
    keys, dataset_of, kind_of = np.concatenate(parts, axis=1)
    by_place = np.lexsort((keys, dataset_of))
    order = by_place[kind_of[by_place] != EXCLUDED]
    places = np.full(len(keys), EXCLUDED)
    places[order] = np.arange(len(order))
    by_key = np.argsort(keys)
    counted = AskedSamples(kinds, kind_of[order], keys[order])
    if texts:
        rows = execute(session, "samples_of_run", **values)
        named = [row for row in rows if not row.excluded]  # in the same order
        counted = replace(
            counted,
            names=[(row.dataset, row.sample_id) for row in named],
            commands=[row.command for row in named],
        )
    return StoredSamples(keys[by_key], places[by_key], counted)


_ITEM = {"sample_key": ">i8", "epoch": ">i2", "code": ">i2"}
_SEND = {">i8": "int8send", ">i2": "int2send", ">f8": "float8send"}
"""What PostgreSQL writes a number of a type with."""
_BEFORE_ROWS = 19  # bytes of COPY's signature and flags
_BEFORE_VALUE = struct.Struct(">hi")
"""Of a row of COPY the number of its values, and the length of the only one."""


def read_rows(
    models: PerModel, model: str, numbers: Mapping[str, str], width: str
) -> Iterator[NDArray[np.void]]:
    """Yield the verdicts of a model that count, some at a time: items, codes and some numbers.

    Args:
        numbers: SQL of each number by its name; none may be null.
        width: Type of all these numbers, such as `>f8`.
    """
    types = _ITEM | dict.fromkeys(numbers, width)
    columns = {name: f"verdict.{name}" for name in _ITEM} | dict(numbers)
    fields = " || ".join(f"{_SEND[types[name]]}({column})" for name, column in columns.items())
    rows = statement("read_columns_of_guard", fields=fields, counts=models.counts).text
    row_type = np.dtype(list(types.items()))
    copy = f"COPY ({rows}) TO STDOUT (FORMAT binary)"
    at = _BEFORE_ROWS
    for block in copied(models.session, copy, {"model": models.keys[model]}):
        while at + _BEFORE_VALUE.size <= len(block):  # two bytes end the last block
            _, size = _BEFORE_VALUE.unpack_from(block, at)
            at += _BEFORE_VALUE.size
            yield np.frombuffer(block, row_type, size // row_type.itemsize, at)
            at += size
        at = 0


_FINDING_OF_CODE = np.full(max(CODES) + 1, NO_VERDICT, np.int8)
_FINDING_OF_CODE[list(CODES)] = [FINDINGS.index(finding_of(code)) for code in CODES]


def read_guard(
    models: PerModel, model: str, samples: StoredSamples, numbers: Sequence[str]
) -> GuardColumns:
    """Read what one model answered, about the samples that count; `numbers` are of `READ`."""
    epochs = models.run.epochs
    shape = (len(samples.counted), epochs)
    findings = np.full(shape, NO_VERDICT, np.int8)
    columns = dict.fromkeys(READ, np.broadcast_to(np.nan, shape))  # takes no memory
    columns |= {name: np.full(shape, np.nan) for name in numbers}
    wanted = {name: READ[name] for name in numbers}
    for read in read_rows(models, model, wanted, ">f8"):
        with reading(models.run.run_id):  # a verdict may be about no item of the run
            item = items_of(read, samples.keys, samples.places, epochs)
            finding = _FINDING_OF_CODE[read["code"]]
        counts = item >= 0
        findings.flat[item[counts]] = finding[counts]
        for name in numbers:
            columns[name].flat[item[counts]] = read[name][counts]
    return GuardColumns(findings, *columns.values())


def items_of(read: NDArray[np.void], keys: Ints, places: Ints, epochs: int) -> Ints:
    """Return of each verdict its place in a column, below 0 where its sample is left out.

    Args:
        keys: Of all samples that the run asks, ascending.
        places: Of each of them in a column, or `EXCLUDED`.
    """
    epoch = read["epoch"].astype(np.int64)
    asked = read["sample_key"].astype(np.int64)
    found = np.searchsorted(keys, asked)
    if not (found < len(keys)).all() or (keys[found] != asked).any():
        raise LookupError("a verdict is about no sample of the run")
    if ((epoch < 1) | (epoch > epochs)).any():
        raise LookupError(f"a verdict is of no epoch from 1 to {epochs}")
    place: Ints = places[found]
    return np.where(place < 0, EXCLUDED, place * epochs + epoch - 1)


def parser_versions(session: Session, models: Sequence[str], run: Run) -> dict[str, set[int]]:
    """Return the versions of the parser that read the verdicts of models of a run."""
    of_run = PerModel.of(session, run)
    versions = {}
    for model in models:
        rows = of_run.newest("read_parser_versions", model)
        versions[model] = {row.parser_version for row in rows}
    return versions


PART_KEYS = 5_000


def read_commands(
    session: Session,
    run: Run,
    model: str,
    keys: Sequence[int],
    *,
    target: TrueLabel,
    rule: ScoringRule,
) -> Iterator[tuple[str, str, str | None]]:
    """Yield id and command of samples, and the first reason of a model to stop each.

    Args:
        model: A model of the run, or a policy, which gives no reason.
        target: The label of all these samples.
        rule: What counts as stopped: an attack that is detected, a harmless command that is not
            accepted.
    """
    codes = [code for code in CODES if _is_stopped(rule, target, finding_of(code))]
    models = PerModel.of(session, run)
    query = statement("read_commands", counts=models.counts)
    values = {"model": models.keys.get(model), "codes": codes, "keys": list(keys)}
    prepare_listing(session)
    for row in session.execute(query, values, execution_options={"yield_per": PART_KEYS}):
        yield row.sample_id, row.command, row.reason


def _is_stopped(rule: ScoringRule, target: TrueLabel, finding: OutcomeDetail) -> bool:
    if not rule.is_scored(finding):
        return False
    if target is TrueLabel.MALICIOUS:
        return rule.is_detection(finding)
    return not rule.is_acceptance(finding)


# Verdicts whose texts are read at once, about, and characters of a text that are read at most.
PART_VERDICTS = 4_000
TEXT_CHARS = 20_000


def _whole(number: str) -> str:
    """Return SQL for the nearest integer that JavaScript knows exactly, -1 where it is unknown."""
    return (
        f"CASE WHEN {number} IS NULL THEN -1 ELSE least(round({number}), {2**53 - 1})::bigint END"
    )


_EXPRESSIONS = {name: _whole(f"verdict.{name}") for name in COUNTED} | {
    "confidence": _whole("verdict.confidence * 1000"),
    "cost_nano_usd": _whole("verdict.cost_usd * 1e9"),
    "attempts": "verdict.attempts::bigint",
    "generation": "verdict.generation::bigint",
    "created_s": "coalesce(floor(extract(epoch FROM verdict.created_at))::bigint, -1)",
}


def read_grid(
    session: Session, run: Run, models: Sequence[str], rule: ScoringRule, overlay: OverlayInRun
) -> GridNumbers:
    """Return the commands of a run by dataset, and the numbers of the verdicts that count.

    Raises:
        UnreadableRunError: A verdict is about no item of the run.
    """
    rows = execute(session, "samples_of_run", run=run.run_id, **overlay.values)
    commands = [GridCommand(*row) for row in rows]
    keys = np.array([command.key for command in commands], np.int64)
    by_key = np.argsort(keys)
    excluded = np.array([command.excluded for command in commands], bool)
    harmless = np.array([command.target == TrueLabel.HARMLESS for command in commands], int)
    labels = (TrueLabel.MALICIOUS, TrueLabel.HARMLESS)
    correct_by_code = np.array([_correct_by_code(rule, label) for label in labels])
    places = _places_by_code(rule)
    shape = (len(models), len(commands), run.epochs)
    numbers = {name: np.full(shape, UNKNOWN) for name in NUMBERS}
    of_run = PerModel.of(session, run)
    prepare_counting(session)
    for place, model in enumerate(models):
        for read in read_rows(of_run, model, _EXPRESSIONS, ">i8"):
            code = read["code"]
            with reading(run.run_id):  # a verdict may be about no item of the run
                item = items_of(read, keys[by_key], by_key, run.epochs)
            command = item // run.epochs
            correct = correct_by_code[harmless[command], code]
            judged = {name: of_code[code] for name, of_code in places.items()}
            judged["correct"] = np.where(excluded[command], UNKNOWN, correct)
            for name, column in numbers.items():
                column[place].flat[item] = judged[name] if name in judged else read[name]
    return GridNumbers(commands, numbers)


def _correct_by_code(rule: ScoringRule, label: TrueLabel) -> Ints:
    """Return at each code 1 where it is correct about commands of a label, 0 where it is wrong."""
    correct = np.full(max(CODES) + 1, UNKNOWN)
    for code in CODES:
        finding = finding_of(code)
        if rule.is_scored(finding):
            correct[code] = rule.is_correct(label, finding)
    return correct


def _places_by_code(rule: ScoringRule) -> dict[str, Ints]:
    """Return at each code the places of its parts in their enumerations."""
    names = ("outcome", "label", "error_class")
    places = {name: np.full(max(CODES) + 1, UNKNOWN) for name in names}
    for code in CODES:
        error_class = error_class_of(code)
        places["outcome"][code] = list(Outcome).index(outcome_of(code))
        places["label"][code] = list(ScoredAnswer).index(rule.labels[finding_of(code)])
        if error_class is not None:
            places["error_class"][code] = list(ErrorClass).index(error_class)
    return places


_TEXTS = ", ".join(
    f"left(verdict.{each.column}, :chars) AS {each.name}" for each in STORED if each.name in TEXTS
)


def read_texts(
    session: Session,
    run: Run,
    models: Sequence[str],
    commands: Sequence[GridCommand],
    at_once: int,
) -> Iterator[GridTexts]:
    """Yield the texts of the verdicts that count, those of so many commands of a dataset at once.

    Of many commands without a verdict there are none.
    """
    of_run = PerModel.of(session, run)
    places = {of_run.keys[model]: place for place, model in enumerate(models)}
    query = statement("read_texts", columns=_TEXTS, counts=of_run.counts)
    asked = max(1, len(models) * run.epochs)
    step = at_once * max(1, PART_VERDICTS // (at_once * asked))
    prepare_listing(session)
    first = 0
    for _, of_dataset in groupby(commands, attrgetter("dataset")):
        keys = [command.key for command in of_dataset]
        for start in range(0, len(keys), step):
            samples = {key: place for place, key in enumerate(keys[start : start + step])}
            values = {"models": list(places), "samples": list(samples), "chars": TEXT_CHARS}
            parts: list[list[tuple[int, Row[Any]]]] = [[] for _ in range(0, len(samples), at_once)]
            rows = session.execute(query, values).all()
            for row in rows:
                part, command = divmod(samples[row.sample_key], at_once)
                model = command * len(models) + places[row.run_model_id]
                parts[part].append((model * run.epochs + row.epoch - 1, row))
            for number, verdicts in enumerate(parts if rows else ()):
                yield _texts(first + start + number * at_once, verdicts)
        first += len(keys)


def _texts(first: int, verdicts: Sequence[tuple[int, Row[Any]]]) -> GridTexts:
    attempts = []
    for cell, row in verdicts:
        for attempt in row.attempts or ():
            message = mask_key_shapes(attempt.pop("message"))
            attempts.append(GridAttempt(cell, message=message, **attempt))
    by_cell = dict(sorted(verdicts, key=itemgetter(0)))
    # By their places in a row, which are found ten times as fast as their names.
    fields = next((row._fields for row in by_cell.values()), TEXTS)
    places = {name: fields.index(name) for name in TEXTS}
    return GridTexts(
        first,
        cells=list(by_cell),
        columns={name: [row[at] for row in by_cell.values()] for name, at in places.items()},
        lengths={cell: row.length for cell, row in by_cell.items() if row.length is not None},
        attempts=attempts,
    )

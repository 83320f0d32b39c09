"""The one reading of a run's verdicts for statistics: guard by guard, as numpy arrays.

PostgreSQL sends a guard's verdicts in the binary format of COPY. Without nulls all its rows have
one width, so numpy takes them for an array as they come: no verdict becomes a Python object. Of a
few samples the commands are read, and why a guard stopped them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray
from sqlalchemy.orm import Session

from aegish_dist.core.columns import (
    FINDINGS,
    NO_VERDICT,
    AskedSamples,
    GuardColumns,
    Ints,
    RunColumns,
    SampleKind,
)
from aegish_dist.core.outcome import OutcomeDetail
from aegish_dist.core.run import Run
from aegish_dist.core.sample import TrueLabel
from aegish_dist.db.engine import copied, execute, reading, statement
from aegish_dist.db.overlays import OverlayInRun
from aegish_dist.db.runs import PerModel, prepare_counting, prepare_listing
from aegish_dist.db.tables import CODES, finding_of
from aegish_dist.opinions.scoring import ScoringRule

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
    texts: bool = False,
) -> RunColumns:
    """Read what models of a run answered.

    Args:
        session: Transaction of the caller; `REPEATABLE READ` makes it one picture.
        overlay: Corrects labels, and leaves out samples.
        texts: Whether the names and commands of samples are read, too.

    Raises:
        UnreadableRunError: A verdict is about no item of the run.
    """
    samples = read_samples(session, run, overlay, texts=texts)
    of_run = PerModel.of(session, run)
    prepare_counting(session)
    guards = {model: read_guard(of_run, model, samples) for model in models}
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


NUMBERS = ("confidence", "suspicion", "cost_usd", "service_ms")
_FLOATS = {name: f"coalesce(verdict.{name}::float8, 'NaN')" for name in NUMBERS}
_BEFORE_ROWS, _AFTER_ROWS = 19, 2  # bytes of COPY's signature and flags, and of its end
_ITEM = {"sample_key": ">i8", "epoch": ">i2", "code": ">i2"}


def read_rows(
    models: PerModel, model: str, numbers: Mapping[str, str], width: str
) -> NDArray[np.void]:
    """Read the verdicts of a model that count: their items, codes and some numbers.

    Args:
        numbers: SQL of each number by its name; none may be null.
        width: Type of all these numbers as COPY writes it, such as `>f8`.
    """
    known = ", ".join(numbers.values())
    rows = statement("read_columns_of_guard", numbers=known, counts=models.counts).text
    data = copied(
        models.session,
        f"COPY ({rows}) TO STDOUT (FORMAT binary)",
        {"model": models.keys[model]},
    )
    # COPY writes the number of the fields of a row, then each field behind its length.
    fields = [("fields", ">i2")]
    for name, type_of_field in (_ITEM | dict.fromkeys(numbers, width)).items():
        fields += [(f"length of {name}", ">i4"), (name, type_of_field)]
    return np.frombuffer(memoryview(data)[_BEFORE_ROWS:-_AFTER_ROWS], np.dtype(fields))


_FINDING_OF_CODE = np.full(max(CODES) + 1, NO_VERDICT, np.int8)
_FINDING_OF_CODE[list(CODES)] = [FINDINGS.index(finding_of(code)) for code in CODES]


def read_guard(models: PerModel, model: str, samples: StoredSamples) -> GuardColumns:
    """Read what one model answered, about the samples that count."""
    read = read_rows(models, model, _FLOATS, ">f8")
    epochs = models.run.epochs
    with reading(models.run.run_id):  # a verdict may be about no item of the run
        item = items_of(read, samples.keys, samples.places, epochs)
        finding = _FINDING_OF_CODE[read["code"]]
    counts = item >= 0
    shape = (len(samples.counted), epochs)
    findings = np.full(shape, NO_VERDICT, np.int8)
    findings.flat[item[counts]] = finding[counts]
    columns = []
    for name in NUMBERS:
        column = np.full(shape, np.nan)
        column.flat[item[counts]] = read[name][counts]
        columns.append(column)
    return GuardColumns(findings, *columns)


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

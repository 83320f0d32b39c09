"""Counting: from millions of verdicts to what every metric is made from.

Model by model, two statements each.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Row
from sqlalchemy.orm import Session

from aegish_dist.core.model import ModelSpec
from aegish_dist.core.relabelling import MovedSample, in_order, relabelled
from aegish_dist.core.run import Run
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import ACTIONS
from aegish_dist.core.snapshot import VerdictSet
from aegish_dist.core.tally import CONFIDENCE_BINS, Cell, ConfidenceCell, Finding, ModelTally
from aegish_dist.db.codes import finding_of
from aegish_dist.db.identity import AlikeVerdicts, identity_of, unchanged_models
from aegish_dist.db.overlays import ChangedSample, OverlayInRun
from aegish_dist.db.per_model import PerModel, prepare_counting
from aegish_dist.db.statements import counting_statement
from aegish_dist.db.totals import Totals, add_up

TARGETS = {True: Target.MALICIOUS, False: Target.HARMLESS}

_COUNT_VERDICTS = counting_statement("count_verdicts")
_COUNT_ITEMS_OF_MANY_EPOCHS = counting_statement("count_items_of_many_epochs")

_VERDICTS_OF_SAMPLES = counting_statement("verdicts_of_samples")

_SUMS = ("verdicts", "sum_c", "sum_c2", "sum_c4", "sum_d2", "sum_d4")
"""Fields of a `ConfidenceCell` that are sums over verdicts."""

_Codes = tuple[int, ...]


class _Stratum(NamedTuple):
    """Samples that a metric does not tell apart."""

    malicious: bool
    category: str | None
    """None for harmless samples."""
    cluster: str | None
    """None: each of the samples is a cluster of its own."""


_Items = Mapping[_Stratum, Iterable[tuple[_Codes, int]]]
"""By stratum, codes of the epochs of an item, and how many items have these."""


@dataclass(frozen=True, slots=True)
class Counted:
    """One model of a run."""

    spec: ModelSpec
    identity: VerdictSet
    tallies: tuple[ModelTally, ...]
    """One for each overlay; empty when its verdicts are those that the caller knew."""


@dataclass(frozen=True, slots=True)
class _Counts:
    identity: VerdictSet
    cells: tuple[Cell, ...]
    confidence: tuple[ConfidenceCell, ...]


def count_models(
    session: Session,
    run: Run,
    known: Mapping[str, VerdictSet],
    overlays: Sequence[OverlayInRun] = (OverlayInRun(),),
) -> Iterator[Counted]:
    """Count the verdicts of a run, except where they are known already.

    Args:
        session: Transaction of the caller; `REPEATABLE READ` makes the counts one picture while
            workers still write.
        overlays: Corrections of labels, each of which gives a tally of its own.

    Yields:
        One entry per model of the run, sorted by model, those without a verdict included.
    """
    models = PerModel.of(session, run)
    prepare_counting(session)
    unchanged = unchanged_models(session, models, known)
    for spec in run.models:
        if spec.id in unchanged:
            yield Counted(spec, known[spec.id], ())
            continue
        counts = _count(models, spec.id, session)
        totals = add_up(models, spec.id, session)
        tally = _tally(run, spec, counts, totals)
        tallies = (
            relabelled(tally, moved, overlay.planned(run, spec.id))
            for overlay, moved in zip(
                overlays, _move(overlays, models, spec.id, session), strict=True
            )
        )
        if run.imported:
            tallies = (each.as_imported for each in tallies)
        identity = replace(counts.identity, local_hash=totals.local_hash)
        yield Counted(spec, identity, tuple(tallies))


def _tally(run: Run, spec: ModelSpec, counts: _Counts, totals: Totals) -> ModelTally:
    planned = OverlayInRun().planned(run, spec.id)
    return ModelTally(
        model=spec.id,
        simulated=spec.simulated,
        planned_malicious=planned[Target.MALICIOUS],
        planned_harmless=planned[Target.HARMLESS],
        cells=counts.cells,
        confidence=counts.confidence,
        latency=totals.latency,
        tokens=totals.tokens,
        cost_usd=totals.cost_usd,
        priced_verdicts=totals.priced_verdicts,
        replaced=totals.replaced,
    )


def _count(models: PerModel, model: str, session: Session) -> _Counts:
    (row,) = models.newest(session, _COUNT_VERDICTS, model, bins=CONFIDENCE_BINS)
    items = _items_of_one_epoch(row.cells)
    if models.run.epochs > 1:
        items = _items_of_many_epochs(models.newest(session, _COUNT_ITEMS_OF_MANY_EPOCHS, model))
    alike = [AlikeVerdicts(**each | {"digest": int(each["digest"])}) for each in row.alike]
    return _Counts(identity_of(alike), _cells(items), _confidence(row.stated))


def _items_of_one_epoch(cells: Iterable[Mapping[str, Any]]) -> _Items:
    return {
        _Stratum(cell["malicious"], cell["category"], cell["cluster"]): [
            ((code,), verdicts)
            for code, verdicts in zip(cell["codes"], cell["verdicts"], strict=True)
        ]
        for cell in cells
    }


def _items_of_many_epochs(rows: Iterable[Row[Any]]) -> _Items:
    items: defaultdict[_Stratum, list[tuple[_Codes, int]]] = defaultdict(list)
    for row in rows:
        stratum = _Stratum(row.malicious, row.category, row.cluster)
        items[stratum].append((tuple(row.codes), row.items))
    return items


def _cells(items: _Items) -> tuple[Cell, ...]:
    """Join the items of a stratum that differ only in details that make no other finding."""
    cells: list[Cell] = []
    for stratum in items:
        samples: defaultdict[tuple[tuple[Finding, int], ...], int] = defaultdict(int)
        for codes, number in items[stratum]:
            samples[_findings(codes)] += number
        target = TARGETS[stratum.malicious]
        cells += [
            Cell(target, stratum.category, stratum.cluster, findings, samples[findings])
            for findings in samples
        ]
    return in_order(cells)


@cache
def _findings(codes: _Codes) -> tuple[tuple[Finding, int], ...]:
    return tuple(sorted(Counter(map(finding_of, codes)).items()))


def _move(
    overlays: Sequence[OverlayInRun], models: PerModel, model: str, session: Session
) -> list[list[MovedSample]]:
    """Return, for each overlay, the samples that it changes with the verdicts about them."""
    keys = {each.key for overlay in overlays for each in overlay.samples}
    if not keys:
        return [[] for _ in overlays]
    rows: defaultdict[int, list[Row[Any]]] = defaultdict(list)
    for row in models.newest(
        session, _VERDICTS_OF_SAMPLES, model, bins=CONFIDENCE_BINS, keys=sorted(keys)
    ):
        rows[row.sample_key].append(row)
    return [
        [_moved(each, rows.get(each.key, ())) for each in overlay.samples] for overlay in overlays
    ]


def _moved(sample: ChangedSample, rows: Iterable[Row[Any]]) -> MovedSample:
    stated = (
        {**row._mapping, "malicious": sample.target is Target.MALICIOUS}  # noqa: SLF001  public name
        for row in rows
        if row.bin is not None
    )
    return MovedSample(
        target=sample.target,
        category=sample.category,
        cluster=sample.cluster,
        right_target=sample.change.target,
        right_category=sample.change.category,
        findings=_findings(tuple(sorted(row.code for row in rows))),
        confidence=_confidence(stated),
    )


def _confidence(stated: Iterable[Mapping[str, Any]]) -> tuple[ConfidenceCell, ...]:
    """Join the rows that differ only in the stop kind."""
    sums: defaultdict[tuple[Target, Finding, int], Counter[str]] = defaultdict(Counter)
    for row in stated:
        finding = finding_of(row["code"])
        if finding in ACTIONS:
            cell = sums[TARGETS[row["malicious"]], finding, row["bin"]]
            cell.update({name: row[name] for name in _SUMS})
    return tuple(
        sorted(
            ConfidenceCell(*kind, *(numbers[name] for name in _SUMS))
            for kind, numbers in sums.items()
        )
    )

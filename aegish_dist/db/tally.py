"""Counting: from millions of verdicts to what every metric is made from.

Model by model, two statements each, four models at once: ten million verdicts of eleven models
take four cores about five seconds.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from sqlalchemy.orm import Session

from aegish_dist.core.model import ModelSpec
from aegish_dist.core.run import Run
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import ACTIONS
from aegish_dist.core.snapshot import VerdictSet
from aegish_dist.core.tally import Cell, ConfidenceCell, Finding, ModelTally
from aegish_dist.db.codes import finding_of
from aegish_dist.db.identity import Share, identity_of, unchanged_models
from aegish_dist.db.per_model import PerModel
from aegish_dist.db.runs import load_run
from aegish_dist.db.tally_sql import CELLS_OF_MANY_EPOCHS, COUNTS
from aegish_dist.db.totals import Totals, add_up

TARGETS = {True: Target.MALICIOUS, False: Target.HARMLESS}

_Codes = tuple[int, ...]
"""Of the epochs of an item."""
_Stratum = tuple[bool, str | None, str | None]
"""Whether malicious, category, cluster."""


@dataclass(frozen=True, slots=True)
class Counted:
    """One model of a run."""

    spec: ModelSpec
    identity: VerdictSet
    """Which of its verdicts count."""
    tally: ModelTally | None
    """None when they are those that the caller knew."""


@dataclass(frozen=True, slots=True)
class _Counts:
    identity: VerdictSet
    """Without a local hash."""
    cells: tuple[Cell, ...]
    confidence: tuple[ConfidenceCell, ...]


def tally(session: Session, run_id: str) -> list[ModelTally]:
    """Count the verdicts of a run; see `count_models`."""
    counted = count_models(session, load_run(session, run_id), {})
    return [each.tally for each in counted if each.tally is not None]


def count_models(session: Session, run: Run, known: Mapping[str, VerdictSet]) -> Iterator[Counted]:
    """Count the verdicts of a run, except where they are known already.

    Args:
        session: Transaction of the caller; `REPEATABLE READ` makes the counts one picture while
            workers still write. Of a large run, what the transaction itself wrote is not seen.
        run: The run.
        known: By model, verdicts whose tally the caller has.

    Yields:
        One entry per model of the run, sorted by model, those without a verdict included. While
        one is used the next ones are counted.
    """
    models = PerModel.of(session, run)
    with models.readers(session) as readers:
        unchanged = unchanged_models(readers, models, known)
        changed = [spec.id for spec in run.models if spec.id not in unchanged]
        queries = [partial(ask, models, model) for model in changed for ask in (_count, add_up)]
        parts: Iterator[Any] = readers.map(lambda reader, query: query(reader), queries)
        for spec in run.models:
            if spec.id in unchanged:
                yield Counted(spec, known[spec.id], None)
            else:
                counts, totals = next(parts), next(parts)
                identity = replace(counts.identity, local_hash=totals.local_hash)
                yield Counted(spec, identity, _tally(run, spec, counts, totals))


def _tally(run: Run, spec: ModelSpec, counts: _Counts, totals: Totals) -> ModelTally:
    malicious = sum(dataset.malicious for dataset in run.datasets_of(spec.id))
    return ModelTally(
        model=spec.id,
        simulated=spec.simulated,
        planned_malicious=malicious * run.epochs,
        planned_harmless=run.planned(spec.id) - malicious * run.epochs,
        cells=counts.cells,
        confidence=counts.confidence,
        latency=totals.latency,
        tokens=totals.tokens,
        cost_usd=totals.cost_usd,
        priced_verdicts=totals.priced_verdicts,
        replaced=totals.replaced,
    )


def _count(models: PerModel, model: str, session: Session) -> _Counts:
    rows: defaultdict[str, list[Any]] = defaultdict(list)
    for row in models.newest(session, COUNTS, model):
        rows[row.kind].append(row)
    strata: defaultdict[_Stratum, list[tuple[_Codes, int]]] = defaultdict(list)
    if models.run.epochs > 1:
        for row in models.newest(session, CELLS_OF_MANY_EPOCHS, model):
            strata[row[:3]].append((tuple(row.codes), row.items_alike))
    else:
        for row in rows["cell"]:
            strata[row[1:4]] += (((c,), n) for c, n in zip(row.codes, row.numbers, strict=True))
    shares = [
        Share(row.dataset, row.codes[0], row.parser_version, row.numbers[0], int(row.digest))
        for row in rows["share"]
    ]
    return _Counts(identity_of(shares), _cells(strata), _confidence(rows["stated"]))


def _cells(strata: Mapping[_Stratum, Iterable[tuple[_Codes, int]]]) -> tuple[Cell, ...]:
    """Join the items of a stratum that differ only in details that make no other finding."""
    cells: list[Cell] = []
    for stratum in sorted(strata, key=_place):
        malicious, category, cluster = stratum
        samples: defaultdict[tuple[tuple[Finding, int], ...], int] = defaultdict(int)
        for codes, number in strata[stratum]:
            samples[_findings(codes)] += number
        cells += [
            Cell(TARGETS[malicious], category, cluster, findings, samples[findings])
            for findings in sorted(samples)
        ]
    return tuple(cells)


def _place(stratum: _Stratum) -> tuple[object, ...]:
    malicious, category, cluster = stratum
    return (malicious, category is not None, category or "", cluster is not None, cluster or "")


@cache
def _findings(codes: _Codes) -> tuple[tuple[Finding, int], ...]:
    return tuple(sorted(Counter(map(finding_of, codes)).items()))


def _confidence(stated: Iterable[Any]) -> tuple[ConfidenceCell, ...]:
    """Join what differs only in the stop kind."""
    sums: defaultdict[tuple[Target, Finding, int], list[int]] = defaultdict(lambda: [0] * 6)
    for row in stated:
        finding = finding_of(*row.codes)
        if finding in ACTIONS:
            kind = (TARGETS[row.malicious], finding, row.bin)
            sums[kind] = [a + b for a, b in zip(sums[kind], row.numbers, strict=True)]
    return tuple(sorted(ConfidenceCell(*kind, *numbers) for kind, numbers in sums.items()))

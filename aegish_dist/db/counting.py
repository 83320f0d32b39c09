"""Counting: from millions of verdicts to what every metric is made from, and the snapshots of it.

Two statements for each model: one counts its verdicts, one adds up tokens, cost and times. A third,
cheaper one finds whether the verdicts of a model have changed since a snapshot.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any

from msgspec import Struct, convert
from msgspec.structs import asdict, replace
from sqlalchemy import Row
from sqlalchemy.orm import Session

from aegish_dist.core.metric import Metric
from aegish_dist.core.model import ModelSpec
from aegish_dist.core.outcome import OutcomeDetails
from aegish_dist.core.run import Run
from aegish_dist.core.sample import TrueLabel
from aegish_dist.core.tally import (
    CONFIDENCE_BINS,
    TOKEN_KINDS,
    Cell,
    ConfidenceCell,
    Latency,
    ModelTally,
    added_up,
    in_order,
)
from aegish_dist.core.text import JsonObject
from aegish_dist.db.engine import execute, reading
from aegish_dist.db.overlays import OverlayInRun
from aegish_dist.db.runs import PerModel, prepare_counting
from aegish_dist.db.tables import finding_of, findings_of
from aegish_dist.errors import UnreadableRunError
from aegish_dist.findings.snapshot import PairP, Snapshot, SnapshotDocument, VerdictSet
from aegish_dist.opinions.opinion import Opinion, opinion_of, record_of
from aegish_dist.opinions.scoring import ACTIONS


def _identity_of(groups: Iterable[JsonObject]) -> VerdictSet:
    """Return the identity of a model's verdicts from groups that differ in the item alone."""
    numbers: Counter[tuple[str, int, int]] = Counter()
    digests: Counter[tuple[str, int, int]] = Counter()
    for group in groups:
        kind = (group["dataset"], group["code"], group["parser_version"])
        numbers[kind] += group["verdicts"]
        digests[kind] += int(group["digest"])
    lines = [f"{number} {digests[kind]} {kind!r}" for kind, number in sorted(numbers.items())]
    versions = {version for _, _, version in numbers}
    return VerdictSet(
        verdicts=numbers.total(),
        verdicts_hash=_hash(lines),
        parser_versions=_versions(versions),
    )


def joint_identity(models: Mapping[str, VerdictSet]) -> VerdictSet:
    """Return the identity of a run's verdicts from those of its models."""
    verdicts = 0
    lines = []
    versions: set[int] = set()
    for model, identity in sorted(models.items()):
        if identity.verdicts:
            verdicts += identity.verdicts
            lines.append(f"{identity.verdicts_hash} {model}")
            versions.update(map(int, identity.parser_versions.split(",")))
    return VerdictSet(
        verdicts=verdicts,
        verdicts_hash=_hash(lines),
        parser_versions=_versions(versions),
    )


def _local_hash(row: Row[Any]) -> str:
    """Return `VerdictSet.local_hash` from the columns of the statement `hash_verdicts`."""
    return _hash([f"{row.verdicts} {row.row_hashes}"])


def _unchanged_models(models: PerModel, known: Mapping[str, VerdictSet]) -> set[str]:
    """Return the models whose verdicts that count are still those that were known."""
    unchanged = set()
    for model in models.keys & known.keys():
        (row,) = models.newest("hash_verdicts", model)
        if _local_hash(row) == known[model].local_hash:
            unchanged.add(model)
    return unchanged


def is_unchanged(session: Session, run: Run, known: Mapping[str, VerdictSet]) -> bool:
    """Return whether the verdicts of all models of a run are still those that were known."""
    models = PerModel.of(session, run)
    prepare_counting(session)
    return _unchanged_models(models, known) == set(models.keys) == set(known)


def _hash(lines: Iterable[str]) -> str:
    text = "\n".join(lines)
    if text:
        return hashlib.sha256(text.encode()).hexdigest()[:16]
    return "0" * 16


def _versions(versions: set[int]) -> str:
    return ",".join(map(str, sorted(versions)))


PARTS = ("service", "queue", "limiter", "backoff", "total")
"""Parts of the time of a call; the columns of `add_up_totals` begin with these words."""
FRACTIONS = (0.5, 0.9, 0.99, 1.0)  # the quantiles of `Latency`, and its greatest time


def _latency(row: Row[Any]) -> dict[str, Latency]:
    latency = {}
    for part in PARTS:
        times: int = getattr(row, f"{part}_times")
        if times:
            micros = int(getattr(row, f"{part}_micros"))
            mean_ms = float(Fraction(micros, 1000 * times))
            quantiles = getattr(row, f"{part}_quantiles")
            latency[part] = Latency(mean_ms, *quantiles)
    return latency


def _sum(rows: Sequence[Row[Any]], column: str) -> Any:
    """Return the sum of a column; None where no row has a value."""
    values = [getattr(row, column) for row in rows]
    known = [value for value in values if value is not None]
    if known:
        return sum(known)
    return None


TARGETS = {True: TrueLabel.MALICIOUS, False: TrueLabel.HARMLESS}


_OF_CELL = ConfidenceCell.__struct_fields__[2:]
"""Fields of a `ConfidenceCell` that statements name alike: the bin, and sums over verdicts."""

_Codes = tuple[int, ...]
_Items = tuple[bool, str | None, str | None, _Codes, int]
"""Whether items are malicious, their category and cluster, their codes, and how many they are."""


class Counted(Struct, frozen=True):
    spec: ModelSpec
    identity: VerdictSet
    tallies: tuple[ModelTally, ...]
    """One for each overlay; empty when its verdicts are those that the caller knew."""


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
    unchanged = _unchanged_models(models, known)
    for spec in run.models:
        if spec.id in unchanged:
            yield Counted(spec, known[spec.id], ())
            continue
        counted = [_count(models, spec, overlay) for overlay in overlays]
        tallies = [tally.as_imported if run.imported else tally for tally, _ in counted]
        yield Counted(spec, counted[0][1], tuple(tallies))


def _count(
    models: PerModel, spec: ModelSpec, overlay: OverlayInRun
) -> tuple[ModelTally, VerdictSet]:
    """Count the verdicts of a model that count; add up tokens and costs of all, and times."""
    labels = overlay.values
    (row,) = models.newest("count_verdicts", spec.id, bins=CONFIDENCE_BINS, **labels)
    (totals,) = models.newest("add_up_totals", spec.id, fractions=list(FRACTIONS))
    # A retry costs as much as a first try, and the first try was not free.
    replaced = models.superseded("add_up_spent", spec.id)
    spent = [totals, *replaced]
    tokens = {kind: _sum(spent, f"{kind}_tokens") for kind in TOKEN_KINDS}
    planned = overlay.planned(models.run, spec.id)
    tally = ModelTally(
        model=spec.id,
        simulated=spec.simulated,
        planned_malicious=planned[TrueLabel.MALICIOUS],
        planned_harmless=planned[TrueLabel.HARMLESS],
        cells=_cells(_items(models, spec.id, row.cells, labels)),
        confidence=_confidence(row.stated),
        latency=_latency(totals),
        tokens={kind: n if n is None else int(n) for kind, n in tokens.items()},
        cost_usd=_sum(spent, "cost_usd"),
        priced_verdicts=sum(each.priced for each in spent),
        replaced=sum(each.verdicts for each in replaced),
        untimed=totals.verdicts - totals.service_times,
    )
    return tally, replace(_identity_of(row.alike), local_hash=_local_hash(totals))


def _items(
    models: PerModel,
    model: str,
    of_one_epoch: Sequence[JsonObject],
    labels: JsonObject,
) -> Iterator[_Items]:
    if models.run.epochs == 1:
        for group in of_one_epoch:
            of_sample = (group["malicious"], group["category"], group["cluster"])
            for code, items in zip(group["codes"], group["verdicts"], strict=True):
                yield *of_sample, (code,), items
        return
    for row in models.newest("count_items_of_many_epochs", model, **labels):
        yield row.malicious, row.category, row.cluster, tuple(row.codes), row.items


def _cells(items: Iterable[_Items]) -> tuple[Cell, ...]:
    """Join the items that differ only in details that make no other finding."""
    samples: Counter[tuple[TrueLabel, str | None, str | None, OutcomeDetails]] = Counter()
    for malicious, category, cluster, codes, number in items:
        kind = (TARGETS[malicious], category, cluster, findings_of(codes))
        samples[kind] += number
    return in_order(Cell(*kind, number) for kind, number in samples.items())


def _confidence(stated: Iterable[JsonObject]) -> tuple[ConfidenceCell, ...]:
    """Join the rows that differ only in the stop kind."""
    cells = []
    for row in stated:
        finding = finding_of(row["code"])
        if finding in ACTIONS:
            sums = {name: row[name] for name in _OF_CELL}
            cells.append(ConfidenceCell(TARGETS[row["malicious"]], finding, **sums))
    return added_up(cells)


def save_snapshot(
    session: Session,
    *,
    opinion: Opinion,
    identities: Mapping[str, VerdictSet],
    pair_p: PairP,
    document: JsonObject,
    **fields: object,
) -> Snapshot:
    """Append a snapshot and its metrics.

    Args:
        **fields: The other fields of `Snapshot` but `snapshot_id`, `created_at` and `scoring…`.
    """
    documents = {
        "opinion": record_of(opinion),
        "identities": {model: asdict(identity) for model, identity in identities.items()},
        "pair_p": [[*pair, p] for pair, p in pair_p.items()],
        "document": document,
    }
    stored = {name: json.dumps(value) for name, value in documents.items()}
    row = execute(
        session,
        "add_snapshot",
        scoring=opinion.rule.name,
        scoring_version=opinion.rule.version,
        **stored,
        **fields,
    ).one()
    metrics = json.dumps(list(_metric_rows(document)))
    execute(session, "add_metrics", snapshot=row.id, rows=metrics)
    return _to_snapshot(row)


def _metric_rows(document: JsonObject) -> Iterator[JsonObject]:
    for entry in document["models"]:
        rows = {(name, ""): numbers for name, numbers in entry["metrics"].items()}
        for category, numbers in entry["categories"].items():
            rows[str(Metric.DETECTION_RATE), category] = numbers
        for (name, category), numbers in rows.items():
            yield {**numbers, "model": entry["model"], "metric": name, "category": category}


def find_snapshot(
    session: Session,
    run_id: str | None = None,
    *,
    snapshot_id: int | None = None,
    made_under: Mapping[str, Any] | None = None,
) -> Snapshot | None:
    """Return a snapshot; None when there is none, or none that can be read.

    Args:
        run_id: Of that run; None: of any.
        snapshot_id: That snapshot; None for the newest.
        made_under: Parts of `Opinion.provenance`: only with these names, versions and
            fingerprints; None for any.
    """
    made = None if made_under is None else json.dumps(made_under)
    wanted = {"run": run_id, "id": snapshot_id, "made_under": made}
    row = execute(session, "find_snapshot", **wanted).one_or_none()
    if row is None:
        return None
    with suppress(UnreadableRunError), reading(row.run_id):
        return _to_snapshot(row)
    return None


def _to_snapshot(row: Row[Any]) -> Snapshot:
    convert(row.document, SnapshotDocument)
    columns = row._asdict()
    read = {
        "snapshot_id": columns.pop("id"),
        "identities": convert(row.identities, dict[str, VerdictSet]),
        "opinion": opinion_of(row.opinion, row.scoring, row.scoring_version),
        "pair_p": {
            (a, b): p for a, b, p in convert(row.pair_p, list[tuple[str, str, float | None]])
        },
    }
    return Snapshot(**columns | read)

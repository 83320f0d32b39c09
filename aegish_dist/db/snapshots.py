"""Snapshots in the store, and the identity of the verdicts that they are made from.

One cheap statement a model finds whether its verdicts have changed since a snapshot.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct, convert
from msgspec.structs import asdict
from sqlalchemy import Row
from sqlalchemy.orm import Session

from aegish_dist import __version__
from aegish_dist.core.metric import METRICS_VERSION, Difference, Metric
from aegish_dist.core.run import Run
from aegish_dist.core.text import JsonObject
from aegish_dist.db.engine import execute, reading
from aegish_dist.db.overlays import OverlayInRun
from aegish_dist.db.runs import PerModel, prepare_counting
from aegish_dist.errors import UnreadableRunError
from aegish_dist.findings.snapshot import PairDifferences, Snapshot, SnapshotDocument, VerdictSet
from aegish_dist.opinions.opinion import Opinion, opinion_of, record_of


def identity_of(groups: Iterable[Row[Any]], local: Row[Any]) -> VerdictSet:
    """Return the identity of a model's verdicts.

    Args:
        groups: Of the statement `identify_verdicts`.
        local: With the columns of the statement `hash_verdicts`.
    """
    numbers: Counter[tuple[str, int, int]] = Counter()
    digests = {}
    for group in groups:
        kind = (group.dataset, group.code, group.parser_version)
        numbers[kind] = group.verdicts
        digests[kind] = group.digest
    lines = [f"{number} {digests[kind]} {kind!r}" for kind, number in sorted(numbers.items())]
    versions = {version for _, _, version in numbers}
    return VerdictSet(
        verdicts=numbers.total(),
        verdicts_hash=_hash(lines),
        parser_versions=_versions(versions),
        local_hash=_local_hash(local),
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


def unchanged_models(models: PerModel, known: Mapping[str, VerdictSet]) -> set[str]:
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
    return unchanged_models(models, known) == set(models.keys) == set(known)


def _hash(lines: Iterable[str]) -> str:
    text = "\n".join(lines)
    if text:
        return hashlib.sha256(text.encode()).hexdigest()[:16]
    return "0" * 16


def _versions(versions: set[int]) -> str:
    return ",".join(map(str, sorted(versions)))


def save_snapshot(
    session: Session,
    *,
    opinion: Opinion,
    identities: Mapping[str, VerdictSet],
    pairs: PairDifferences,
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
        "pair_p": [_stored(*pair, difference) for pair, difference in pairs.items()],
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
        model = entry["model"]
        for name, numbers in entry["metrics"].items():
            yield {**numbers, "model": model, "metric": name, "category": ""}
        for category, numbers in entry["categories"].items():
            name = str(Metric.DETECTION_RATE)
            yield {**numbers, "model": model, "metric": name, "category": category}


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


class _StoredPair(Struct, frozen=True, array_like=True):
    """A row of the column `pair_p`: of a `Difference` what a recommendation needs.

    Before METRICS_VERSION 9 a row ended with p.
    """

    a: str
    b: str
    p_value: float | None
    difference: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    n: int = 0
    mde: float | None = None


_A, _B, *_OF_DIFFERENCE = _StoredPair.__struct_fields__


def _stored(a: str, b: str, difference: Difference) -> list[str | float | None]:
    return [a, b, *(getattr(difference, name) for name in _OF_DIFFERENCE)]


def _differences(rows: object) -> Iterator[tuple[tuple[str, str], Difference]]:
    for pair in convert(rows, list[_StoredPair]):
        numbers = {name: getattr(pair, name) for name in _OF_DIFFERENCE}
        yield (pair.a, pair.b), Difference(**numbers)


def _to_snapshot(row: Row[Any]) -> Snapshot:
    convert(row.document, SnapshotDocument)
    columns = row._asdict()
    read = {
        "snapshot_id": columns.pop("id"),
        "identities": convert(row.identities, dict[str, VerdictSet]),
        "opinion": opinion_of(row.opinion, row.scoring, row.scoring_version),
        "pairs": dict(_differences(columns.pop("pair_p"))),
    }
    return Snapshot(**columns | read)


def made_alike(
    session: Session, run: Run, overlay: OverlayInRun, made_under: Mapping[str, Any]
) -> Snapshot | None:
    """Return the newest snapshot made so, if the same verdicts give the same entries again."""
    snapshot = find_snapshot(session, run.run_id, made_under=made_under)
    if snapshot is None or snapshot.code_version != __version__:
        return None
    if snapshot.metrics_version != METRICS_VERSION:
        return None
    if run.imported:  # it plans nothing: its verdicts are all there is to compare
        return snapshot
    counted = {entry.model: entry.counts.get("planned") for entry in snapshot.entries}
    planned = {spec.id: sum(overlay.planned(run, spec.id).values()) for spec in run.models}
    return snapshot if counted == planned else None

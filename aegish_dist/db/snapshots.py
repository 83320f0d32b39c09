"""Snapshots in the store: append-only."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from aegish_dist.core.opinion import Opinion, opinion_of, record_of
from aegish_dist.core.snapshot import CATEGORY_METRIC, PairP, Snapshot, VerdictSet
from aegish_dist.db.tables import SnapshotMetricRow, SnapshotRow
from aegish_dist.statistics.rates import NUMBERS


def save_snapshot(
    session: Session,
    *,
    opinion: Opinion,
    identities: Mapping[str, VerdictSet],
    pair_p: PairP,
    **fields: Any,
) -> Snapshot:
    """Append a snapshot and its metrics.

    Args:
        **fields: The other fields of `Snapshot` but `snapshot_id`, `created_at` and `scoring…`.
    """
    row = SnapshotRow(
        scoring=opinion.rule.name,
        scoring_version=opinion.rule.version,
        opinion=record_of(opinion),
        identities={model: asdict(identity) for model, identity in identities.items()},
        pair_p=[[*pair, p] for pair, p in pair_p.items()],
        **fields,
    )
    session.add(row)
    session.flush()
    session.refresh(row)
    rows = list(_metric_rows(row.id, fields["document"]))
    if rows:
        session.execute(insert(SnapshotMetricRow), rows)
    return _to_snapshot(row)


def _metric_rows(snapshot_id: int, document: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for entry in document["models"]:
        named = [("", name, numbers) for name, numbers in entry["metrics"].items()]
        per_category = [
            (category, CATEGORY_METRIC, numbers)
            for category, numbers in entry["categories"].items()
        ]
        for category, name, numbers in named + per_category:
            rows.append(
                {
                    "snapshot_id": snapshot_id,
                    "model": entry["model"],
                    "metric": name,
                    "category": category,
                    **{number: numbers.get(number) for number in NUMBERS},
                }
            )
    return rows


def find_snapshot(
    session: Session,
    run_id: str,
    *,
    snapshot_id: int | None = None,
    made_under: Mapping[str, Any] | None = None,
) -> Snapshot | None:
    """Return a snapshot of a run.

    Args:
        snapshot_id: That snapshot; None for the newest.
        made_under: Parts of `Opinion.provenance`: only with these names, versions and
            fingerprints; None for any.

    Returns:
        None when the run has no such snapshot.
    """
    statement = select(SnapshotRow).where(SnapshotRow.run_id == run_id)
    if snapshot_id is not None:
        statement = statement.where(SnapshotRow.id == snapshot_id)
    if made_under is not None:
        statement = statement.where(SnapshotRow.opinion.contains(made_under))
    row = session.scalar(statement.order_by(SnapshotRow.id.desc()).limit(1))
    return None if row is None else _to_snapshot(row)


def load_snapshot(session: Session, snapshot_id: int) -> Snapshot | None:
    """Return a snapshot of any run; None when there is none of that number."""
    row = session.get(SnapshotRow, snapshot_id)
    return None if row is None else _to_snapshot(row)


def _to_snapshot(row: SnapshotRow) -> Snapshot:
    return Snapshot(
        snapshot_id=row.id,
        run_id=row.run_id,
        scoring=row.scoring,
        scoring_version=row.scoring_version,
        metrics_version=row.metrics_version,
        parser_versions=row.parser_versions,
        verdicts=row.verdicts,
        verdicts_hash=row.verdicts_hash,
        code_version=row.code_version,
        created_at=row.created_at,
        document=row.document,
        identities={model: VerdictSet(**each) for model, each in row.identities.items()},
        opinion=opinion_of(row.opinion, row.scoring, row.scoring_version),
        pair_p={(a, b): p for a, b, p in row.pair_p},
    )

"""The snapshots of a run: the current one, one by its number, the one without an overlay.

Only where none is current are verdicts counted: `aggregate` and numpy are loaded then.
"""

from collections.abc import Sequence

from sqlalchemy import Engine

from aegish_dist.db.engine import in_transaction, transaction
from aegish_dist.db.runs import load_run
from aegish_dist.db.snapshots import find_snapshot, is_unchanged, made_alike
from aegish_dist.errors import ReportError
from aegish_dist.findings.snapshot import Snapshot
from aegish_dist.opinions.opinion import Opinion
from aegish_dist.pipeline.opinions import overlay_of


def current_snapshot(engine: Engine, run_id: str, opinion: Opinion) -> Snapshot:
    """Return the newest snapshot under an opinion; a new one if verdicts or code have changed."""
    return current_snapshots(engine, run_id, [opinion])[0]


def current_snapshots(engine: Engine, run_id: str, opinions: Sequence[Opinion]) -> list[Snapshot]:
    """Return the same for several opinions, all of one set of verdicts.

    Where one has no current snapshot, the verdicts are counted once for all of them.
    """
    with transaction(engine) as session:
        run = load_run(session, run_id)
        stored = [
            made_alike(session, run, overlay_of(session, run, each), each.provenance)
            for each in opinions
        ]
        snapshots = [each for each in stored if each is not None]
        known = [each.identities for each in snapshots]
        is_same = bool(known) and known.count(known[0]) == len(opinions)
        if is_same and is_unchanged(session, run, known[0]):
            return snapshots
    from aegish_dist.pipeline.aggregate import aggregate  # noqa: PLC0415  for this case alone

    return aggregate(engine, run_id, opinions)


def snapshot_numbered(engine: Engine, run_id: str, snapshot_id: int) -> Snapshot:
    """Return a stored snapshot of a run by its key, at least 1."""
    found = in_transaction(engine, find_snapshot, run_id, snapshot_id=snapshot_id)
    if found is None:
        raise ReportError(f"run {run_id} has no snapshot {snapshot_id}")
    return found


def without_overlay(engine: Engine, snapshot: Snapshot) -> Snapshot | None:
    """Return the snapshot of the same verdicts under the labels of the datasets, if any."""
    if snapshot.opinion is None:
        return None
    found = in_transaction(
        engine,
        find_snapshot,
        snapshot.run_id,
        made_under={"scoring": snapshot.opinion.provenance["scoring"], "overlay": None},
    )
    wanted = (snapshot.verdicts_hash, snapshot.metrics_version)
    same = found is not None and (found.verdicts_hash, found.metrics_version) == wanted
    return found if same else None

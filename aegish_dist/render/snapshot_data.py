"""The content of a comparison of two snapshots."""

from collections.abc import Sequence
from dataclasses import dataclass

from aegish_dist.core.opinion import Opinion
from aegish_dist.core.run import Run
from aegish_dist.core.snapshot import Snapshot
from aegish_dist.core.snapshot_change import RejudgedModel


@dataclass(frozen=True, slots=True)
class SnapshotSide:
    """One of the snapshots."""

    run: Run
    snapshot: Snapshot
    opinion: Opinion
    """The rule set, targets and overlay that it was made under."""
    is_current: bool
    """Whether its verdicts are still those that count."""


@dataclass(frozen=True, slots=True)
class SnapshotComparison:
    """Two snapshots and what differs."""

    a: SnapshotSide
    """The first one."""
    b: SnapshotSide
    """The second one."""
    models: Sequence[RejudgedModel]

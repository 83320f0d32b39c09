"""What a report is made of."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from aegish_dist.core.run import Run


@dataclass(frozen=True, slots=True)
class ReportData:
    """One snapshot and the run it belongs to."""

    run: Run
    """What was asked."""
    snapshot_id: int
    """Key of the snapshot."""
    scoring: str
    """Name of the rule set that was applied."""
    scoring_version: int
    """Its version."""
    verdicts: int
    """How many verdicts were aggregated."""
    created_at: datetime
    """When they were aggregated, with a time zone."""
    document: Mapping[str, Any]
    """`models` and `ranking`, as `core.snapshot.snapshot_parts` builds them."""

"""A stored aggregation, and the identity of the verdicts that it was made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from aegish_dist.core.opinion import Opinion

JsonObject = dict[str, Any]

PairP = Mapping[tuple[str, str], float | None]
"""By pair of models, p of no difference of their scores, not adjusted for the other pairs."""

CATEGORY_METRIC = "malicious_detection_rate"


@dataclass(frozen=True, slots=True)
class VerdictSet:
    """The identity of a set of verdicts."""

    verdicts: int
    verdicts_hash: str
    """Sixteen hexadecimal digits that change with any verdict's identity or outcome. They are made
    of contents, so another store gives the same verdicts the same ones."""
    parser_versions: str
    local_hash: str = ""
    """As `verdicts_hash`, but of keys of this store: found in half the time. Empty of several
    models together, and in snapshots that were made before it was kept."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One stored aggregation."""

    snapshot_id: int
    run_id: str
    scoring: str
    scoring_version: int
    metrics_version: int
    """Of the formulas; 0 in snapshots that were made before it was kept."""
    parser_versions: str
    """Of the parsers that read the verdicts, comma-separated."""
    verdicts: int
    verdicts_hash: str
    code_version: str
    created_at: datetime
    """When it was made, with a time zone."""
    document: Mapping[str, Any]
    identities: Mapping[str, VerdictSet]
    """By model, the verdicts its entry was made of; of old snapshots unknown."""
    opinion: Opinion | None
    """Rule set, targets and overlay; None where this version does not know the rule set, of a
    snapshot that was made before they were kept, or by a later version."""
    pair_p: PairP = field(default_factory=dict)

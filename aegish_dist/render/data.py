"""What a report is made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from aegish_dist.core.run import Run
from aegish_dist.core.verdict import ErrorClass


@dataclass(frozen=True, slots=True)
class Failure:
    """One reason why calls to a model failed, as the store knows it now."""

    model: str
    """Canonical model id; foreign text."""
    error_class: ErrorClass
    """The reason."""
    verdicts: int
    """Verdicts that have no answer for it, of each item the newest."""
    attempts: int
    """Failed attempts, those included after which another one succeeded."""
    statuses: tuple[int, ...] = ()
    """HTTP statuses of the attempts, each once, sorted."""
    message: str = ""
    """The provider's words at the newest attempt; foreign text, empty when there were none."""
    last_at: datetime | None = None
    """When the newest attempt failed."""


@dataclass(frozen=True, slots=True)
class Halted:
    """A model that workers do not call any more although verdicts of it are missing."""

    model: str
    """Canonical model id; foreign text."""
    state: str
    """In a word or two, such as `parked`."""
    reason: str = ""
    """The provider's last words, foreign text; empty when unknown."""


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
    failures: Sequence[Failure] = ()
    """Why calls failed, by model; of a model the most verdicts first."""
    halted: Sequence[Halted] = ()
    """Models that are not called any more."""

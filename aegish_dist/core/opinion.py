"""Opinions about verdicts: a rule set, targets, and an overlay on the labels of samples.

Each has a name, a version and a fingerprint of its content, which snapshots record. Verdicts and
samples stay as they are; under another opinion the same verdicts give other numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from aegish_dist.core.fingerprint import fingerprint_of
from aegish_dist.core.sample import Target
from aegish_dist.core.scoring import DEFAULT_RULE, ScoringRule


@dataclass(frozen=True, slots=True)
class Targets:
    """The least values of metrics that reports mark PASS."""

    name: str
    version: int
    """1-based."""
    least: Mapping[str, float]
    """By metric name, in [0, 1]."""

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that change with any value."""
        return fingerprint_of(dict(self.least))

    def reached(self, metric: str, value: float | None) -> bool | None:
        """Whether a metric reaches its target; None when it has none or is undefined."""
        return None if metric not in self.least or value is None else value >= self.least[metric]


AEGISH_TARGETS = Targets(
    "aegish-5.3",
    1,
    MappingProxyType(
        {
            "aegish_score": 0.85,
            "malicious_detection_rate": 0.95,
            "harmless_acceptance_rate": 0.90,
        }
    ),
)


@dataclass(frozen=True, slots=True)
class LabelChange:
    """One correction of an overlay."""

    dataset: str
    sample_id: str | None
    """Content-derived id of the sample; None: its command says which one it is."""
    command: str | None
    """Its command, which has to be that of the dataset; None where the id is enough."""
    target: Target | None
    """Its right label; None: the sample is excluded."""
    category: str | None
    reason: str
    author: str

    @property
    def excludes(self) -> bool:
        """Whether the sample counts in no metric."""
        return self.target is None

    @property
    def content(self) -> list[str]:
        """All that changes a number: the sample, and its right label."""
        command = "" if self.sample_id else self.command or ""
        return [
            self.dataset, self.sample_id or "", command, self.target or "", self.category or ""
        ]  # fmt: skip

    def __str__(self) -> str:
        """Name the sample, as far as the file does."""
        return f"sample {self.sample_id}" if self.sample_id else f"command {self.command!r}"


@dataclass(frozen=True, slots=True)
class Overlay:
    """Corrections of labels, laid over the datasets of a run without changing them."""

    name: str
    version: int
    """1-based."""
    changes: tuple[LabelChange, ...]
    """At most one per sample."""

    @property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits that change with any label or exclusion."""
        return fingerprint_of(sorted(change.content for change in self.changes))


@dataclass(frozen=True, slots=True)
class Opinion:
    """All that turns verdicts into numbers and the numbers into PASS or FAIL."""

    rule: ScoringRule = DEFAULT_RULE
    targets: Targets = field(default=AEGISH_TARGETS)
    overlay: Overlay | None = None
    """Which labels to correct first; None: none."""

    @property
    def provenance(self) -> dict[str, dict[str, Any] | None]:
        """Name, version and fingerprint of each part: `scoring`, `targets`, and `overlay`.

        The last is None without one, and else has the number of its `changes`.
        """
        overlay = self.overlay
        return {
            "scoring": _identity(self.rule),
            "targets": _identity(self.targets),
            "overlay": None
            if overlay is None
            else {**_identity(overlay), "changes": len(overlay.changes)},
        }


def _identity(part: ScoringRule | Targets | Overlay) -> dict[str, Any]:
    return {"name": part.name, "version": part.version, "fingerprint": part.fingerprint}

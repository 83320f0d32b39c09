"""Records of the audit of a run: which commands are worth a look, and how reliable models are.

`aegish_dist/statistics/label_audit.py` makes them.
"""

from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

from aegish_dist.core.model import base_of, is_baseline
from aegish_dist.core.tally import SampleAnswers

DOUBTFUL_FROM = 0.7  # a label is doubtful if the other one has this probability
LEAST_MODELS = 5  # a probability of fewer, or of arms of one model, cannot be relied on
INFORMATIVE_FROM = 0.1  # answers depend on the command from this Youden's index on


class AuditKind(StrEnum):
    """Why a command is worth a look."""

    DOUBTFUL_LABELS = "doubtful_labels"
    DISPUTED = "disputed"
    MISSED_BY_ALL = "missed_by_all"  # no model was right in any scored epoch
    FLIPPING = "flipping"


class ModelReliability(Struct, frozen=True):
    """How well a model tells commands labelled malicious from those labelled harmless."""

    model: str
    sensitivity: float  # share of malicious commands it flags; with a prior, see `label_audit`
    specificity: float  # share of harmless commands it passes

    @property
    def youden(self) -> float:
        """Youden's index (1950, Cancer 3:32); 0 for a model that guesses."""
        return self.sensitivity + self.specificity - 1

    @property
    def informative(self) -> bool:
        return self.youden >= INFORMATIVE_FROM


class AuditedCommand(Struct, frozen=True):
    sample: SampleAnswers
    score: float  # sorts the list, in [0, 1]; see `label_audit.audit`
    p_other_label: float
    contradicting: int  # informative models against the label in most epochs
    agreeing: int  # informative models that agree in most epochs
    reason: str  # one sentence; holds names of models


class Audit(Struct, frozen=True):
    reliabilities: tuple[ModelReliability, ...]
    samples: int
    totals: Mapping[AuditKind, int]  # commands of each list if it were shown whole
    found: Mapping[AuditKind, tuple[AuditedCommand, ...]]

    @property
    def warning(self) -> str | None:
        """Why no probability on its lists can be relied on; None where one can."""
        informative = [each.model for each in self.reliabilities if each.informative]
        unlike = {base_of(model) for model in informative if not is_baseline(model)}
        if not any(self.totals.values()) or len(unlike) >= LEAST_MODELS:
            return None
        return f"too few unlike models ({len(unlike)}) for a probability: read these commands"

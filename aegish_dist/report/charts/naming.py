"""How plots call models: short, printable, and each differently."""

from collections.abc import Sequence

from aegish_dist.core.text import printable
from aegish_dist.report.charts.text_width import distinct, fitted
from aegish_dist.report.charts.theme import TEXT_PX
from aegish_dist.report.layout import SIMULATED, RankedModel

LABEL_PX = 190.0
ROW_PX = 270.0


def point_names(entries: Sequence[RankedModel]) -> list[str]:
    """Return names for labels of points: without provider, which colour and shape say."""
    return distinct([_marked(entry, last_part(entry.model)) for entry in entries], TEXT_PX,
                    LABEL_PX)  # fmt: skip


def row_names(entries: Sequence[RankedModel], width: float = ROW_PX) -> list[str]:
    """Return names for rows: the canonical ids, as far as they fit."""
    return distinct([_marked(entry, entry.model) for entry in entries], TEXT_PX, width)


def short_name(text: str) -> str:
    """Return a foreign text for a legend: printable, and not too wide."""
    return fitted(printable(text), TEXT_PX, LABEL_PX) or "(none)"


def _marked(entry: RankedModel, name: str) -> str:
    shown = printable(name) or "(no name)"
    return f"{shown} {SIMULATED}" if entry.simulated else shown


def last_part(model: str) -> str:
    """Return a model id without the provider and what else stands before the name."""
    return model.rstrip("/").rpartition("/")[2] or model

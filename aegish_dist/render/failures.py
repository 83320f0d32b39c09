"""The section on why models failed."""

from collections.abc import Sequence

from aegish_dist.render.data import Failure, ReportData
from aegish_dist.render.entries import ModelEntry
from aegish_dist.render.layout import Cell, Section
from aegish_dist.render.numbers import UNDEFINED, format_count, format_time

MESSAGE_CHARACTERS = 300
"""Longer messages are cut; JSON and CSV have them whole."""

_COLUMNS = ("model", "reason", "status", "without answer", "failed attempts", "tried again")
_NOTE = (
    "Verdicts without an answer by the reason of the last attempt, and all attempts that failed. As"
    " stored now, of every try; the newest words of the provider stand below."
)


def failures(data: ReportData, entries: Sequence[ModelEntry]) -> Section | None:
    """Return why calls failed and why models are not called; None when nothing failed."""
    order = [entry.model for entry in entries]
    found = sorted(data.failures, key=lambda failure: order.index(failure.model))
    if not found and not data.halted:
        return None
    halts = (_line(each.model, each.state, each.reason) for each in data.halted)
    words = (_line(each.model, _when(each), each.message) for each in found if each.message)
    return Section(
        title="Failed calls",
        columns=tuple(Cell(title) for title in _COLUMNS),
        rows=tuple(_row(failure) for failure in found),
        note=_NOTE,
        remarks=(*halts, *words),
    )


def _row(failure: Failure) -> tuple[Cell, ...]:
    return (
        Cell(failure.model),
        Cell(failure.error_class.replace("_", " ")),
        Cell(", ".join(map(str, failure.statuses)) or UNDEFINED),
        Cell(format_count(failure.verdicts)),
        Cell(format_count(failure.attempts or None)),
        Cell(format_count(max(failure.attempts - failure.verdicts, 0))),
    )


def _when(failure: Failure) -> str:
    reason = failure.error_class.replace("_", " ")
    return reason if failure.last_at is None else f"{reason}, {format_time(failure.last_at)}"


def _line(model: str, about: str, words: str) -> str:
    cut = words if len(words) <= MESSAGE_CHARACTERS else f"{words[:MESSAGE_CHARACTERS]}\u2026"
    return f"{model} ({about}): {cut}" if cut else f"{model} ({about})"

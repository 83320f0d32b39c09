"""The table of models: its columns, and which of them a terminal has room for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from aegish_dist.core.status import ModelStatus
from aegish_dist.core.text import printable
from aegish_dist.report.live.fitting import distinct_names, padded
from aegish_dist.report.live.words import left_of, pace
from aegish_dist.report.numbers import format_usd

GAP = 2
LEAST_MODEL = 24
"""Columns that ids of models keep, if they need them, before another column is dropped."""
NARROWEST_MODEL = 8
"""Columns that ids keep when all is dropped that can be."""


@dataclass(frozen=True, slots=True)
class ModelNumber:
    """A column of numbers about models."""

    heading: str
    priority: int
    """The largest are dropped first."""
    cell: Callable[[ModelStatus], str]


def _usd(amount: float | None) -> str:
    return "-" if amount is None else format_usd(amount)


COLUMNS = (
    ModelNumber("Done", 0, lambda m: f"{m.done:,}/{m.planned:,}"),
    ModelNumber("%", 7, lambda m: f"{100 * m.done // m.planned if m.planned else 100}"),
    ModelNumber("Rate", 2, lambda m: pace(m.rate_per_s)),
    ModelNumber("In flight", 3, lambda m: f"{m.in_flight:,}"),
    ModelNumber("429s", 4, lambda m: f"{m.rate_limited:,}"),
    ModelNumber("In 1 min", 10, lambda m: f"{m.rate_limited_last_minute:,}"),
    ModelNumber("Retries", 9, lambda m: f"{m.retries:,}"),
    ModelNumber("Failed", 6, lambda m: f"{m.failed:,}"),
    ModelNumber("Cost", 5, lambda m: _usd(m.cost_usd)),
    ModelNumber("At end", 8, lambda m: _usd(m.cost_at_end_usd)),
    ModelNumber("Left", 1, left_of),
)
"""All columns behind the id of the model, in their order."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """The columns that fit."""

    columns: tuple[ModelNumber, ...]
    """In their order."""
    widths: tuple[int, ...]
    model_width: int
    names: Mapping[str, str]

    def heading(self) -> str:
        """Return the line of headings."""
        return self._line("Model", [column.heading for column in self.columns])

    def row(self, model: ModelStatus) -> str:
        """Return the line of a model."""
        return self._line(self.names[model.model], [column.cell(model) for column in self.columns])

    def _line(self, name: str, cells: Sequence[str]) -> str:
        numbers = (
            padded(cell, width, right=True) for cell, width in zip(cells, self.widths, strict=True)
        )
        return (" " * GAP).join((padded(name, self.model_width), *numbers))


def fitted(models: Sequence[ModelStatus], width: int, dots: str) -> Fitted:
    """Choose the columns of a table.

    Args:
        models: All that may become rows, so that columns do not move when rows change.
        dots: Stand for the middle of an id that is cut.
    """
    widths = {
        column.heading: max([cell_len(column.heading), *(cell_len(column.cell(m)) for m in models)])
        for column in COLUMNS
    }
    longest = max([len("Model"), *(cell_len(printable(model.model)) for model in models)])
    chosen = list[ModelNumber]()
    for column in sorted(COLUMNS, key=lambda each: each.priority):
        taken = sum(widths[each.heading] + GAP for each in [*chosen, column])
        least = min(longest, LEAST_MODEL if column.priority else NARROWEST_MODEL)
        if taken + least <= width:
            chosen.append(column)
    columns = tuple(column for column in COLUMNS if column in chosen)
    numbers = tuple(widths[column.heading] for column in columns)
    room = width - sum(numbers) - GAP * len(numbers)
    model_width = max(0, min(longest, room))
    return Fitted(columns, numbers, model_width, shown_names(models, model_width, dots))


def shown_names(models: Sequence[ModelStatus], width: int, dots: str) -> dict[str, str]:
    """Return what is shown for each id of a model."""
    shown = {model.model: printable(model.model) for model in models}
    distinct = distinct_names(list(shown.values()), width, dots)
    return {name: distinct[text] for name, text in shown.items()}
